"""
Projections over a journal of Akka Persistence R2DBC, beside Akka's own on the JVM: the same journal, fold, and server.

Akka's are those of Akka Projection R2DBC, exactly once and grouped. The virtual machine has started and is warm before
anything is measured.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import zip_longest
from pathlib import Path
from statistics import median

import asyncpg
import psycopg

import offsets
from journal import connect, slice_ranges
from projections import RunSettings, run
from tests.benchmarks import akka_journal, workload
from tests.benchmarks.akka_journal import (
    Akka,
    ByEvent,
    ByEventTogether,
    ByGroup,
    ByTable,
    journal_of,
    until_projected,
)
from tests.benchmarks.harness import Contender, Goal, Line, Sizes, compare
from tests.benchmarks.idle import transactions
from tests.benchmarks.latency import percentile, spacing, worker
from tests.benchmarks.server import Server, settle
from tests.benchmarks.worker_process import shared_out, workers
from tests.fixtures.java import JavaProgram, has_java

_EMPTY = """
TRUNCATE projections.projections, projections.source_offsets CASCADE;
TRUNCATE akka_projection_timestamp_offset_store, akka_projection_offset_store, delays;
"""
_TABLE, _GROUP, _STATEMENT = "a table handler", "a group handler", "a statement per event"
_TOGETHER = f"{_STATEMENT}, sent together"
_OURS = {_TABLE: ByTable, _GROUP: ByGroup, _STATEMENT: ByEvent, _TOGETHER: ByEventTogether}
_ONE, _GROUPED = "exactly-once", "grouped"
_INDEXED, _PROCESSES, _RANGES = ", suggested index", ", 2 processes", f", {akka_journal.RANGES} ranges"


class _Work:
    """One journal, and every way to project it."""

    def __init__(self, dsn: str, running: Akka, count: int, sources: int) -> None:
        self._dsn, self._akka = dsn, running
        self._expected = workload.expected(count, sources)
        self.firsts: dict[str, list[float]] = {}
        """Of each contender, the milliseconds until the first events were handled."""

    def _empty(self) -> None:
        with psycopg.connect(self._dsn) as connection:
            connection.execute(_EMPTY)
        settle(self._dsn)
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE) event_journal")

    async def _measured(self, name: str, begun: float) -> float:
        first, last = await until_projected(self._dsn, self._expected[0])
        self.firsts.setdefault(name, []).append((first - begun) * 1000)
        workload.check(self._dsn, self._expected)
        return self._expected[0] / (last - begun)

    def ours(self, name: str, ranges: int = 1) -> Contender:
        """One of ours, one worker; its start is counted, its stop is not."""

        async def measured() -> float:
            await asyncio.to_thread(self._empty)
            stop = asyncio.Event()
            async with connect(self._dsn) as database, journal_of(self._dsn) as journal:
                begun = time.monotonic()
                running = asyncio.create_task(
                    run(database, _OURS[name], ranges=ranges, journal=journal, stop=stop)
                )
                try:
                    return await self._measured(name, begun)
                finally:
                    stop.set()
                    await running

        return measured

    def processes(self, number: int) -> Contender:
        """A table handler in worker processes, from resuming them when each has its range; the start is not counted."""
        options = ("tests.benchmarks.akka_journal:ByTable", number, number, f"--journal={akka_journal.NAME}")

        async def measured() -> float:
            await asyncio.to_thread(self._empty)
            watching = await asyncpg.connect(self._dsn)
            async with connect(self._dsn) as database, database.session() as session:
                ranges = slice_ranges(number)
                await offsets.register(
                    session, "by-table", akka_journal.ENTITY_TYPE, ranges, journal=akka_journal.NAME
                )
                await offsets.set_paused(session, "by-table", paused=True)
                async with workers(self._dsn, *options):
                    await shared_out(watching, number, number)
                    begun = time.monotonic()
                    await offsets.set_paused(session, "by-table", paused=False)
                    rate = await self._measured(f"{number} processes", begun)
            await watching.close()
            return rate

        return measured

    def indexed(self, name: str) -> Contender:
        """The same, with the index that ``table_log`` suggests."""
        ours = self.ours(name)

        async def measured() -> float:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                connection.execute(akka_journal.SUGGESTED_INDEX)
                try:
                    return await ours()
                finally:
                    connection.execute(f"DROP INDEX {akka_journal.INDEX}")

        return measured

    def theirs(self, kind: str) -> Contender:
        """One of Akka's; the start of its instances is counted, that of the virtual machine is not."""

        async def measured() -> float:
            await asyncio.to_thread(self._empty)
            begun = time.monotonic()
            self._akka.project(kind)
            rate = await self._measured(kind, begun)
            await self._akka.stop()
            return rate

        return measured


