"""From an append to reading it: by waiting for the projection, and by asking for the row again and again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeAlias

from journal import Appended, Database, Notifier
from journal.appending import append
from journal.database import connect
from projections import RunSettings, wait_for
from tests.benchmarks import workload
from tests.benchmarks.harness import Goal, Line, Sizes
from tests.benchmarks.latency import percentile, spacing, worker
from tests.benchmarks.server import Server

_ASK_EVERY = 0.010
"""Seconds: what a loop written by hand sleeps."""
_LONG = timedelta(seconds=60)

Wait: TypeAlias = Callable[[Database, Appended], Awaitable[None]]


async def _by_waiting(database: Database, appended: Appended) -> None:
    await wait_for(database, "benchmark", appended, _LONG)


async def _by_asking(database: Database, appended: Appended) -> None:
    sql = "SELECT seq_nr >= $2 FROM projections.source_offsets WHERE source_id = $1"
    while True:
        async with database.session() as session:
            if await session.fetchval(sql, appended.source_id, appended.seq_nr):
                return
        await asyncio.sleep(_ASK_EVERY)


async def _waits(server: Server, sizes: Sizes, wait: Wait, together: int) -> tuple[list[float], list[float]]:
    """Milliseconds from the commit of an append, and from that of its handler, until it can be read."""
    chance = random.Random(1)
    whole: list[float] = []
    ended: dict[tuple[str, int], float] = {}
    with server.database() as dsn:
        async with connect(dsn) as writer, connect(dsn) as reader:
            notifier = Notifier(writer)

            async def one(appended: Appended, began: float) -> None:
                await wait(writer, appended)
                ended[appended.source_id, appended.seq_nr] = time.perf_counter()
                whole.append((time.perf_counter() - began) * 1000)

            async with worker(reader, 1, RunSettings()) as seen:
                for n in range(max(sizes.waits, sizes.latencies // together)):
                    await asyncio.sleep(spacing(chance))
                    async with writer.transaction() as session:
                        events = workload.events(n * together, together, sizes.sources)
                        appended = await append(session, events)
                    began = time.perf_counter()
                    notifier.appended()
                    await asyncio.gather(*(one(each, began) for each in appended))
                await seen.until(events=len(ended))
            await notifier.close()
    # The observer is notified after the commit, too, and perhaps later than who waits.
    return whole, [max(0.0, at - seen.at[key]) * 1000 for key, at in ended.items()]


async def measure_waiting(server: Server, sizes: Sizes) -> list[Line]:
    """One who waits at a time, and a hundred and a thousand together."""
    lines = []
    for together in (1, 100, 1_000):
        waited, after = await _waits(server, sizes, _by_waiting, together)
        asked, _ = await _waits(server, sizes, _by_asking, together)
        for percent in (50, 99):
            value, other = percentile(waited, percent), percentile(asked, percent)
            what = f"append to read, {together:,} waiting, p{percent}"
            lines.append(Line(what, value, "ms", "asking every 10 ms", other, value / other))
        goal = Goal(5.0, at_most=True, absolute=True) if together == 1 else None
        lines.append(
            Line(f"handled to read, {together:,} waiting, p99", percentile(after, 99), "ms", goal=goal)
        )
    return lines
