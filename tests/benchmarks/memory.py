"""Memory of a worker: a process of its own reads a journal, and tells how far its memory grew."""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path

from journal.database import connect
from projections import RunSettings, run
from tests.benchmarks import workload
from tests.benchmarks.harness import Goal, Line, Sizes
from tests.benchmarks.server import Server, settle

_ROOT = Path(__file__).parents[2]
_CACHE = 8_192
_EVENTS_PER_SOURCE = 10


def _peak() -> float:
    """The most memory that this process has held so far, in MB."""
    try:
        # Not getrusage: on Linux a new process begins with the peak of the one that started it.
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM"))


async def _grow(dsn: str) -> float:
    async with connect(dsn) as database:
        before = _peak()
        await run(database, workload.ByTable, settings=RunSettings(cache_size=_CACHE), until_caught_up=True)
        return _peak() - before


async def _growth(server: Server, count: int) -> float:
    sources = count // _EVENTS_PER_SOURCE
    with server.database() as dsn:
        await asyncio.to_thread(workload.fill, dsn, count, sources)
        await asyncio.to_thread(settle, dsn)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.benchmarks.memory", dsn, cwd=_ROOT, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError("the worker whose memory is measured failed")
        await asyncio.to_thread(workload.check, dsn, workload.expected(count, sources))
    return float(output)


async def measure_memory(server: Server, sizes: Sizes) -> list[Line]:
    """Ten times the events of ten times the sources, with the same cache."""
    few, many = sizes.large_backlog // 10, sizes.large_backlog
    small, large = await _growth(server, few), await _growth(server, many)
    what = f"peak memory growth of a worker over {many:,} events of {many // _EVENTS_PER_SOURCE:,} sources"
    return [
        Line(what, large, "MB", f"{few:,} events", small, large / max(small, 0.1), Goal(1.3, at_most=True))
    ]


if __name__ == "__main__":
    print(asyncio.run(_grow(sys.argv[1])))