@asynccontextmanager
async def _work(
    server: Server, program: JavaProgram, sizes: Sizes, count: int, kind: str
) -> AsyncIterator[_Work]:
    """A journal of so many events, and a virtual machine that is warm for a kind of projections."""
    with server.database() as dsn:
        akka_journal.create(dsn)
        akka_journal.fill(dsn, sizes.akka_warm_up, sizes.sources, akka_journal.WARM_UP)
        akka_journal.fill(dsn, count, sizes.sources)
        async with akka_journal.akka(program, dsn) as running:
            running.project(kind, akka_journal.WARM_UP)
            await until_projected(dsn, sizes.akka_warm_up)
            await running.stop()
            await akka_journal.attach_journal(dsn)
            yield _Work(dsn, running, count, sizes.sources)


async def _measure_each(server: Server, program: JavaProgram, sizes: Sizes) -> list[Line]:
    """Beside Akka's projection of one event at a time."""
    async with _work(server, program, sizes, sizes.akka_each, _ONE) as work:
        ours = {
            _STATEMENT: work.ours(_STATEMENT),
            _STATEMENT + _RANGES: work.ours(_STATEMENT, akka_journal.RANGES),
            _TOGETHER: work.ours(_TOGETHER),
            _TABLE: work.ours(_TABLE),
        }
        rounds = await compare({**ours, _ONE: work.theirs(_ONE)}, sizes.akka_rounds)
    what, goals = f"{sizes.akka_each:,} events of Akka", dict.fromkeys((_STATEMENT, _TOGETHER), Goal(5.0))
    return [rounds.line(f"{what}, {name}", "events/s", name, _ONE, goals.get(name)) for name in ours]


async def _measure_backlog(server: Server, program: JavaProgram, sizes: Sizes) -> list[Line]:
    """Beside Akka's projection of groups: a long backlog, and its first batch."""
    async with _work(server, program, sizes, sizes.akka_backlog, _GROUPED) as work:
        ours = {
            _TABLE: work.ours(_TABLE),
            _TABLE + _RANGES: work.ours(_TABLE, akka_journal.RANGES),
            _GROUP: work.ours(_GROUP),
            _TABLE + _INDEXED: work.indexed(_TABLE),
            _TABLE + _PROCESSES: work.processes(2),
        }
        rounds = await compare({**ours, _GROUPED: work.theirs(_GROUPED)}, sizes.akka_rounds)
        firsts = {name: median(values) for name, values in work.firsts.items()}
    what = f"{sizes.akka_backlog:,} events of Akka"
    return [
        *(rounds.line(f"{what}, {name}", "events/s", name, _GROUPED, Goal(3.0)) for name in ours),
        Line(
            f"{what}, first batch", firsts[_TABLE], "ms", _GROUPED, firsts[_GROUPED],
            firsts[_TABLE] / firsts[_GROUPED],
        ),
    ]  # fmt: skip


async def _persist(running: Akka, count: int) -> None:
    """Have entities of Akka persist landings at random times, and wait until they have."""
    chance, before = random.Random(1), len(running.persisted)
    for n in range(before, before + count):
        await asyncio.sleep(spacing(chance))
        running.say(f"persist {n}")
    await running.until(persisted=before + count)


def _latencies(
    persisted: dict[tuple[str, int], float], handled: dict[tuple[str, int], float], warm_up: int
) -> list[float]:
    """Milliseconds from persisted to handled, of what was persisted last; both by the clock of the kernel."""
    return [max(0.0, handled[key] - at) * 1000 for key, at in list(persisted.items())[warm_up:]]


