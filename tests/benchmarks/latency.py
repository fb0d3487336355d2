"""From committed to handled, on a system that is idle otherwise."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from statistics import quantiles

from journal import Database, EventEnvelope, Notifier, SliceRange
from journal.appending import append
from journal.database import connect
from journal.log import Log
from projections import RunSettings, StatusObserver, run
from tests.benchmarks import workload
from tests.benchmarks.harness import Goal, Line, Sizes
from tests.benchmarks.peer import DelaysView, Peer
from tests.benchmarks.server import Server

_SPACING = (0.020, 0.120)  # seconds between two appends
_PATIENCE = 60.0


def spacing(chance: random.Random) -> float:
    """Seconds until the next append."""
    return chance.uniform(*_SPACING)


class Seen(StatusObserver):
    """When each event was handled, and a signal once a number of them are."""

    def __init__(self) -> None:
        self.at: dict[tuple[str, int], float] = {}
        self.started_ranges = 0
        self._changed = asyncio.Event()

    def started(self, name: str, slices: SliceRange) -> None:
        self.started_ranges += 1
        self._changed.set()

    def handled(self, name: str, slices: SliceRange, envelopes: Sequence[EventEnvelope]) -> None:
        now = time.perf_counter()
        self.at.update({(envelope.source_id, envelope.seq_nr): now for envelope in envelopes})
        self._changed.set()

    async def until(self, *, events: int = 0, ranges: int = 0) -> None:
        async with asyncio.timeout(_PATIENCE):
            while len(self.at) < events or self.started_ranges < ranges:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def worker(
    database: Database,
    ranges: int,
    settings: RunSettings,
    definition: type[object] = workload.ByTable,
    journal: Log | None = None,
) -> AsyncIterator[Seen]:
    """A worker in this process; gives what it has handled."""
    seen, stop = Seen(), asyncio.Event()
    running = asyncio.create_task(
        run(database, definition, journal=journal, ranges=ranges, settings=settings, observer=seen, stop=stop)
    )
    try:
        await seen.until(ranges=ranges)
        yield seen
    finally:
        stop.set()
        await running


async def _latencies(server: Server, sizes: Sizes, *, notify: bool) -> list[float]:
    """Milliseconds from just after an append's commit to just after its handler's."""
    chance = random.Random(1)
    committed: dict[tuple[str, int], float] = {}
    with server.database() as dsn:
        async with connect(dsn) as writer, connect(dsn) as reader:
            notifier = Notifier(writer)
            async with worker(reader, 1, RunSettings(listen=notify)) as seen:
                for n in range(sizes.latencies):
                    await asyncio.sleep(spacing(chance))
                    async with writer.transaction() as session:
                        [appended] = await append(session, workload.events(n, 1, sizes.sources))
                    committed[appended.source_id, appended.seq_nr] = time.perf_counter()
                    if notify:
                        notifier.appended()
                await seen.until(events=sizes.latencies)
            await notifier.close()
    return [max(0.0, seen.at[key] - at) * 1000 for key, at in committed.items()]


def _peer_latencies(server: Server, sizes: Sizes) -> list[float]:
    chance = random.Random(1)
    committed: dict[int, float] = {}
    handled: dict[int, float] = {}
    everything = threading.Event()

    def told(position: int) -> None:
        handled[position] = time.perf_counter()
        if len(handled) == sizes.latencies:
            everything.set()

    with server.database() as dsn, Peer(dsn) as peer, peer.runner():
        DelaysView.told = staticmethod(told)
        for n in range(sizes.latencies):
            time.sleep(spacing(chance))
            [position] = peer.append([peer.event(n, sizes.sources)]) or [0]
            committed[position] = time.perf_counter()
        everything.wait(_PATIENCE)
        DelaysView.told = None
    return [max(0.0, handled[position] - at) * 1000 for position, at in committed.items()]


def percentile(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]


async def measure_latency(server: Server, sizes: Sizes) -> list[Line]:
    """Single appends at random times, with notifications and by polling alone."""
    notified = await _latencies(server, sizes, notify=True)
    peer = await asyncio.to_thread(_peer_latencies, server, sizes)
    polled = await _latencies(server, sizes, notify=False)
    lines = []
    for way, ours, goals in (
        ("notified", notified, {50: 5.0, 99: 25.0}),
        ("polling", polled, {50: None, 99: None}),
    ):
        for percent, limit in goals.items():
            value, other = percentile(ours, percent), percentile(peer, percent)
            goal = Goal(limit, at_most=True, absolute=True) if limit else None
            lines.append(
                Line(
                    f"append to handled, {way}, p{percent}",
                    value,
                    "ms",
                    "eventsourcing",
                    other,
                    value / other,
                    goal,
                )
            )
    return lines
