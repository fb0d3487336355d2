"""
The demo from start to end: append while projections read, one at a time at last, then compare everything.

Invariant: nothing here remembers what only a process knows; whenever it is killed, the journal and the offsets
tell the next run where to go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from journal import ConnectionSettings, Database, Session, connect
from projections.demo.appender import Sample
from projections.demo.checking import EventCounts, count, differing_rows
from projections.demo.child import Child, child
from projections.demo.database import DemoDatabases, Start, alone, complete, prepare, prepare_read_side
from projections.demo.flights import data_file, fingerprint, read_flights, timeline
from projections.demo.foreign import complete_foreign, count_foreign, prepare_foreign
from projections.demo.progress import Reporter
from projections.demo.read_models import CLASSES, PROJECTIONS
from projections.demo.rebuilding import RebuildComparison, Rebuilder, Rebuilding
from projections.demo.stopping import StopRequest, together
from projections.demo.watch import Watch
from projections.demo.workers import Crew, Moves, crew, settle
from projections.running import Inline
from projections.terminal.connection import connected_journal

if TYPE_CHECKING:  # of an extra
    from projections.demo.webhooks import Arrivals, Webhooks

DEFAULT_EVENTS = 200_000
_RANGES = 2
_SINGLE = 300
"""Events that are appended one at a time, to measure the latency; at most a tenth of all."""
_LEAST_MEASURED = 1000
"""Fewer events say nothing of a rate."""
_CONNECTIONS = 4
_HANDLED_BY_WORKERS = """
SELECT coalesce(sum(r.handled), 0) FROM projections.projection_ranges AS r
INNER JOIN projections.projections AS p ON r.projection_id = p.projection_id WHERE p.name = ANY($1)
"""


@dataclass(frozen=True, slots=True)
class Options:
    """
    What to do. ``events`` None: all of the timeline; ``ranges`` None: as many as workers, or 2.

    Of the workers one is killed; with 0 there is one that nothing happens to.
    """

    events: int | None = DEFAULT_EVENTS
    ranges: int | None = None
    reset: bool = False
    workers: int = 0
    webhooks: bool = False
    inline: bool = False
    sql: bool = False
    """Whether the read models are declared in SQL."""
    system: str | None = None
    """What appends, if not this library: one of :data:`projections.demo.stores.SYSTEMS`."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds, of events that were appended one at a time."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome. Rates and latency are of this run, and None when it had nothing left of the kind to do."""

    counts: EventCounts
    differences: Sequence[str]
    append_per_s: float | None
    handle_per_s: float | None
    latency: Latency | None
    """From the start of an append's commit to the end of its handling."""
    wait: Latency | None
    """From there until whoever has appended it can read what both projections made of it."""
    wanted: int
    workers: int = 0
    moves: Moves = field(default_factory=Moves)
    rebuild: RebuildComparison | None = None
    """None when nothing was rebuilt."""
    arrivals: Arrivals | None = None
    """None without webhooks."""
    handled_by_workers: int | None = None
    """Events of both projections that no append has handled; None when they are not inline."""

    @property
    def read_models_match(self) -> bool:
        """Whether every row of the read models is what the CSV file says."""
        return not self.differences

    @property
    def good(self) -> bool:
        """Whether everything is as it must be."""
        counts = self.counts
        clean = counts.lost == counts.duplicated == 0 and counts.appended == counts.handled == self.wanted
        arrived = self.arrivals is None or self.arrivals.lost == self.arrivals.bad == 0
        return clean and arrived and self.read_models_match and self.rebuilt_matches is not False

    @property
    def rebuilt_matches(self) -> bool | None:
        """Whether every row that the batch built is what the CSV file says up to its fence; None without one."""
        return None if self.rebuild is None else not self.rebuild.differences


