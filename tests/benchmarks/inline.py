"""
Handling events in the transaction that appends, beside appending alone, SQL written by hand, and a worker.

The worker runs in the process that appends, and the time goes to when it has handled the last event.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import psycopg

from journal import Database, Event, Notifier, append, connect
from projections import Changes, EventEnvelope, Inline, RunSettings, Session, Table, handles, projection
from projections.testing import run_until_caught_up
from tests.benchmarks import workload
from tests.benchmarks.harness import Contender, Goal, Line, Sizes, compare
from tests.benchmarks.latency import worker
from tests.benchmarks.server import Server, settle

Work: TypeAlias = Callable[..., Awaitable[Any]]

_WORKER = "live: append, and a worker handles it"
_TOTALS = Table("totals", key="carrier", increment=("n", "delay"))
_CREATE = "CREATE TABLE totals (carrier text PRIMARY KEY, n bigint NOT NULL DEFAULT 0, delay bigint NOT NULL DEFAULT 0)"
_BY_HAND = """
INSERT INTO totals AS t (carrier, n, delay)
SELECT carrier, count(*), sum(delay) FROM unnest($1::text[], $2::bigint[]) AS e (carrier, delay) GROUP BY 1 ORDER BY 1
ON CONFLICT (carrier) DO UPDATE SET n = t.n + excluded.n, delay = t.delay + excluded.delay
"""


@projection("benchmark", entity_type=workload.ENTITY_TYPE)
class Totals:
    """A row for each carrier, which sources share."""

    @handles(workload.Landed)
    def landed(self, event: workload.Landed, envelope: EventEnvelope) -> Changes:
        return _TOTALS.upsert(carrier=event.carrier, n=1, delay=event.delay)


async def _by_hand(session: Session, events: Sequence[Event]) -> None:
    payloads: list[Any] = [event.payload for event in events]
    await append(session, events)
    await session.execute(_BY_HAND, [p.carrier for p in payloads], [p.delay for p in payloads])


async def _rate(database: Database, dsn: str, batches: Sequence[Sequence[Event]], work: Work) -> float:
    _empty(dsn)
    began_at = time.perf_counter()
    for batch in batches:
        async with database.transaction() as session:
            await work(session, batch)
    return sum(map(len, batches)) / (time.perf_counter() - began_at)


async def _live(database: Database, dsn: str, batches: Sequence[Sequence[Event]]) -> float:
    _empty(dsn)
    inline, notifier = Inline(Totals), Notifier(database)
    async with database.session() as session:
        await inline.set_mode(session, "live")
    async with connect(dsn) as others, worker(others, 1, RunSettings(), Totals) as seen:
        began_at = time.perf_counter()
        for batch in batches:
            async with database.transaction() as session:
                await append(session, batch)
            notifier.appended()
        await seen.until(events=sum(map(len, batches)))
        took = time.perf_counter() - began_at
    await notifier.close()
    async with database.session() as session:
        await inline.set_mode(session, "inline")
    return sum(map(len, batches)) / took


def _empty(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "TRUNCATE projections.events, projections.sources, projections.source_offsets, totals"
        )
    settle(dsn)


async def measure_inline(server: Server, sizes: Sizes) -> list[Line]:
    """Transactions of one event, and of 50."""
    lines: list[Line] = []
    inline = Inline(Totals)
    with server.database() as dsn:
        async with connect(dsn) as database:
            async with database.session() as session:
                await session.execute(_CREATE)
            await run_until_caught_up(database, Totals)
            async with database.session() as session:
                await inline.set_mode(session, "inline")
            for size, count in ((1, sizes.append_single), (50, sizes.append_small)):
                events = workload.events(0, count, sizes.sources)
                batches = [events[start : start + size] for start in range(0, count, size)]
                contenders: dict[str, Work] = {
                    "inline": inline.append,
                    "append alone": append,
                    "by hand": _by_hand,
                }
                turns: dict[str, Contender] = {
                    name: partial(_rate, database, dsn, batches, work) for name, work in contenders.items()
                }
                turns[_WORKER] = partial(_live, database, dsn, batches)
                rounds = await compare(turns, sizes.rounds)
                what = f"append inline, transactions of {size}"
                lines += [
                    rounds.line(what, "events/s", "inline", "append alone"),
                    rounds.line(what, "events/s", "inline", "by hand", Goal(0.6 if size == 1 else 0.45)),
                    rounds.line(what, "events/s", "inline", _WORKER),
                    rounds.line(f"{_WORKER}, transactions of {size}", "events/s", _WORKER, "append alone"),
                ]
    return lines
