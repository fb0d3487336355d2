"""
Models of the functions in ``sql/functions/webhooks`` about endpoints: how they are made, limited and judged.

No rate limit, credential or verified URL is modelled, and no endpoint that is disabled.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from projections.webhooks import fan_out
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.errors import NotModelled
from tests.simulation.postgres.journal import append_events_v1
from tests.simulation.postgres.statements import Touched, function, statement
from tests.simulation.postgres.storage import Row

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_LIMITS: dict[str, tuple[float | None, float | None]] = {
    "max_in_flight": (1, 100), "timeout": (1, 30), "pause": (1, None), "attempts": (None, 25),
    "breaker_failures": (None, 100), "breaker_pause": (5, None),
}  # fmt: skip
"""The rows of ``webhook_limits`` as they are installed."""
_HOUR = timedelta(hours=1)
CREATE = "SELECT endpoint_id FROM projections._create_endpoint_v1($1, $2, $3, $4)"
SET_LEAST = "UPDATE projections.webhook_limits SET least = $2 WHERE name = $1"


@function
async def _create_endpoint_v1(
    db: Backend, endpoint_id: str, tenant: str, settings: str, secret: str
) -> list[Row]:
    asked = json.loads(settings)
    if asked.keys() & {"rate_limit", "gzip", "when_disabled"}:
        raise NotModelled("an endpoint with a rate limit, compression, or of which events are discarded")
    row = {
        "endpoint_id": endpoint_id, "tenant": tenant, "topics": ["**"], "filter": None, "headers": "{}",
        "state": "active", "max_in_flight": 10, "ordering": "none", "on_dead": "skip", **asked, "gzip": False,
        "version": 2, "created_at": db.clock(),
    }  # fmt: skip
    await db.insert("webhook_endpoints", row)
    await db.breathe()
    changed = await db.update(
        "webhook_endpoints", lambda e: e["endpoint_id"] == endpoint_id, lambda _: {"updated_at": db.clock()}
    )
    await db.breathe()
    await db.insert("webhook_circuits", {
        "endpoint_id": endpoint_id, "failures": 0, "failing_since": None, "blocked_until": _LONG_AGO, "opened": 0,
        "dead_told_at": _LONG_AGO, "expired": 0,
    })  # fmt: skip
    await db.breathe()
    await db.insert("webhook_secrets", {"endpoint_id": endpoint_id, "secret": secret})
    return changed


@statement(SET_LEAST)
async def set_least(db: Backend, name: str, least: float) -> Touched:
    row = {"name": name, "least": least, "most": _LIMITS[name][1]}
    await db.insert("webhook_limits", row, lambda _: {"least": least})
    return Touched(1)


@statement(fan_out._VERSIONS)
async def endpoint_versions(db: Backend, tenants: Sequence[str]) -> list[Row]:
    found = db.select("webhook_endpoints", lambda e: e["tenant"] in tenants)
    return [{name: e[name] for name in ("tenant", "endpoint_id", "version", "updated_at")} for e in found]


@statement(fan_out._LOAD)
async def load_endpoints(db: Backend, endpoint_ids: Sequence[str]) -> list[Row]:
    columns = ("endpoint_id", "version", "updated_at", "topics", "filter")
    found = db.select("webhook_endpoints", lambda e: e["endpoint_id"] in endpoint_ids)
    return [{name: e[name] for name in columns} for e in found]


def endpoint_of(db: Backend, endpoint_id: str) -> Row | None:
    """An endpoint as a statement sees it that begins now."""
    return db.table("webhook_endpoints").get(db.snapshot(), endpoint_id)


def limits(db: Backend) -> dict[str, tuple[float | None, float | None]]:
    """``webhook_limits``: the least and the most of each."""
    return _LIMITS | {row["name"]: (row["least"], row["most"]) for row in db.select("webhook_limits")}


def policy_within_limits(db: Backend, policy: Row) -> Row:
    """``_policy_within_limits_v1``."""
    known = limits(db)

    def within(name: str, value: float) -> float:
        least, most = known[name]
        value = value if least is None else max(value, least)
        return value if most is None else min(value, most)

    attempts = known["attempts"][1]
    pauses = policy["schedule"][: None if attempts is None else int(attempts) - 1]
    pause = policy["breaker_pause"]
    return {
        **policy,
        "timeout": within("timeout", policy["timeout"]),
        "breaker_failures": within("breaker_failures", policy["breaker_failures"]),
        "breaker_pause": {**pause, **{n: within("breaker_pause", pause[n]) for n in ("first", "longest")}},
        "schedule": [within("pause", one) for one in pauses],
    }


async def judge_endpoint(
    db: Backend, endpoint_id: str, verdicts: Sequence[str], pause: timedelta | None, disable: bool
) -> None:
    """``_judge_endpoint_v1``."""
    now = db.clock()
    await db.breathe()
    endpoint = endpoint_of(db, endpoint_id)
    await db.breathe()
    circuits = await db.lock_rows("webhook_circuits", lambda c: c["endpoint_id"] == endpoint_id)
    if not circuits or endpoint is None:
        return
    if disable or not {endpoint["policy"][name] for name in ("disable_after_failures", "disable_after")} <= {
        None
    }:
        raise NotModelled("an endpoint that is disabled")
    after = await _circuit_after(db, endpoint, circuits[0], verdicts, now)
    if pause is not None:
        after["blocked_until"] = max(after["blocked_until"], now + pause)
    tells = "dead" in verdicts and circuits[0]["dead_told_at"] < now - _HOUR
    await db.breathe()
    await db.update(
        "webhook_circuits",
        lambda c: c["endpoint_id"] == endpoint_id,
        lambda _: {**after, **({"dead_told_at": now} if tells else {})},
    )
    if tells:
        await _tell_of_endpoint(db, endpoint, "WebhookDeliveryDead")


async def _circuit_after(
    db: Backend, endpoint: Row, circuit: Row, verdicts: Sequence[str], now: datetime
) -> dict[str, Any]:
    names = ("failures", "failing_since", "opened", "blocked_until")
    after = {name: circuit[name] for name in names}
    success = max((place for place, one in enumerate(verdicts, 1) if one == "done"), default=0)
    if success:
        after |= {"failures": 0, "failing_since": None}
        if after["opened"] > 0:
            after |= {"opened": 0, "blocked_until": min(after["blocked_until"], now)}
    before = after["failures"]
    after["failures"] = before + len(verdicts) - success
    if after["failures"] > 0:
        after["failing_since"] = after["failing_since"] or now
    if after["failures"] > before and after["blocked_until"] <= now:
        await db.breathe()
        policy = policy_within_limits(db, endpoint["policy"])
        if after["failures"] >= policy["breaker_failures"]:
            asked = policy["breaker_pause"]
            spread = 1 + asked["jitter"] * (2 * db.server.choices.random() - 1)
            seconds = min(asked["first"] * 2 ** min(after["opened"], 20), asked["longest"]) * spread
            after |= {"blocked_until": now + timedelta(seconds=seconds), "opened": after["opened"] + 1}
    return after


async def _tell_of_endpoint(db: Backend, endpoint: Row, event_type: str) -> None:
    """``_tell_of_endpoint_v1``."""
    await db.breathe()
    facts = json.dumps({"tenant": endpoint["tenant"], "endpoint_id": endpoint["endpoint_id"]})
    source = f"webhook-endpoint/{endpoint['endpoint_id']}"
    what, nothing = (["webhook-endpoint"], [event_type], [facts], [1]), [None]
    await append_events_v1(db, [source], *what, nothing, nothing, nothing, [], [])
