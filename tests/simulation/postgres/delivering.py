"""Models of the functions in ``sql/functions/webhooks`` that say what has become of deliveries. None is erased."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple
from uuid import UUID

from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.errors import NotModelled, ServerError
from tests.simulation.postgres.making_deliveries import in_the_way
from tests.simulation.postgres.statements import function
from tests.simulation.postgres.storage import Row
from tests.simulation.postgres.webhook_endpoints import endpoint_of, judge_endpoint, policy_within_limits

_NOTHING = timedelta(0)
_PATIENCE = 2.0
"""Seconds: ``lock_timeout`` of ``_finish_deliveries_v1``."""
_NOT_ITS_FAULT = {"unsendable", "event_gone", "worker_lost"}
_FINISHED = {"done", "dead", "dropped", "expired"}
_VERDICTS = {"done", "retry", "dead", "release"}


class _Outcome(NamedTuple):
    """What is said of one delivery."""

    delivery_id: int
    token: int
    verdict: str
    delay: timedelta | None = None
    pause: timedelta | None = None
    disable: bool = False
    code: str | None = None
    response: str | None = None
    took: timedelta | None = None


@contextmanager
def _lock_timeout(db: Backend, seconds: float) -> Iterator[None]:
    """``SET lock_timeout`` of a function."""
    before, db.lock_timeout = db.lock_timeout, seconds
    try:
        yield
    finally:
        db.lock_timeout = before


@function
async def _finish_deliveries_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, ids: Sequence[int], tokens: Sequence[int], verdicts: Sequence[str], delays: Sequence[timedelta | None],
    pauses: Sequence[timedelta | None], disable: Sequence[bool], codes: Sequence[str | None],
    responses: Sequence[str | None], took: Sequence[timedelta | None],
) -> list[int]:  # fmt: skip
    columns = ids, tokens, verdicts, delays, pauses, disable, codes, responses, took
    return await _finish(db, [_Outcome(*one) for one in zip(*columns, strict=True)])


async def _finish(db: Backend, outcomes: Sequence[_Outcome]) -> list[int]:
    with _lock_timeout(db, _PATIENCE):
        now = db.clock()
        if any(
            one.verdict not in _VERDICTS or (one.verdict == "retry" and one.delay is None) for one in outcomes
        ):
            raise ServerError("PJ096", "a verdict is done, retry with a delay, dead or release")
        await db.breathe()
        await _lock_deliveries(db, [one.delivery_id for one in outcomes])
        await db.breathe()
        held = held_by(db, outcomes)
        if not held:
            return []
        await db.breathe()
        deliveries = {d["delivery_id"]: d for d in _deliveries(db, [one.delivery_id for one in held])}
        await _log_attempts(db, held, deliveries, now)
        await db.breathe()
        await _store_outcomes(db, held, now)
        await _follow_on(db, [one.delivery_id for one in held])
        await _judge(db, held)
    return [one.delivery_id for one in held]


def held_by(db: Backend, outcomes: Sequence[_Outcome]) -> list[_Outcome]:
    """Of deliveries whose lease still holds."""
    leased = {
        d["delivery_id"]: d["lease_token"]
        for d in db.select("webhook_deliveries", lambda d: d["state"] == "leased")
    }
    return [one for one in outcomes if leased.get(one.delivery_id) == one.token]


def _deliveries(db: Backend, ids: Collection[int]) -> list[Row]:
    return db.select("webhook_deliveries", lambda d: d["delivery_id"] in ids)


async def _lock_deliveries(db: Backend, ids: Collection[int]) -> None:
    """``_lock_deliveries_v1``."""
    await db.breathe()
    endpoints = {d["endpoint_id"] for d in _deliveries(db, ids)}
    await db.lock_rows("webhook_circuits", lambda c: c["endpoint_id"] in endpoints, order="endpoint_id")
    await db.breathe()
    await db.lock_rows("webhook_deliveries", lambda d: d["delivery_id"] in ids, order="delivery_id")


async def _log_attempts(
    db: Backend, held: Sequence[_Outcome], deliveries: dict[int, Row], now: datetime
) -> None:
    """``_log_attempts_v1``, of new ids."""
    for one in held:
        if one.verdict == "release":
            continue
        delivery, number = deliveries[one.delivery_id], str(UUID(int=db.server.choices.getrandbits(128)))
        at = now - one.took if one.took is not None else now
        await db.insert("webhook_log_ids", {"id": number, "kind": "attempt", "row_time": at})
        await db.insert("webhook_attempts", {
            "attempted_at": at, "attempt_id": number, "attempt_number": delivery["attempts"], "code": one.code,
            "status": "success" if one.verdict == "done" else "failed", "took": one.took,
            "event_id": delivery["event_id"], "endpoint_id": delivery["endpoint_id"],
        })  # fmt: skip


async def _store_outcomes(db: Backend, held: Sequence[_Outcome], now: datetime) -> None:
    told = {one.delivery_id: one for one in held}
    events = {(v["event_time"], v["event_id"]): v["data"] for v in db.select("webhook_events")}

    def change(d: Row) -> Row:
        one = told[d["delivery_id"]]
        again = one.verdict in {"retry", "release"}
        logged = events.get((d["event_time"], d["event_id"]))
        kept = {"dead": d["data"] if d["data"] is not None else logged, "done": None}
        return {
            "state": "pending" if again else one.verdict,
            "attempts": d["attempts"] - given_back(one.verdict),
            "manual": d["manual"] and one.verdict == "release",
            "next_at": now + one.delay if again and one.delay is not None else d["next_at"],
            "last_code": one.code if one.code is not None else d["last_code"],
            "finished_at": None if again else now,
            "data": kept.get(one.verdict, d["data"]),
            "lease_until": None, "lease_token": None,
        }  # fmt: skip

    await db.update("webhook_deliveries", lambda d: d["delivery_id"] in told, change)


def given_back(verdict: str) -> int:
    """How many attempts do not count: none was made."""
    return int(verdict == "release")


async def _follow_on(db: Backend, ids: Collection[int]) -> None:
    """``_follow_on_v1``."""
    await db.breathe()
    on_dead = {e["endpoint_id"]: e["on_dead"] for e in db.select("webhook_endpoints")}
    orders = {
        (d["endpoint_id"], d["order_key"]): None
        for d in _deliveries(db, ids)
        if d["order_key"] is not None and d["state"] in _FINISHED
    }
    first = [first_of(db, *order, on_dead[order[0]]) for order in orders]
    go = {one["delivery_id"] for one in first if one is not None and one["state"] == "waiting"}
    await _let_go(db, go)


def first_of(db: Backend, endpoint_id: str, order_key: str, on_dead: str) -> Row | None:
    """Of an order, what nothing stands in the way of."""
    there = db.select(
        "webhook_deliveries",
        lambda d: (d["endpoint_id"], d["order_key"]) == (endpoint_id, order_key) and in_the_way(d, on_dead),
    )
    return min(there, key=lambda d: d["delivery_id"], default=None)


async def _let_go(db: Backend, ids: Collection[int], *, skip_locked: bool = False) -> list[Row]:
    return await db.update(
        "webhook_deliveries",
        lambda d: d["delivery_id"] in ids and d["state"] == "waiting",
        lambda d: {"state": "pending", "next_at": max(d["next_at"], db.clock())},
        skip_locked=skip_locked,
    )


async def _judge(db: Backend, held: Sequence[_Outcome]) -> None:
    await db.breathe()
    endpoints = {
        d["delivery_id"]: d["endpoint_id"] for d in _deliveries(db, [one.delivery_id for one in held])
    }
    judged = [one for one in held if one.verdict != "release" and (one.code or "") not in _NOT_ITS_FAULT]
    for endpoint_id in sorted({endpoints[one.delivery_id] for one in judged}):
        its = [one for one in judged if endpoints[one.delivery_id] == endpoint_id]
        pause = max((one.pause for one in its if one.pause is not None), default=None)
        await judge_endpoint(
            db, endpoint_id, [one.verdict for one in its], pause, any(one.disable for one in its)
        )


async def _lock_free(db: Backend, endpoints: Collection[str]) -> set[str]:
    """Lock the circuits of endpoints that nobody holds."""
    where = "webhook_circuits", lambda c: c["endpoint_id"] in endpoints
    return {c["endpoint_id"] for c in await db.lock_rows(*where, skip_locked=True)}


@function
async def _reap_deliveries_v1(db: Backend, limit: int = 1000) -> int:
    now = db.clock()
    await db.breathe()

    def is_lost(d: Row) -> bool:
        return d["state"] == "leased" and d["lease_until"] < now

    free = await _lock_free(db, {d["endpoint_id"] for d in db.select("webhook_deliveries", is_lost)})
    if not free:
        return 0
    await db.breathe()
    lost = db.select("webhook_deliveries", lambda d: is_lost(d) and d["endpoint_id"] in free)[:limit]
    outcomes = []
    for d in lost:
        endpoint = endpoint_of(db, d["endpoint_id"])
        assert endpoint is not None
        retries = len(policy_within_limits(db, endpoint["policy"])["schedule"])
        verdict = verdict_of_lost(d["attempts"], retries)
        lease = d["delivery_id"], d["lease_token"]
        outcomes.append(_Outcome(*lease, verdict, _NOTHING, code="worker_lost", response="", took=_NOTHING))
    return len(await _finish(db, outcomes)) if outcomes else 0


def verdict_of_lost(attempts: int, retries: int) -> str:
    """Of an attempt whose process has died."""
    return "dead" if attempts > retries else "retry"


@function
async def _expire_deliveries_v1(db: Backend, limit: int = 1000) -> int:
    now = db.clock()
    await db.breathe()
    states = {"waiting", "pending", "dead"}
    over = db.select(
        "webhook_deliveries",
        lambda d: d["expires_at"] is not None and d["state"] in states and d["expires_at"] <= now,
    )
    ids = {d["delivery_id"] for d in sorted(over, key=lambda d: d["expires_at"])[:limit]}
    if not ids:
        return 0
    await db.breathe()
    free = await _lock_free(db, {d["endpoint_id"] for d in _deliveries(db, ids)})
    await db.breathe()
    ended = await db.update(
        "webhook_deliveries",
        lambda d: d["delivery_id"] in ids and d["endpoint_id"] in free and d["state"] in states,
        lambda _: {"state": "expired", "manual": False, "finished_at": now, "data": None},
    )
    numbers = [d["endpoint_id"] for d in ended]
    await db.update(
        "webhook_circuits",
        lambda c: c["endpoint_id"] in numbers,
        lambda c: {"expired": c["expired"] + numbers.count(c["endpoint_id"])},
    )
    await _follow_on(db, [d["delivery_id"] for d in ended])
    return len(ended)


@function
async def _release_waiting_v1(
    db: Backend, after_endpoint: str, after_key: str, limit: int = 1000
) -> list[Row]:
    at: tuple[str, str] | None = (after_endpoint, after_key)
    go = set()
    for _ in range(limit):
        await db.breathe()
        orders = {
            (d["endpoint_id"], d["order_key"])
            for d in db.select(
                "webhook_deliveries", lambda d: d["order_key"] is not None and in_the_way(d, "block")
            )
        }
        at = min((one for one in orders if at is not None and one > at), default=None)
        if at is None:
            break
        await db.breathe()
        endpoint = endpoint_of(db, at[0])
        await db.breathe()
        first = first_of(db, *at, endpoint["on_dead"] if endpoint else "skip")
        if first is not None and first["state"] == "waiting":
            go.add(first["delivery_id"])
    await db.breathe()
    released = len(await _let_go(db, go, skip_locked=True))
    last_endpoint, last_key = at or (None, None)
    return [{"released": released, "last_endpoint_id": last_endpoint, "last_key": last_key}]


@function
async def _decide_deliveries_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, decision: str, tenant: str | None, endpoint_id: str | None, states: Sequence[str],
    topics: Sequence[str] | None, since: datetime | None, until: datetime | None, after: int, limit: int,
) -> list[Row]:  # fmt: skip
    if topics is not None or since is not None or until is not None:
        raise NotModelled("deciding about topics or times")
    if not {*states} <= ({"dead", "done", "dropped"} if decision == "retry" else {"dead"}):
        raise ServerError("PJ096", f"many are {decision} of other states than {states}")
    await db.breathe()

    def is_meant(d: Row) -> bool:
        return (
            d["state"] in states and tenant in {None, d["tenant"]} and endpoint_id in {None, d["endpoint_id"]}
        )

    found = db.select("webhook_deliveries", lambda d: d["delivery_id"] > after and is_meant(d))
    chosen = sorted(d["delivery_id"] for d in found)[:limit]
    await _lock_deliveries(db, chosen)
    await db.breathe()
    meant = partial(_is_among, chosen, states)
    if decision == "drop":
        changed = await db.update("webhook_deliveries", meant, lambda _: {
            "state": "dropped", "manual": False, "finished_at": db.clock(), "data": None,
        })  # fmt: skip
        await _follow_on(db, chosen)
    else:
        events = {(v["event_time"], v["event_id"]) for v in db.select("webhook_events")}
        changed = await db.update(
            "webhook_deliveries",
            lambda d: (
                meant(d)
                and (d["expires_at"] is None or d["expires_at"] > db.clock())
                and (d["data"] is not None or (d["event_time"], d["event_id"]) in events)
            ),
            lambda _: {"state": "pending", "manual": True, "next_at": db.clock(), "finished_at": None},
        )
    return [{"changed": len(changed), "last_delivery_id": chosen[-1] if chosen else None}]


def _is_among(ids: Collection[int], states: Sequence[str], d: Row) -> bool:
    return d["delivery_id"] in ids and d["state"] in states


@function
async def _forget_deliveries_v1(db: Backend, _limit: int) -> int:
    await db.breathe()
    return 0  # nothing is as old as the log keeps it


@function
async def _forget_answers_v1(db: Backend, _limit: int) -> int:
    await db.breathe()
    return 0  # nobody asks for one


@function
async def _take_turn_v1(db: Backend, chore: str, every: timedelta) -> bool:
    def again(t: Row) -> Row | None:
        now = db.clock()
        return {"taken_at": db.clock()} if t["taken_at"] <= now - every or t["taken_at"] > now else None

    return await db.insert("turns", {"chore": chore, "taken_at": db.clock()}, again) is not None
