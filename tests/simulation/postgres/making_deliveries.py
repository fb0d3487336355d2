"""Models of the functions in ``sql/functions/webhooks`` by which deliveries are made of events. None is erased."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.server import DELIVERIES
from tests.simulation.postgres.statements import function
from tests.simulation.postgres.storage import Row

CHANNEL = "projections_webhooks"
OPEN = ("waiting", "pending", "leased", "dead")


def in_the_way(delivery: Row, on_dead: str) -> bool:
    """Whether a delivery stands in the way of those after it in its order."""
    return delivery["state"] in OPEN and (delivery["state"] != "dead" or on_dead == "block")


class _Given(NamedTuple):
    """An event, as the arguments of ``_fan_out_v1`` have it."""

    event_id: str
    time: datetime
    tenant: str
    topic: str
    order_key: str
    not_before: datetime | None
    eligible: bool
    metadata: str
    data: str
    expires_at: datetime | None


class _Pair(NamedTuple):
    place: int
    endpoint: Row
    set_apart: str | None


@function
async def _fan_out_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, event_ids: Sequence[str], times: Sequence[datetime], tenants: Sequence[str], topics: Sequence[str],
    order_keys: Sequence[str], not_before: Sequence[datetime | None], eligible: Sequence[bool], metadata: Sequence[str],
    data: Sequence[str], places: Sequence[int], wanted: Sequence[str], set_apart: Sequence[str | None],
    expires_at: Sequence[datetime | None],
) -> int:  # fmt: skip
    columns = event_ids, times, tenants, topics, order_keys, not_before, eligible, metadata, data, expires_at
    given = [_Given(*one) for one in zip(*columns, strict=True)]
    ordered = await lock_orders(db, wanted)
    await db.breathe()
    kept = {e["endpoint_id"]: e for e in db.select("webhook_endpoints", lambda e: e["endpoint_id"] in wanted)}
    firsts: dict[tuple[str, str], _Pair] = {}  # of several events with one id, an endpoint gets the first
    for place, one, why in sorted(zip(places, wanted, set_apart, strict=True), key=lambda pair: pair[:2]):
        if one in kept and given[place - 1].time >= kept[one]["created_at"]:
            firsts.setdefault((given[place - 1].event_id, one), _Pair(place, kept[one], why))
    pairs = list(firsts.values())
    if not pairs:
        return 0
    await db.breathe()
    await _log_events(db, given, pairs)
    await db.breathe()
    made = await _make(db, given, pairs, ordered)
    if made > 0:
        db.notify(CHANNEL)
    return made


async def lock_orders(db: Backend, wanted: Collection[str]) -> set[str]:
    """Who adds to an order holds the circuit of its endpoint."""
    await db.breathe()
    snapshot = db.snapshot()
    with_order = {
        e["endpoint_id"] for e in db.select("webhook_endpoints", lambda e: e["ordering"] != "none", snapshot)
    }
    held = await db.lock_rows(
        "webhook_circuits", lambda c: c["endpoint_id"] in wanted and c["endpoint_id"] in with_order, order="endpoint_id"
    )  # fmt: skip
    return {c["endpoint_id"] for c in held}


async def _log_events(db: Backend, given: Sequence[_Given], pairs: Sequence[_Pair]) -> None:
    """``_log_events_v1``."""
    events = {given[place - 1].event_id: given[place - 1] for place, _, _ in reversed(pairs)}
    added = [
        event
        for name, event in sorted(events.items())
        if await db.insert_or_nothing(
            "webhook_log_ids", {"id": name, "kind": "event", "row_time": event.time}
        )
    ]
    for event in added:
        await db.insert("webhook_events", {
            "event_time": event.time, "event_id": event.event_id, "eligible_for_retry": event.eligible,
            "metadata": json.dumps(json.loads(event.metadata)), "data": event.data,
        })  # fmt: skip


async def _make(
    db: Backend, given: Sequence[_Given], pairs: Sequence[_Pair], ordered: Collection[str]
) -> int:
    """The statement that makes them, with one snapshot."""
    there = db.select("webhook_deliveries")
    known = {(d["endpoint_id"], d["event_id"]) for d in there}
    logged = {i["id"]: i["row_time"] for i in db.select("webhook_log_ids", lambda i: i["kind"] == "event")}
    before: Counter[Any] = Counter()
    rows = []
    for place, endpoint, set_apart in pairs:
        event, endpoint_id, on_dead = given[place - 1], endpoint["endpoint_id"], endpoint["on_dead"]
        if (endpoint_id, event.event_id) in known:
            continue
        keys = {"key": event.order_key, "endpoint": ""}
        key = keys.get(endpoint["ordering"]) if endpoint_id in ordered else None
        busy = before[endpoint_id, key] > 0 or any(
            (d["endpoint_id"], d["order_key"]) == (endpoint_id, key) and in_the_way(d, on_dead) for d in there
        )
        waits = key is not None and busy
        before[endpoint_id, key] += set_apart is None or on_dead == "block"
        rows.append({
            "endpoint_id": endpoint_id, "event_id": event.event_id, "event_time": event.time, "tenant": event.tenant,
            "topic": event.topic, "order_key": key, "manual": False, "attempts": 0, "lease_until": None,
            "state": "dead" if set_apart is not None else new_state(waits=waits),
            "next_at": event.not_before, "lease_token": None, "last_code": set_apart,
            "data": payload_of_its_own(event.data, event.time, logged.get(event.event_id, event.time)),
            "expires_at": event.expires_at,
        })  # fmt: skip
    made = 0
    for row in rows:
        numbered = {
            "delivery_id": db.server.next_of(DELIVERIES), **row, "next_at": row["next_at"] or db.clock(),
            "created_at": db.clock(), "finished_at": db.clock() if row["state"] == "dead" else None,
        }  # fmt: skip
        made += await db.insert_or_nothing("webhook_deliveries", numbered)
    return made


def payload_of_its_own(data: str, time: datetime, logged: datetime) -> str | None:
    """Of a delivery whose id the log has of another event."""
    return data if time != logged else None


def new_state(*, waits: bool) -> str:
    """Of a delivery that is not a dead letter at once; whether something of its order is before it."""
    return "waiting" if waits else "pending"
