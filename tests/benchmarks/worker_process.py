"""Worker processes as users start them, and what the database and the kernel tell of them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from journal.embedded import DSN_VARIABLE

_ROOT = Path(__file__).parents[2]
_PATIENCE = 120.0
_LOOK_EVERY = 0.01
_SHARED = """
SELECT count(*) FILTER (WHERE r.owner = r.assigned_to) = $1 AND count(DISTINCT r.owner) = $2
FROM projections.projection_ranges AS r
"""


@asynccontextmanager
async def worker(dsn: str, target: str, ranges: int, *options: str) -> AsyncIterator[int]:
    """
    Run ``projections worker`` with the settings that everybody gets, for the length of the block.

    Returns:
        The process's id.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "projections.cli", "worker", target, f"--ranges={ranges}", "--log-level=error", *options,
        cwd=_ROOT, env={**os.environ, DSN_VARIABLE: dsn},
    )  # fmt: skip
    try:
        yield process.pid
    finally:
        process.terminate()
        code = await process.wait()
    if code:
        raise RuntimeError(f"a worker ended with {code}")


@asynccontextmanager
async def workers(dsn: str, target: str, processes: int, ranges: int, *options: str) -> AsyncIterator[None]:
    """Run several, for the length of the block."""
    async with AsyncExitStack() as stack:
        for _ in range(processes):
            await stack.enter_async_context(worker(dsn, target, ranges, *options))
        yield


async def shared_out(connection: asyncpg.Connection[Any], processes: int, ranges: int) -> None:
    """Wait until each process has its ranges."""
    await until(connection, _SHARED, ranges, processes)


async def until(connection: asyncpg.Connection[Any], question: str, *arguments: object) -> None:
    """Wait until the database says yes."""
    async with asyncio.timeout(_PATIENCE):
        while not await connection.fetchval(question, *arguments):
            await asyncio.sleep(_LOOK_EVERY)


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, user and system; on Linux."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
