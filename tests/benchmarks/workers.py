"""One projection on one, two and four worker processes that share its ranges."""

from __future__ import annotations

import asyncio
import time
from typing import Any, NamedTuple

import asyncpg
import psycopg

import offsets
from journal import slice_ranges
from journal.database import connect
from projections import Changes, EventEnvelope, Recovery, Session, Table, handles, projection
from tests.benchmarks import workload
from tests.benchmarks.harness import Contender, Line, Sizes, compare
from tests.benchmarks.server import Server, settle
from tests.benchmarks.worker_process import shared_out, until, workers
from tests.benchmarks.workload import ENTITY_TYPE, Landed

PROJECTION = "benchmark"
RANGES = 8
_PROCESSES = (1, 2, 4)
_MODULE = "tests.benchmarks.workers"
_READ_MODEL = """
CREATE TABLE planes (source_id text PRIMARY KEY, flights integer NOT NULL DEFAULT 0, delay bigint NOT NULL DEFAULT 0)
"""
_UPSERT = """
INSERT INTO planes AS p (source_id, flights, delay) VALUES ($1, 1, $2)
ON CONFLICT (source_id) DO UPDATE SET flights = p.flights + 1, delay = p.delay + excluded.delay
"""
_ALL_HANDLED = "SELECT sum(handled) = $1 FROM projections.projection_ranges"
_PLANES = Table("planes", key=("source_id",), increment=("flights", "delay"))


@projection(PROJECTION, entity_type=ENTITY_TYPE, batch_size=workload.BATCH, recovery=Recovery.fail())
class RowsOfSources:
    """A table handler whose ranges never write the same row."""

    @handles(Landed)
    def landed(self, event: Landed, envelope: EventEnvelope) -> Changes:
        return _PLANES.upsert(source_id=envelope.source_id, flights=1, delay=event.delay)


@projection(PROJECTION, entity_type=ENTITY_TYPE, batch_size=workload.BATCH, recovery=Recovery.fail())
class RowsOfAll:
    """A table handler whose ranges all write the same rows, one for each carrier and day."""

    @handles(Landed)
    def landed(self, event: Landed, envelope: EventEnvelope) -> Changes:
        return workload.DELAYS.upsert(
            carrier=event.carrier, day=event.day, flights=1, delay=event.delay, worst=event.delay
        )


@projection(PROJECTION, entity_type=ENTITY_TYPE, batch_size=workload.BATCH, recovery=Recovery.fail())
class Statements:
    """A statement for each event; ranges never write the same row."""

    @handles(Landed)
    async def landed(self, session: Session, event: Landed, envelope: EventEnvelope) -> None:
        await session.execute(_UPSERT, envelope.source_id, event.delay)


class _Way(NamedTuple):
    """A projection, the table that it writes, and what to call it."""

    definition: type
    table: str
    what: str


class _Work:
    """One journal, and processes that project it."""

    def __init__(self, dsn: str, connection: asyncpg.Connection[Any], count: int, sources: int) -> None:
        self._dsn = dsn
        self._connection = connection
        self._count = count
        self._expected = workload.expected(count, sources)

    def contender(self, way: _Way, processes: int) -> Contender:
        async def measured() -> float:
            await self._begin(way.table)
            async with workers(self._dsn, f"{_MODULE}:{way.definition.__name__}", processes, RANGES):
                await shared_out(self._connection, processes, RANGES)
                took = await self._handle_all()
            found = await self._connection.fetchrow(f"SELECT sum(flights), sum(delay) FROM {way.table}")
            if tuple(found) != self._expected:
                raise AssertionError(f"{way.table} sums up to {tuple(found)}, not {self._expected}")
            return self._count / took

        return measured

    async def _begin(self, table: str) -> None:
        """Empty all but the journal, and have the projection wait until its processes are there."""
        await self._connection.execute(
            f"TRUNCATE projections.projections, projections.source_offsets, {table} CASCADE"
        )
        async with connect(self._dsn) as database, database.session() as session:
            await offsets.register(session, PROJECTION, ENTITY_TYPE, slice_ranges(RANGES))
            await offsets.set_paused(session, PROJECTION, paused=True)
        await asyncio.to_thread(settle, self._dsn)

    async def _handle_all(self) -> float:
        begun = time.perf_counter()
        async with connect(self._dsn) as database, database.session() as session:
            await offsets.set_paused(session, PROJECTION, paused=False)
        await until(self._connection, _ALL_HANDLED, self._count)
        return time.perf_counter() - begun


async def _compare(server: Server, sizes: Sizes, way: _Way, count: int) -> list[Line]:
    with server.database() as dsn:
        with psycopg.connect(dsn) as connection:
            connection.execute(_READ_MODEL)
        await asyncio.to_thread(workload.fill, dsn, count, sizes.sources)
        watching = await asyncpg.connect(dsn)
        work = _Work(dsn, watching, count, sizes.sources)
        rounds = await compare({_name(n): work.contender(way, n) for n in _PROCESSES}, sizes.worker_rounds)
        await watching.close()
    one, *more = map(_name, _PROCESSES)
    return [rounds.line(f"{way.what}, {name}", "events/s", name, one) for name in more]


def _name(processes: int) -> str:
    return "1 process" if processes == 1 else f"{processes} processes"


async def measure_workers(server: Server, sizes: Sizes) -> list[Line]:
    """From resuming a projection, which its processes notice within a heartbeat, to its last commit."""
    return [
        *await _compare(
            server,
            sizes,
            _Way(RowsOfSources, "planes", "table handler, rows of one range each"),
            sizes.shared,
        ),
        *await _compare(
            server, sizes, _Way(RowsOfAll, "delays", "table handler, rows of all ranges"), sizes.shared
        ),
        *await _compare(
            server, sizes, _Way(Statements, "planes", "a statement per event"), sizes.shared // 5
        ),
    ]
