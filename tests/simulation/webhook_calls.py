"""Calls about webhooks: endpoints, deliveries that are made, claimed, finished, taken back and let go."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from weakref import WeakKeyDictionary

from projections.webhooks import claims, deliveries, duties, fan_out
from projections.webhooks.retry_policy import RetryPolicy
from tests.simulation.calls import Call, Facts, look
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.statements import Touched, statement
from tests.simulation.postgres.storage import Row
from tests.simulation.postgres.webhook_endpoints import CREATE

TENANTS = ("t0", "t1")
ENDPOINTS = ("e0", "e1", "e2", "e3")
_ORDERS = (("none", "skip"), ("key", "skip"), ("key", "block"), ("endpoint", "skip"), ("endpoint", "block"))
_EVENTS = 40
_IDS = 36
"""Some of the events have one id."""
_KEYS = ("k0", "k1", "k2")
_HOUR = timedelta(hours=1)
_AT_ONCE = timedelta(0)
_LATER, _EARLIER = datetime(2035, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC)
_DELIVERIES = """
SELECT delivery_id, endpoint_id, event_id, order_key, state, attempts, manual, last_code,
    next_at <= clock_timestamp() AS due, data IS NOT NULL AS kept,
    lease_token IS NOT NULL AS leased, finished_at IS NOT NULL AS finished
FROM projections.webhook_deliveries
"""
_IN_ORDER = """
UPDATE projections.webhook_deliveries AS d
SET next_at = '2020-01-01T00:00:00Z'::timestamptz + make_interval(secs => 37 * d.delivery_id % 1009)
FROM (
    SELECT o.delivery_id FROM projections.webhook_deliveries AS o
    WHERE o.state = 'pending' AND o.next_at <= clock_timestamp() FOR UPDATE SKIP LOCKED
) AS o
WHERE d.delivery_id = o.delivery_id
"""
"""In which order one statement changes several, and which is due first then, PostgreSQL does not say."""
_CIRCUITS = """
SELECT endpoint_id, failures, opened, expired, blocked_until > clock_timestamp() AS blocked,
    failing_since IS NOT NULL AS failing, dead_told_at > '2000-01-01' AS told