async def _their_latencies(
    server: Server, program: JavaProgram, sizes: Sizes, query: tuple[str, str]
) -> list[float]:
    with server.database() as dsn:
        akka_journal.create(dsn)
        async with akka_journal.akka(program, dsn, query) as running:
            running.say("tell")
            running.project(_ONE)
            await _persist(running, sizes.akka_latencies_warm_up)
            await _persist(running, sizes.akka_latencies)
            await running.until(handled=len(running.persisted))
    return _latencies(running.persisted, running.handled, sizes.akka_latencies_warm_up)


async def _our_latencies(server: Server, program: JavaProgram, sizes: Sizes, *, indexed: bool) -> list[float]:
    with server.database() as dsn:
        akka_journal.create(dsn)
        if indexed:
            with psycopg.connect(dsn) as connection:
                connection.execute(akka_journal.SUGGESTED_INDEX)
        async with (
            akka_journal.akka(program, dsn) as running,
            connect(dsn) as database,
            journal_of(dsn) as journal,
            worker(database, 1, RunSettings(listen=False), ByEvent, journal) as seen,
        ):
            await _persist(running, sizes.akka_latencies_warm_up)
            await _persist(running, sizes.akka_latencies)
            await seen.until(events=len(running.persisted))
    return _latencies(running.persisted, seen.at, sizes.akka_latencies_warm_up)


async def _measure_latency(server: Server, program: JavaProgram, sizes: Sizes) -> list[Line]:
    """Entities of Akka persist; ours polls, and Akka's does as often, and as it does by default."""
    quick = await _their_latencies(server, program, sizes, akka_journal.QUICK)
    lines = []
    for what, latencies, goals in (
        ("", await _our_latencies(server, program, sizes, indexed=False), (8.0, 25.0)),
        (_INDEXED, await _our_latencies(server, program, sizes, indexed=True), (8.0, 25.0)),
        (", Akka by default", await _their_latencies(server, program, sizes, akka_journal.DEFAULTS), ()),
    ):
        for percent, limit in zip_longest((50, 99), goals):
            value, other = percentile(latencies, percent), percentile(quick, percent)
            goal = Goal(limit, at_most=True, absolute=True) if limit else None
            name = f"persisted to handled{what}, p{percent}"
            lines.append(Line(name, value, "ms", "Akka, asking as often", other, value / other, goal))
    return lines


async def _idle_rate(dsn: str, sizes: Sizes) -> float:
    """Transactions in a second, as the database counts them."""
    await asyncio.sleep(sizes.idle_settle)
    before, begun = await asyncio.to_thread(transactions, dsn), time.monotonic()
    await asyncio.sleep(sizes.idle_seconds)
    after, ended = await asyncio.to_thread(transactions, dsn), time.monotonic()
    return max(0.0, after - before - 1) / (ended - begun)  # the first look is counted by the second


async def _measure_idle(server: Server, program: JavaProgram, sizes: Sizes) -> list[Line]:
    """A projection that has handled everything."""
    count = min(1_000, sizes.akka_each)
    rates = []
    with server.database() as dsn:
        akka_journal.create(dsn)
        akka_journal.fill(dsn, count, sizes.sources)
        async with akka_journal.akka(program, dsn) as running:
            running.project(_ONE)
            await until_projected(dsn, count)
            rates.append(await _idle_rate(dsn, sizes))
        async with (
            connect(dsn) as database,
            journal_of(dsn) as journal,
            worker(database, akka_journal.RANGES, RunSettings(), ByEvent, journal) as seen,
        ):
            await seen.until(events=count)
            rates.append(await _idle_rate(dsn, sizes))
    theirs, ours = rates
    what = f"idle projection, {akka_journal.RANGES} ranges"
    goal = Goal(20.0, at_most=True, absolute=True)
    return [Line(what, ours, "queries/s", "Akka", theirs, ours / theirs if theirs else None, goal)]


async def measure_akka(server: Server, sizes: Sizes) -> list[Line]:
    """Rates one event at a time and of a long backlog, latency, and what is asked while nothing happens."""
    if not has_java:
        print("left out: it needs Maven and a JDK ...", end=" ", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as directory:
        program = await asyncio.to_thread(JavaProgram, "akka", Path(directory))
        return [
            line
            for measure in (_measure_each, _measure_backlog, _measure_latency, _measure_idle)
            for line in await measure(server, program, sizes)
        ]
