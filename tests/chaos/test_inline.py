"""Projections go from inline to live and back while events come, and those who append and who work are killed."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import offsets
from journal import ConnectionSettings, Database, connect
from projections.testing import run_until_caught_up
from tests.chaos.inline import TABLES, Effects, Totals
from tests.chaos.test_chaos import check_effects, rows
from tests.fixtures.projections import execute, fetchval

SECONDS = float(os.environ.get("CHAOS_SECONDS", "300"))


_HANDLED = """
SELECT (SELECT count(*) FROM effects)::bigint - sum(r.handled)::bigint AS inline, sum(r.handled)::bigint AS live
FROM projections.projection_ranges AS r INNER JOIN projections.projections AS p USING (projection_id)
WHERE p.name = 'effects'
"""


async def switch(database: Database, name: str, to: offsets.Mode) -> None:
    async with database.session() as session:
        await offsets.set_mode(session, name, to)


async def handled(database: Database) -> tuple[int, int]:
    """How many events were handled inline, and how many by workers."""
    (row,) = await rows(database, _HANDLED)
    return row["inline"], row["live"]


async def chaos(
    database: Database, start: Callable[[str], Awaitable[subprocess.Popen[bytes]]], seconds: float
) -> None:
    """Let it all happen for that time, and on until events were handled both inline and by workers."""
    chance = random.Random(os.environ.get("CHAOS_SEED"))
    processes = {role: [await start(role), await start(role)] for role in ("worker", "append")}
    ends_at = asyncio.get_running_loop().time() + seconds
    try:
        while asyncio.get_running_loop().time() < ends_at or min(await handled(database)) <= 0:
            await asyncio.sleep(chance.uniform(0.05, 0.5))
            match chance.randrange(4):
                case 0:
                    role = chance.choice(["worker", "append"])
                    killed = processes[role].pop(0)
                    killed.kill()
                    killed.wait()
                    processes[role].append(await start(role))
                case _:
                    await switch(
                        database, chance.choice(["totals", "effects"]), chance.choice(["inline", "live"])
                    )
            for process in [*processes["worker"], *processes["append"]]:
                assert process.poll() is None  # none of them ends by itself
    finally:
        for process in [*processes["worker"], *processes["append"]]:
            process.kill()
            process.wait()


async def run_chaos(dsn: str, logs: Path, seconds: float) -> None:
    async def start(role: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.chaos.inline", role, dsn]
        with (logs / f"{role}.log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, stderr=log
            )
        assert process.stdout is not None
        with process.stdout as said:
            assert await asyncio.to_thread(said.readline) == b"running\n"
        return process

    async with connect(dsn, ConnectionSettings(max_connections=10)) as database:
        for table in TABLES:
            await execute(database, table)
        await run_until_caught_up(database, Totals, Effects, ranges=3)
        await switch(database, "totals", "inline")
        await chaos(database, start, seconds)
        inline, _ = await handled(database)
        await run_until_caught_up(database, Totals, Effects, ranges=3)

        events = await check_effects(database)
        counts = """
        SELECT coalesce(sum(abs(coalesce(t.n, 0) - coalesce(e.n, 0))), 0)::int FROM totals AS t FULL JOIN (
            SELECT 'kind ' || ((payload ->> 'n')::int % 3) AS kind, count(*) AS n FROM projections.events GROUP BY 1
        ) AS e ON t.kind = e.kind
        """
        assert await fetchval(database, counts) == 0
    print({"events": events, "inline": inline})
    assert 0 < inline < events


@pytest.mark.timeout(300)
async def test_whoever_handles_each_event_is_handled_once(dsn: str, tmp_path: Path) -> None:
    await run_chaos(dsn, tmp_path, 8)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
async def test_whoever_handles_for_minutes_each_event_is_handled_once(dsn: str, tmp_path: Path) -> None:
    await run_chaos(dsn, tmp_path, SECONDS)