FROM projections.webhook_circuits
"""
_ATTEMPTS = """
SELECT event_id, endpoint_id, attempt_number, status, code, took FROM projections.webhook_attempts
"""


@statement(_DELIVERIES)
async def look_at_deliveries(db: Backend) -> list[Row]:
    columns = (
        "delivery_id",
        "endpoint_id",
        "event_id",
        "order_key",
        "state",
        "attempts",
        "manual",
        "last_code",
    )
    given = {"kept": "data", "leased": "lease_token", "finished": "finished_at"}
    return [
        {
            **{name: d[name] for name in columns},
            "due": d["next_at"] <= db.clock(),
            **{name: d[column] is not None for name, column in given.items()},
        }
        for d in db.select("webhook_deliveries")
    ]


@statement(_IN_ORDER)
async def put_in_order(db: Backend) -> Touched:
    due = await db.lock_rows(
        "webhook_deliveries", lambda d: d["state"] == "pending" and d["next_at"] <= db.clock(), skip_locked=True
    )  # fmt: skip
    numbers = [d["delivery_id"] for d in due]
    await db.update(
        "webhook_deliveries",
        lambda d: d["delivery_id"] in numbers,
        lambda d: {"next_at": _EARLIER + timedelta(seconds=37 * d["delivery_id"] % 1009)},
    )
    return Touched(len(numbers))


@statement(_CIRCUITS)
async def look_at_circuits(db: Backend) -> list[Row]:
    return [
        {
            **{name: c[name] for name in ("endpoint_id", "failures", "opened", "expired")},
            "blocked": c["blocked_until"] > db.clock(), "failing": c["failing_since"] is not None,
            "told": c["dead_told_at"] > _EARLIER,
        }
        for c in db.select("webhook_circuits")
    ]  # fmt: skip


@statement(_ATTEMPTS)
async def look_at_attempts(db: Backend) -> list[Row]:
    columns = ("event_id", "endpoint_id", "attempt_number", "status", "code", "took")
    return [{name: a[name] for name in columns} for a in db.select("webhook_attempts")]


_leases: WeakKeyDictionary[Facts, list[Row]] = WeakKeyDictionary()
"""What the answers of one server have told of deliveries that were claimed."""


def leases(facts: Facts) -> list[Row]:
    """Deliveries that were claimed."""
    return _leases.setdefault(facts, [])


def create_endpoint(_facts: Facts, a: int, b: int) -> Call:
    """The endpoint with a number, in an order."""
    policy = RetryPolicy(
        schedule=(_HOUR,) * (b % 3),
        disable_after_failures=None,
        disable_after=None,
        breaker_failures=3 + b % 4,
    ).model_dump(mode="json")
    policy["breaker_pause"] |= {"first": 3600, "longest": 7200, "jitter": 0}
    ordering, on_dead = _ORDERS[(a + b) % len(_ORDERS)]
    settings = {
        "url": "https://example.com", "policy": policy, "ordering": ordering, "on_dead": on_dead,
        "max_in_flight": 1 + b % 4,
    }  # fmt: skip
    args = (ENDPOINTS[a % 4], TENANTS[a % 4 // 2], json.dumps(settings), "secret")
    return Call("create endpoint", CREATE, args)


def make_deliveries(_facts: Facts, a: int, b: int) -> Call:
    numbers = sorted({(a * 7 + n * (1 + b % 3)) % _EVENTS for n in range(1 + b % 4)})
    size = len(numbers)
    first = 2 * (b % 2)
    alone = first + a % 2 if (a + b) % 3 == 0 else None
    some = [ENDPOINTS[n] for n in (first, first + 1) if alone in {None, n}]
    pairs = [(place, one) for place in range(1, size + 1) for one in some]
    args = (
        [f"event-{n % _IDS:02}" for n in numbers], [_LATER + n * timedelta(microseconds=1) for n in numbers],
        [TENANTS[b % 2]] * size, ["t"] * size, [_KEYS[n % 3] for n in numbers],
        [[None, None, None, _LATER][(n + b) % 4] for n in numbers],
        [True] * size, ["{}"] * size, [f'{{"n": {n * 10**n}}}' for n in numbers], [place for place, _ in pairs],
        [one for _, one in pairs], ["filter_too_costly" if (a + place) % 11 == 0 else None for place, _ in pairs],
        [[None, None, None, _EARLIER, _LATER][(n + a) % 5] for n in numbers],
    )  # fmt: skip
    return Call("fan out", fan_out._FAN_OUT, args)


def claim(facts: Facts, a: int, b: int) -> Call:
    told = leases(facts)
    begin = ["", "", *ENDPOINTS, "e"][a % 7]
    held = [(one, 1 + b % 3, 600 * (a % 2)) for one in TENANTS[: b % 3]] if a % 4 == 0 else []
    args = (
        1 + b % 6, begin, [_HOUR, _HOUR, -_HOUR][b % 3], [2**23, 2**23, 700, 1300][a % 4], 1 + (a + b) % 8,
        [0.5, 1.0, 0.7][a % 3], [one for one, _, _ in held], [n for _, n, _ in held], [n for _, _, n in held], False,
    )  # fmt: skip

    def remember(rows: list[Row]) -> None:
        told.extend(dict(row) for row in rows)

    return Call("claim deliveries", claims._CLAIM, args, remember)


def order(_facts: Facts, _a: int, _b: int) -> Call:
    """Have what is due be due in an order that both servers know."""
    return look("order", _IN_ORDER)


def finish(facts: Facts, a: int, b: int) -> Call:
    told = leases(facts)
    if not told:
        return look_at(facts, a, b)
    some = {
        row["delivery_id"]: row
        for row in (told[-1 - n % min(len(told), 6)] for n in (a, a + b, b)[: 1 + b % 3])
    }
    rows = list(some.values())
    verdicts = [["done", "done", "retry", "dead", "release"][(a + n + b) % 5] for n in range(len(rows))]
    delays = [_AT_ONCE if (a + b) % 2 or one == "retry" else None for one in verdicts]
    args = (
        [row["delivery_id"] for row in rows], [row["lease_token"] - (a % 9 == 0) for row in rows], verdicts, delays,
        [_HOUR if (a + b + n) % 13 == 0 else None for n in range(len(rows))], [False] * len(rows),
        ["event_gone" if (a + n) % 7 == 0 else "500" for n in range(len(rows))], ["text"] * len(rows),
        [timedelta(milliseconds=a)] * len(rows),
    )  # fmt: skip
    return Call("finish deliveries", claims._FINISH, args)


def reap(_facts: Facts, _a: int, _b: int) -> Call:
    return Call("reap", claims._REAP)


def expire(_facts: Facts, _a: int, _b: int) -> Call:
    return Call("expire", claims._EXPIRE)


def release_waiting(_facts: Facts, a: int, b: int) -> Call:
    after = ("", "") if a % 2 else (ENDPOINTS[b % 4], _KEYS[a % 3])
    return Call("release waiting", duties._RELEASE, after)


def decide(_facts: Facts, a: int, b: int) -> Call:
    states = [["dead"], ["dead", "done"], ["dropped"]][b % 3]
    args = (
        "retry" if a % 3 else "drop", [None, *TENANTS][a % 3], [None, ENDPOINTS[b % 4]][a % 2], states, None,
        None, None, 0, 1 + a % 5,
    )  # fmt: skip
    return Call("decide", deliveries._DECIDE_MANY, args)


def look_at(_facts: Facts, a: int, b: int) -> Call:
    """What is stored."""
    return [
        look("deliveries", _DELIVERIES), look("deliveries", _DELIVERIES), look("circuits", _CIRCUITS),
        look("attempts", _ATTEMPTS), look("load endpoints", fan_out._LOAD, (list(ENDPOINTS[: 1 + b % 4]),)),
        look("endpoint versions", fan_out._VERSIONS, (list(TENANTS[: 1 + b % 2]),)),
    ][a % 6]  # fmt: skip


CALLS: list[Callable[[Facts, int, int], Call]] = [
    create_endpoint, make_deliveries, order, claim, finish, reap, expire, release_waiting, decide, look_at,
]  # fmt: skip
