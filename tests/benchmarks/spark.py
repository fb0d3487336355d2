"""
Batch projections: reading the journal, folding it and a whole rebuild, on Spark and in processes of this machine.

They stand beside what the same database gives for the bare work: COPY to nowhere for reading; for folding, plain
processes that do the same with the same handlers and remember nothing, and a loop written by hand.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from multiprocessing import get_context

import psycopg

from journal import ConnectionSettings, EntityTypes, SliceRange, connect, decoder, slice_ranges
from projections import Changes, EventEnvelope, Table, handles, projection, run
from projections.defining.folding import Batch
from projections.running.table_writer import TableWriter
from spark_projections import RebuildOptions, rebuild
from spark_projections.engine.parallel import end_with_parent
from spark_projections.engine.session import spark_running
from spark_projections.reading.batches import Reading, read_batches, statement
from spark_projections.reading.envelopes import envelopes
from spark_projections.source.source import read_journal
from tests.benchmarks import workload
from tests.benchmarks.harness import Contender, Goal, Line, Sizes, compare
from tests.benchmarks.server import Server, forget_projections, settle
from tests.benchmarks.workload import Landed

PLANES = Table(
    "planes", key="tail", source="tail", set="carrier", increment=("flights", "delay"), maximum="worst"
)
CREATE = """
CREATE TABLE planes (
    tail text COLLATE "C" PRIMARY KEY, carrier text, flights bigint NOT NULL DEFAULT 0, delay bigint NOT NULL DEFAULT 0,
    worst integer
)
"""
PAGE = 20_000
PROCESSES = 2
_MANY = 1_000_000


@projection("planes", entity_type=workload.ENTITY_TYPE)
class Planes:
    """What each plane has flown: a row for each source."""

    @handles(Landed)
    def landed(self, event: Landed, envelope: EventEnvelope) -> Changes:
        """Count it."""
        return PLANES.upsert(
            tail=envelope.source_id, carrier=event.carrier, flights=1, delay=event.delay, worst=event.delay
        )


def copy_nowhere(dsn: str, slices: SliceRange) -> None:
    """What the database can send, with nobody looking at it."""
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        query = f"COPY ({statement(Reading(EntityTypes((workload.ENTITY_TYPE,)), slices))}) TO STDOUT (FORMAT binary)"
        with cursor.copy(query.encode()) as copy:
            for _ in copy:
                pass


def read_only(dsn: str, slices: SliceRange) -> None:
    """What the fold reads, in its order."""
    for _ in read_batches(dsn, Reading(EntityTypes((workload.ENTITY_TYPE,)), slices, order="source")):
        pass


def fold_plain(dsn: str, slices: SliceRange) -> None:
    """The same handlers and the same writes, and nothing that a task would need to be repeated."""
    asyncio.run(_fold_plain(dsn, slices))


async def _fold_plain(dsn: str, slices: SliceRange) -> None:
    decode, handler, writer = decoder(Landed), Planes().landed, TableWriter()
    async with connect(dsn, ConnectionSettings(max_connections=1)) as database:
        with closing(
            read_batches(dsn, Reading(EntityTypes((workload.ENTITY_TYPE,)), slices, order="source"))
        ) as batches:  # type: ignore[type-var]
            for arrow in batches:
                for start in range(0, arrow.num_rows, PAGE):
                    batch = Batch()
                    for envelope in envelopes(arrow.slice(start, PAGE)):
                        batch.collect(envelope.source_id, handler(decode(envelope), envelope))
                    async with database.transaction() as session:
                        await writer.write(session, batch)


def fold_by_hand(dsn: str, slices: SliceRange) -> None:
    """A loop for this one read model: nothing is checked, and rows go in by COPY."""
    columns = ("source_id", "payload")
    rows: dict[str, list[object]] = {}
    reading = Reading(EntityTypes((workload.ENTITY_TYPE,)), slices, order="source", columns=columns)
    for batch in read_batches(dsn, reading):
        for source_id, payload in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            event = json.loads(payload)
            row = rows.get(source_id)
            if row is None:
                rows[source_id] = [event["carrier"], 1, event["delay"], event["delay"]]
            else:
                row[0] = event["carrier"]
                row[1] += 1
                row[2] += event["delay"]
                row[3] = max(row[3], event["delay"])
    into = "COPY planes (tail, carrier, flights, delay, worst) FROM STDIN"
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor, cursor.copy(into) as copy:
        for source_id, row in rows.items():
            copy.write_row((source_id, *row))


class _Work:
    """A journal, and every way to go through it."""

    def __init__(self, dsn: str, count: int, sources: int, pool: ProcessPoolExecutor) -> None:
        self._dsn, self._count, self._pool = dsn, count, pool
        self._expected = workload.expected(count, sources)

    def in_processes(self, function: Callable[[str, SliceRange], None], number: int) -> Contender:
        async def work() -> None:
            loop = asyncio.get_running_loop()
            parts = [loop.run_in_executor(self._pool, function, self._dsn, r) for r in slice_ranges(number)]
            await asyncio.gather(*parts)

        return self._measured(work)

    def by_source(self, spark: object, splits: int) -> Contender:
        async def work() -> None:
            frame = read_journal(spark, entity_type=workload.ENTITY_TYPE, dsn=self._dsn, splits=splits)  # type: ignore[arg-type]
            await asyncio.to_thread(frame.write.format("noop").mode("overwrite").save)

        return self._measured(work)

    def rebuilt(self, context: object, splits: int) -> Contender:
        async def work() -> None:
            async with connect(self._dsn, ConnectionSettings(max_connections=2)) as database:
                await rebuild(database, self._dsn, Planes, RebuildOptions(splits=splits), spark=context)

        return self._measured(work, check=True)

    def live(self) -> Contender:
        async def work() -> None:
            async with connect(self._dsn) as database:
                await run(database, Planes, ranges=1, until_caught_up=True)

        return self._measured(work, check=True)

    def folded(self, function: Callable[[str, SliceRange], None], number: int) -> Contender:
        work = self.in_processes(function, number)

        async def measured() -> float:
            rate = await work()
            self._check()
            return rate

        return measured

    def _measured(self, work: Callable[[], object], *, check: bool = False) -> Contender:
        async def measured() -> float:
            self._clear()
            await asyncio.to_thread(settle, self._dsn)
            begun = time.perf_counter()
            await work()  # type: ignore[misc]
            took = time.perf_counter() - begun
            if check:
                self._check()
            return self._count / took

        return measured

    def _clear(self) -> None:
        with psycopg.connect(self._dsn) as connection:
            forget_projections(connection)
            connection.execute("TRUNCATE planes")

    def _check(self) -> None:
        with psycopg.connect(self._dsn) as connection:
            found = connection.execute(
                "SELECT sum(flights)::bigint, sum(delay)::bigint FROM planes"
            ).fetchone()
        if found != self._expected:
            raise RuntimeError(f"the read model holds {found}, not {self._expected}")


_COPY = f"COPY to nowhere, {PROCESSES} processes"
_PLAIN = f"the same fold in {PROCESSES} plain processes"
_PLAIN_1 = "the same fold in 1 plain process"
_HAND = f"by hand, {PROCESSES} processes"
_LIVE = "live, 1 worker"


async def measure_spark(server: Server, sizes: Sizes) -> list[Line]:
    """Each at every size, in one session of Spark."""
    with spark_running(f"local[{PROCESSES},4]") as spark, _pool() as pool:
        lines: list[Line] = []
        for count in sizes.batch:
            lines += await _measure(server, count, sizes, spark, pool)
        return lines


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(PROCESSES, get_context("spawn"), end_with_parent)


async def _measure(
    server: Server, count: int, sizes: Sizes, spark: object, pool: ProcessPoolExecutor
) -> list[Line]:
    rounds = sizes.batch_rounds if count <= _MANY else 1  # which take minutes
    with server.database() as dsn:
        workload.fill(dsn, count, sizes.batch_sources)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(CREATE)
            connection.execute("VACUUM ANALYZE projections.events")
        work = _Work(dsn, count, sizes.batch_sources, pool)
        context = spark.sparkContext  # type: ignore[attr-defined]
        splits = [PROCESSES * per_core for per_core in (1, 2, 4)]
        sourced = {f"data source, {n} splits": work.by_source(spark, n) for n in splits}
        on_spark = {f"rebuild on Spark, {n} splits": work.rebuilt(context, n) for n in splits}
        local = {f"rebuild in {PROCESSES} processes, {n} splits": work.rebuilt(None, n) for n in splits[-1:]}
        reads = await compare(
            {
                _COPY: work.in_processes(copy_nowhere, PROCESSES),
                "ADBC in the order of sources": work.in_processes(read_only, PROCESSES),
                **sourced,
            },
            rounds,
        )
        folds = await compare(
            {
                _PLAIN: work.folded(fold_plain, PROCESSES),
                _PLAIN_1: work.folded(partial(fold_plain), 1),
                _HAND: work.folded(fold_by_hand, PROCESSES),
                _LIVE: work.live(),
                **local,
                **on_spark,
            },
            rounds,
        )
    title = f"{count:,} events: "
    lines = [reads.line(title + name, "events/s", name, _COPY) for name in list(reads.measures)[1:]]
    for name in folds.measures:
        if name == _PLAIN:
            continue
        goal = Goal(0.9) if name == f"rebuild on Spark, {splits[1]} splits" else None
        lines.append(folds.line(title + name, "events/s", name, _PLAIN, goal))
    lines += [folds.line(title + name, "events/s", name, _LIVE) for name in on_spark]
    return lines
