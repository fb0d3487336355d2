"""Handling events in the transaction that appends, beside appending alone and beside SQL written by hand."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import psycopg

from journal import Database, Event, append, connect
from projections import Changes, EventEnvelope, Inline, Session, Table, handles, projection
from projections.testing import run_until_caught_up
from tests.benchmarks import workload
from tests.benchmarks.harness import Goal, Line, Sizes, compare
from tests.benchmarks.server import Server, settle

Work: TypeAlias = Callable[..., Awaitable[Any]]

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
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "TRUNCATE projections.events, projections.sources, projections.source_offsets, totals"
        )
    settle(dsn)
    began_at = time.perf_counter()
    for batch in batches:
        async with database.transaction() as session:
            await work(session, batch)
    return sum(map(len, batches)) / (time.perf_counter() - began_at)


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
                rounds = await compare(
                    {name: partial(_rate, database, dsn, batches, work) for name, work in contenders.items()},
                    sizes.rounds,
                )
                what = f"append inline, transactions of {size}"
                lines += [
                    rounds.line(what, "events/s", "inline", "append alone"),
                    rounds.line(what, "events/s", "inline", "by hand", Goal(0.6 if size == 1 else 0.45)),
                ]
    return lines
