"""
The demo from start to end: append while projections read, one at a time at last, then compare everything.

Invariant: nothing here remembers what only a process knows; whenever it is killed, the journal and the offsets
tell the next run where to go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from journal import ConnectionSettings, Database, EventEnvelope, SliceRange, connect
from projections.demo.checking import Counts, count, differing_rows
from projections.demo.database import Start, alone, complete, prepare
from projections.demo.errors import DemoInterrupted
from projections.demo.feeding import Feeding, feeding
from projections.demo.flights import data_file, fingerprint, read_flights, timeline
from projections.demo.progress import Reporter
from projections.demo.read_models import PROJECTIONS
from projections.observer import StatusObserver
from projections.runner import run as run_projections

DEFAULT_EVENTS = 200_000
_SINGLE = 300
"""Events that are appended one at a time, to measure the latency; at most a tenth of all."""
_LEAST_MEASURED = 1000
"""Fewer events say nothing of a rate."""
_OTHER_CONNECTIONS = 8  # heartbeats, polls, the demo's own

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """
    What to do.

    Args:
        events: How many events of the timeline; None for all.
        ranges: Slice ranges of each projection, run at the same time.
        reset: Begin anew, whatever an earlier run has left.
    """

    events: int | None = DEFAULT_EVENTS
    ranges: int = 2
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from the start of an append's commit to the end of its handling, one event at a time."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Result:
    """What came of it. Rates and latency are of this run, and None when it had nothing left of the kind to do."""

    counts: Counts
    differences: Sequence[str]
    append_per_s: float | None
    handle_per_s: float | None
    latency: Latency | None
    wanted: int

    @property
    def read_models_match(self) -> bool:
        """Whether every row of the read models is what the CSV file says."""
        return not self.differences

    @property
    def good(self) -> bool:
        """Whether everything is as it must be."""
        counts = self.counts
        clean = counts.lost == counts.duplicated == 0 and counts.appended == counts.handled == self.wanted
        return clean and self.read_models_match


class _Watch(StatusObserver):
    """Counts what is appended and handled, and remembers when."""

    def __init__(self, report: Reporter, start: Start, ranges: int) -> None:
        self._report = report
        self._awaited = ranges * len(PROJECTIONS)
        self.appended = start.appended
        self.effects = start.handled
        self.last_at = 0.0
        self.effect_at: dict[tuple[str, int], float] | None = None
        """When each event was handled, by the monotonic clock; None for not to be remembered."""
        self.all_started = asyncio.Event()

    def fed(self, appended: int) -> None:
        """So many are in the journal."""
        self.appended = appended
        self._report.counted(self.appended, self.effects)

    def started(self, name: str, slices: SliceRange) -> None:  # noqa: ARG002
        """See :class:`StatusObserver`."""
        self._awaited -= 1
        if self._awaited <= 0:
            self.all_started.set()

    def handled(self, name: str, slices: SliceRange, envelopes: Sequence[EventEnvelope]) -> None:  # noqa: ARG002
        """See :class:`StatusObserver`."""
        self.last_at, types = time.monotonic(), PROJECTIONS[name][1]
        with_effect = [envelope for envelope in envelopes if envelope.event_type in types]
        self.effects += len(with_effect)
        if self.effect_at is not None:
            self.effect_at.update({(e.source_id, e.seq_nr): self.last_at for e in with_effect})
        self._report.counted(self.appended, self.effects)


class Demo:
    """
    One run.

    Args:
        dsn: A database with the schema installed.
        options: What to do.
        report: Is told how far it is.
        stop: Ends the run when set.
    """

    def __init__(self, dsn: str, options: Options, report: Reporter, stop: asyncio.Event) -> None:
        self._dsn = dsn
        self._options = options
        self._report = report
        self._stop = stop
        self._path = data_file()

    async def run(self) -> Result:
        """
        Append, project and compare.

        Raises:
            DemoInterrupted: It was asked to stop.
            ProjectionsError: It can not go on.
        """
        connections = len(PROJECTIONS) * self._options.ranges + _OTHER_CONNECTIONS
        settings = ConnectionSettings(max_connections=connections)
        async with connect(self._dsn, settings) as database, alone(database):
            async with feeding() as feed:
                events, rates, latency = await self._append_and_project(database, feed)
            return await self._check(database, events, rates, latency)

    async def _append_and_project(
        self, database: Database, feed: Feeding
    ) -> tuple[int, _Rates, Latency | None]:
        self._report.step("reading the flights of 2013")
        available = (await self._unless_stopped(feed.hear()))["available"]
        events = min(self._options.events or available, available)
        async with database.transaction() as session:
            start = await prepare(session, fingerprint(self._path), events, reset=self._options.reset)
        if start.appended:
            self._report.step(f"going on from {start.appended:,} events of a run that was interrupted")
        self._report.begin(events)
        watch = _Watch(self._report, start, self._options.ranges)
        bulk = events - min(_SINGLE, events // 10)
        await feed.tell(dsn=self._dsn, token=start.token, bulk=bulk, events=events)
        rates = await self._bulk(database, feed, watch)
        return events, rates, await self._one_at_a_time(database, feed, watch)

    async def _bulk(self, database: Database, feed: Feeding, watch: _Watch) -> _Rates:
        appended, effects, began_at = watch.appended, watch.effects, time.monotonic()
        seconds = await self._while_projecting(database, watch, _follow(feed, watch, "seconds"))
        return _Rates(
            append=_rate(watch.appended - appended, float(seconds["seconds"])),
            handle=_rate(watch.effects - effects, watch.last_at - began_at),
        )

    async def _one_at_a_time(self, database: Database, feed: Feeding, watch: _Watch) -> Latency | None:
        watch = _Watch(self._report, Start("", watch.appended, watch.effects), self._options.ranges)
        effect_at: dict[tuple[str, int], float] = {}
        watch.effect_at = effect_at
        samples: list[tuple[str, int, float]] = []

        async def work() -> None:
            await watch.all_started.wait()
            await feed.tell(go=True)
            await _follow(feed, watch, "done", samples)

        await self._while_projecting(database, watch, work())
        return _latency([effect_at[s, n] - at for s, n, at in samples if (s, n) in effect_at])

    async def _while_projecting(self, database: Database, watch: _Watch, work: Coroutine[Any, Any, T]) -> T:
        """Do something while the projections run, then let them catch up."""
        classes = [projection_class for projection_class, _ in PROJECTIONS.values()]
        ended = asyncio.Event()
        running = asyncio.create_task(
            run_projections(
                database, *classes, ranges=self._options.ranges, observer=watch, stop=ended, take_over=True
            )
        )
        try:
            result = await self._unless_stopped(work, running)
        finally:
            ended.set()
            await running
        await run_projections(database, *classes, observer=watch, stop=self._stop, until_caught_up=True)
        self._check_stop()
        return result

    async def _unless_stopped(self, work: Coroutine[Any, Any, T], *others: asyncio.Task[None]) -> T:
        """Wait for work, but no longer than until the run is to stop, or something else has ended before it."""
        task, stopped = asyncio.create_task(work), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([task, stopped, *others], return_when=asyncio.FIRST_COMPLETED)
            for other in others:
                if other.done():
                    other.result()
            self._check_stop()
            return await task
        finally:
            stopped.cancel()
            task.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise DemoInterrupted("the demo was stopped; run it again to go on")

    async def _check(self, database: Database, events: int, rates: _Rates, latency: Latency | None) -> Result:
        self._report.step("comparing the read models with the CSV file")
        flights = read_flights(self._path)
        entries = timeline(flights)[:events]
        async with database.transaction() as session:
            counts = await count(session)
            differences = await differing_rows(session, flights, entries)
            self._check_stop()
            await complete(session)
        return Result(counts, differences, rates.append, rates.handle, latency, events)


@dataclass(frozen=True, slots=True)
class _Rates:
    append: float | None
    handle: float | None


async def _follow(
    feed: Feeding, watch: _Watch, last: str, samples: list[tuple[str, int, float]] | None = None
) -> dict[str, Any]:
    """Count what the appender has done, until it says a last word."""
    while last not in (said := await feed.hear()):
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
