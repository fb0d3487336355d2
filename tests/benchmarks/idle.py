"""What a worker process costs while nothing happens: queries for the database, and processor time of its own."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import asyncpg
import psycopg

from tests.benchmarks.harness import Goal, Line, Sizes
from tests.benchmarks.server import Server
from tests.benchmarks.worker_process import cpu_seconds, shared_out, worker

_TARGET = "tests.benchmarks.workload:ByTable"
_RANGES = (1, 8, 1024)


def transactions(dsn: str) -> int:
    """How many transactions the database has seen end."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    return int(found[0]) if found else 0


async def _idle(server: Server, ranges: int, sizes: Sizes) -> tuple[float, float]:
    """Transactions and processor time of a second; outside a transaction each query is one."""
    async with AsyncExitStack() as stack:
        dsn = stack.enter_context(server.database())
        with psycopg.connect(dsn) as connection:
            connection.execute("ALTER TABLE projections.events_default SET (autovacuum_enabled = off)")
        pid = await stack.enter_async_context(worker(dsn, _TARGET, ranges))
        watching = await asyncpg.connect(dsn)
        await shared_out(watching, 1, ranges)
        await watching.close()
        await asyncio.sleep(sizes.idle_settle)
        before, used, begun = (
            await asyncio.to_thread(transactions, dsn),
            cpu_seconds(pid),
            time.perf_counter(),
        )
        await asyncio.sleep(sizes.idle_seconds)
        after, then, ended = (
            await asyncio.to_thread(transactions, dsn),
            cpu_seconds(pid),
            time.perf_counter(),
        )
    # The first look is counted by the second.
    return max(0.0, after - before - 1) / (ended - begun), (then - used) / (ended - begun)


async def measure_idle(server: Server, sizes: Sizes) -> list[Line]:
    """By the number of ranges that one process holds."""
    goal = Goal(20, at_most=True, absolute=True)
    lines = []
    for ranges in _RANGES:
        queries, cpu = await _idle(server, ranges, sizes)
        lines += [
            Line(f"idle worker, {ranges:,} range(s)", queries, "queries/s", goal=goal),
            Line(f"idle worker, {ranges:,} range(s)", cpu * 1000, "ms CPU/s"),
        ]
    return lines