class Demo:
    """One run. ``report`` gets how far it is, ``stop`` ends it, ``batch`` rebuilds the read models half way."""

    def __init__(
        self,
        databases: DemoDatabases,
        options: Options,
        report: Reporter,
        stop: asyncio.Event,
        batch: Rebuilder | None = None,
    ) -> None:
        self._dsn, self._where = databases
        self._options = options
        self._ranges = options.ranges or options.workers or _RANGES
        self._report = report
        self._stopping = StopRequest(stop)
        self._path = data_file()
        self._rebuilding = None if batch is None else Rebuilding(batch, self._dsn, report, sql=options.sql)

    async def run(self) -> Result:
        """Append, project and compare; raises DemoInterrupted when it was asked to stop."""
        settings = ConnectionSettings(max_connections=_CONNECTIONS)
        async with (
            connect(self._dsn, settings) as database,
            alone(database),
            self._read_side(database, settings) as read_side,
        ):
            async with AsyncExitStack() as stack:
                feeder = "writers" if self._options.system else "appender"
                feed = await stack.enter_async_context(child(feeder, "the appending process"))
                start, events = await self._begin(database, read_side, feed)
                journal = await stack.enter_async_context(connected_journal(self._where, settings))
                workers = crew(
                    read_side, self._where, self._report, self._stopping,
                    workers=self._options.workers or 1, ranges=self._ranges,
                    inline=self._options.inline, sql=self._options.sql, journal=journal,
                )  # fmt: skip
                async with workers as members, self._sending(start) as sending:
                    measured = await self._append_and_project(database, members, feed, start, events)
            return await self._check(database, read_side, events, measured, members.moves, sending)

    @property
    def _apart(self) -> bool:
        """Whether read models are in another database than the journal."""
        return self._where.journal is not None

    @asynccontextmanager
    async def _read_side(self, database: Database, settings: ConnectionSettings) -> AsyncIterator[Database]:
        if not self._apart:
            yield database
            return
        async with connect(self._where.read_side, settings) as read_side:
            yield read_side

    async def _begin(self, database: Database, read_side: Database, feed: Child) -> tuple[Start, int]:
        self._report.step("reading the flights of 2013")
        system, reset = self._options.system, self._options.reset
        if system:
            await feed.tell(system=system, dsn=self._dsn)
        available = (await self._stopping.unless(_next(feed)))["available"]
        events = min(self._options.events or available, available)
        data = fingerprint(self._path)
        async with database.transaction() as session, AsyncExitStack() as stack:
            there = await stack.enter_async_context(read_side.transaction()) if self._apart else session
            if system:
                start = await prepare_foreign(session, there, system, data, events, reset=reset)
            else:
                start = await prepare(session, data, events, reset=reset)
                if self._apart:
                    start = start._replace(handled=await prepare_read_side(session, there))
        if start.appended:
            self._report.step(f"going on from {start.appended:,} events of a run that was interrupted")
        await settle(read_side, self._ranges)
        return start, events

    @asynccontextmanager
    async def _sending(self, start: Start) -> AsyncIterator[Webhooks | None]:
        """Webhooks, if they are asked for; at the end of the block all have arrived."""
        if not self._options.webhooks:
            yield None
            return
        from projections.demo.webhooks import webhooks  # noqa: PLC0415 - of an extra

        async with webhooks(self._dsn, self._stopping, self._report, again=start.appended > 0) as running:
            yield running

    async def _append_and_project(
        self, database: Database, members: Crew, feed: Child, start: Start, events: int
    ) -> _Measured:
        self._report.begin(events)
        if not self._apart:
            await self._set_mode(database)
        bulk = events - min(_SINGLE, events // 10)
        stops = [bulk] if self._rebuilding is None else [(bulk + 1) // 2, bulk]
        await feed.tell(
            dsn=self._dsn, read_side=self._where.read_side if self._apart else None, token=start.token,
            stops=stops, events=events, inline=self._options.inline,
        )  # fmt: skip
        watch = Watch(self._report, start.appended, start.handled)
        began_at = time.monotonic()
        seconds, _ = await members.during(
            watch,
            together(self._follow_bulk(feed, watch), members.incidents(watch, bulk - start.appended)),
        )
        waited = 0.0 if self._rebuilding is None else self._rebuilding.waited
        return _Measured(
            _rate(watch.appended - start.appended, seconds),
            None
            if self._options.inline
            else _rate(watch.appended - start.handled, watch.last_at - began_at - waited),
            *await self._one_at_a_time(members, feed, watch.appended),
        )

    async def _follow_bulk(self, feed: Child, watch: Watch) -> float:
        """Count what is appended, and rebuild meanwhile if that is asked for; returns the seconds of appending."""
        first = await _follow(feed, watch, "seconds")
        if self._rebuilding is None:
            return float(first["seconds"])
        await self._rebuilding.ready()
        rest, _ = await together(self._go_on(feed, watch, self._rebuilding), self._rebuilding.run())
        return float(first["seconds"] + rest["seconds"])

    @staticmethod
    async def _go_on(feed: Child, watch: Watch, rebuilding: Rebuilding) -> dict[str, Any]:
        """Have the other half appended while the rebuild is at work."""
        await rebuilding.begun.wait()
        await feed.tell(go=True)
        return await _follow(feed, watch, "seconds")

    async def _one_at_a_time(
        self, members: Crew, feed: Child, appended: int
    ) -> tuple[Latency | None, Latency | None]:
        watch = Watch(self._report, appended, appended)  # all are handled now
        effect_at: dict[tuple[str, int], float] = {}
        watch.effect_at = effect_at
        samples: list[Sample] = []

        async def work() -> None:
            await feed.tell(go=True)
            await _follow(feed, watch, "done", samples)

        await members.during(watch, work())
        if not self._options.inline:  # else no worker tells of them
            await watch.told_of([(s, n) for s, n, *_ in samples])
        handled = [effect_at[s, n] - at for s, n, at, _ in samples if (s, n) in effect_at]
        return _latency(handled), _latency([waited for *_, waited in samples if waited is not None])

    async def _set_mode(self, database: Database) -> None:
        async with database.session() as session:
            await Inline(*CLASSES).set_mode(session, "inline" if self._options.inline else "live")

    async def _check(  # noqa: PLR0917 - called in one place
        self,
        database: Database,
        read_side: Database,
        events: int,
        measured: _Measured,
        moves: Moves,
        sent: Webhooks | None,
    ) -> Result:
        self._report.step("comparing the read models with the CSV file")
        flights = read_flights(self._path)
        entries = timeline(flights)[:events]
        async with database.transaction() as session, AsyncExitStack() as stack:
            there = await stack.enter_async_context(read_side.transaction()) if self._apart else session
            counts = await self._count(session, there)
            differences = await differing_rows(there, flights, entries)
            rebuild = (
                None
                if self._rebuilding is None
                else await self._rebuilding.compare(session, flights, entries)
            )
            by_workers = await there.fetchval(_HANDLED_BY_WORKERS, list(PROJECTIONS))
            self._stopping.check()
            await (complete_foreign(there) if self._options.system else complete(session))
        return Result(
            counts, differences, measured.append, measured.handle, measured.latency, measured.wait, events,
            self._options.workers, moves, rebuild,
            None if sent is None else sent.compare(flights, entries),
            int(by_workers) if self._options.inline else None,
        )  # fmt: skip

    async def _count(self, session: Session, there: Session) -> EventCounts:
        if self._options.system:
            return await count_foreign(session, there, self._options.system)
        return await count(session, there)


@dataclass(frozen=True, slots=True)
class _Measured:
    append: float | None
    handle: float | None
    latency: Latency | None
    wait: Latency | None


async def _next(feed: Child) -> dict[str, Any]:
    return await anext(feed.said)


async def _follow(
    feed: Child, watch: Watch, last: str, samples: list[Sample] | None = None
) -> dict[str, Any]:
    """Count what the appender has done, until it says a last word."""
    while last not in (said := await _next(feed)):
        if samples is not None:
            samples.append(tuple(said["sample"]))
        watch.fed(said["appended"])
    return said


def _rate(events: int, seconds: float) -> float | None:
    return events / seconds if events >= _LEAST_MEASURED else None


def _latency(seconds: Sequence[float]) -> Latency | None:
    if not seconds:
        return None
    ordered = sorted(seconds)
    return Latency(*(1000 * ordered[int(share * (len(ordered) - 1) + 0.5)] for share in (0.5, 0.99)))
