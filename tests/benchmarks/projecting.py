"""Exactly-once projections, beside hand-written loops without any guarantee and beside the peer's runner."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, nullcontext
from datetime import date, timedelta
from typing import Any

import asyncpg

from journal import BEGINNING
from journal.database import connect
from projections import RunSettings, run
from tests.benchmarks import workload
from tests.benchmarks.harness import Contender, Goal, Line, Sizes, compare
from tests.benchmarks.peer import Peer
from tests.benchmarks.server import Server, settle
from tests.benchmarks.workload import Landed

_PAGE = """
SELECT db_timestamp, slice, source_id, seq_nr, event_type, payload
FROM projections.events
WHERE entity_type = $1
AND db_timestamp >= $2 AND (db_timestamp, slice, source_id, seq_nr) > ($2, $3::smallint, $4, $5)
ORDER BY entity_type, db_timestamp, slice, source_id, seq_nr LIMIT $6
"""

Decode = Callable[[str], workload.Landing]
Write = Callable[[Any, Sequence[workload.Landing]], Awaitable[None]]


def _checked(payload: str) -> workload.Landing:
    event = Landed.model_validate_json(payload)
    return event.carrier, event.day, event.delay


def _unchecked(payload: str) -> workload.Landing:
    event = json.loads(payload)
    return event["carrier"], date.fromisoformat(event["day"]), event["delay"]


async def _write_each(connection: Any, landings: Sequence[workload.Landing]) -> None:
    async with connection.transaction():
        for landing in landings:
            await connection.execute(workload.UPSERT_ONE, *landing)


async def _by_hand(connection: Any, decode: Decode, write: Write) -> None:
    """Read, decode, write; remember nothing. After a crash it would not know where it stood."""
    after: tuple[Any, ...] = (BEGINNING, -1, "", 0)
    while page := await connection.fetch(_PAGE, workload.ENTITY_TYPE, *after, workload.BATCH):
        await write(connection, [decode(row["payload"]) for row in page if row["event_type"] == "Landed"])
        after = tuple(page[-1].values())[:4]


@contextmanager
def _as_python_collects() -> Iterator[None]:
    """The garbage collector as it is by default: what a worker process sets, a loop by hand does not have."""
    ours = gc.get_threshold()
    gc.unfreeze()
    gc.set_threshold(700, 10, 10)
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*ours)


class _Work:
    """One journal, and every way to project it."""

    def __init__(self, dsn: str, connection: Any, count: int, sources: int) -> None:
        self._dsn = dsn
        self._connection = connection
        self._count = count
        self._expected = workload.expected(count, sources)

    def contender(
        self, work: Callable[[], Awaitable[None]], table: str = "delays", *, as_worker: bool = True
    ) -> Contender:
        async def measured() -> float:
            await self._connection.execute(
                "TRUNCATE projections.projections, projections.source_offsets CASCADE"
            )
            await self._connection.execute(f"DROP TABLE IF EXISTS {_IN_SQL}; TRUNCATE delays")
            await asyncio.to_thread(settle, self._dsn)
            with nullcontext() if as_worker else _as_python_collects():
                begun = time.perf_counter()
                await work()
                took = time.perf_counter() - begun
            workload.check(self._dsn, self._expected, table)
            return self._count / took

        return measured

    def by_hand(self, decode: Decode, write: Write, *, as_worker: bool = False) -> Contender:
        return self.contender(lambda: _by_hand(self._connection, decode, write), as_worker=as_worker)


def _by_peer(dsn: str, peer: Peer, wanted: tuple[int, int]) -> Contender:
    async def measured() -> float:
        await asyncio.to_thread(settle, dsn)
        rate = await asyncio.to_thread(peer.projection_rate, wanted[0])
        workload.check(dsn, wanted)
        return rate

    return measured


_SOON_OLD = RunSettings(retention=timedelta(minutes=1))
"""The events are an hour old: of them no offset is kept."""
_IN_SQL = "delays_in_sql"
_HAND = "by hand, no guarantee"
_AS_WORKER = "by hand, garbage collected as in a worker"
_UNCHECKED = "by hand, payload not checked"
_PEER = "eventsourcing"


def _append(peer: Peer, sizes: Sizes) -> None:
    for start in range(0, sizes.peer, 500):
        peer.append([peer.event(n, sizes.sources) for n in range(start, min(start + 500, sizes.peer))])


async def measure_projection(server: Server, sizes: Sizes) -> list[Line]:
    """A table handler and a statement per event, one worker, its start and stop included."""
    with server.database() as dsn:
        await asyncio.to_thread(workload.fill, dsn, sizes.projected, sizes.sources)
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(connect(dsn))
            connection = await asyncpg.connect(dsn)
            stack.push_async_callback(connection.close)
            peer = stack.enter_context(Peer(dsn))
            await asyncio.to_thread(_append, peer, sizes)
            work = _Work(dsn, connection, sizes.projected, sizes.sources)
            rounds = await compare(
                {
                    "table": work.contender(lambda: run(database, workload.ByTable, until_caught_up=True)),
                    "sql": work.contender(
                        lambda: run(database, workload.BySql, until_caught_up=True), _IN_SQL
                    ),
                    _HAND: work.by_hand(_checked, workload.write_folded),
                    _UNCHECKED: work.by_hand(_unchecked, workload.write_folded),
                    "statement": work.contender(
                        lambda: run(database, workload.ByStatement, until_caught_up=True)
                    ),
                    "queued": work.contender(
                        lambda: run(database, workload.ByQueuedStatement, until_caught_up=True)
                    ),
                    "statements " + _HAND: work.by_hand(_checked, _write_each),
                    _PEER: _by_peer(dsn, peer, workload.expected(sizes.peer, sizes.sources)),
                },
                sizes.rounds,
            )
    table, statement = "exactly once, table handler", "exactly once, a statement per event"
    return [
        rounds.line(table, "events/s", "table", _HAND, Goal(0.6)),
        rounds.line("exactly once, read model in SQL", "events/s", "sql", _HAND, Goal(1.0)),
        rounds.line(table, "events/s", "table", _UNCHECKED),
        rounds.line(table, "events/s", "table", _PEER, Goal(20)),
        rounds.line(statement, "events/s", "statement", "statements " + _HAND),
        rounds.line(statement, "events/s", "statement", _PEER, Goal(7)),
        rounds.line(statement + ", queued", "events/s", "queued", "statements " + _HAND, Goal(1.5)),
        rounds.line(statement + ", queued", "events/s", "queued", _PEER, Goal(10)),
        *await _measure_sources(server, sizes, sizes.few_sources, 0.7),
        *await _measure_sources(server, sizes, sizes.sources, 0.6),
        *await _measure_sources(server, sizes, sizes.many_sources, 0.5),
        *await _measure_sources(server, sizes, sizes.most_sources, 0.5),
    ]


async def _measure_sources(server: Server, sizes: Sizes, sources: int, old: float) -> list[Line]:
    """Where a batch holds several events of each source, or one: fewer offsets to store, or more; of old ones none."""
    events = max(sizes.projected, sources)
    with server.database() as dsn:
        await asyncio.to_thread(workload.fill, dsn, events, sources)
        async with connect(dsn) as database:
            connection = await asyncpg.connect(dsn)
            work = _Work(dsn, connection, events, sources)
            rounds = await compare(
                {
                    "table": work.contender(lambda: run(database, workload.ByTable, until_caught_up=True)),
                    "old": work.contender(
                        lambda: run(database, workload.ByTable, until_caught_up=True, settings=_SOON_OLD)
                    ),
                    "sql": work.contender(
                        lambda: run(database, workload.BySql, until_caught_up=True), _IN_SQL
                    ),
                    _HAND: work.by_hand(_checked, workload.write_folded),
                    _AS_WORKER: work.by_hand(_checked, workload.write_folded, as_worker=True),
                },
                sizes.rounds,
            )
            await connection.close()
    return [
        rounds.line(f"exactly once, {what}, {sources:,} sources", "events/s", contender, beside, reach)
        for what, contender, goal in (
            ("table handler", "table", None),
            ("table handler, old events", "old", Goal(old)),
            ("read model in SQL", "sql", Goal(1.0)),
        )
        for beside, reach in ((_HAND, goal), (_AS_WORKER, None))
    ]
