"""
Workers are killed, PostgreSQL crashes, appenders are late or roll back: every event has its effect exactly once.

A failing run prints its seed; CHAOS_SEED runs it with the same choices again.
"""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from journal import ConnectionSettings, Database, Event, ProjectionsError, append, connect
from journal.embedded import EmbeddedServer
from journal.schema import install
from projections.testing import run_until_caught_up
from tests.fixtures.projections import EFFECTS, Happened, effects, execute, recording

ROOT = Path(__file__).parents[2]
SOURCES = [f"source {number}" for number in range(200)]
APPENDERS = 6


class Chaos:
    """
    Appends and worker processes, with delays and choices from one seed.

    Args:
        dsn: The database.
        seconds: How long.
    """

    def __init__(self, dsn: str, seconds: float) -> None:
        self.seed = int(os.environ.get("CHAOS_SEED") or random.randrange(2**32))
        print(f"CHAOS_SEED={self.seed}")
        self.random = random.Random(self.seed)
        self.dsn = dsn
        self.seconds = seconds
        self.kills = self.rolled_back = 0

    def choices(self) -> random.Random:
        """For one task: what it chooses does not depend on when it runs."""
        return random.Random(self.random.randrange(2**32))

    async def run(
        self, database: Database, also: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        end = asyncio.get_running_loop().time() + self.seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(APPENDERS):
                group.create_task(self._appender(database, end, self.choices()))
            group.create_task(self._workers(end, self.choices()))
            if also is not None:
                group.create_task(also())

    async def _appender(self, database: Database, end: float, choices: random.Random) -> None:
        while asyncio.get_running_loop().time() < end:
            try:
                await self._append(database, choices)
            except (ProjectionsError, OSError):
                await asyncio.sleep(0.05)  # the server is away

    async def _append(self, database: Database, choices: random.Random) -> None:
        """One transaction of one to four events; some stay open for long, some are rolled back."""
        source_ids = sorted(choices.sample(SOURCES, choices.randint(1, 4)))
        async with database.session() as session:
            await session.begin()
            try:
                await append(session, [Event(source_id, Happened(), "plane") for source_id in source_ids])
                if choices.random() < 0.05:
                    await asyncio.sleep(choices.uniform(0.1, 1.0))
                if choices.random() < 0.1:
                    self.rolled_back += 1
                else:
                    await session.commit()
            finally:
                with suppress(Exception):
                    await session.rollback()
        await asyncio.sleep(choices.uniform(0, 0.01))

    async def _workers(self, end: float, choices: random.Random) -> None:
        """One or two workers at a time, over ranges that change, each killed at some moment."""
        while asyncio.get_running_loop().time() < end:
            count, ranges = choices.choice([1, 1, 2]), choices.choice([1, 3, 5])
            await asyncio.gather(*(self._killed(ranges, choices.uniform(0.05, 2.0)) for _ in range(count)))

    async def _killed(self, ranges: int, after: float) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.chaos.worker", self.dsn, str(ranges)),
            cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            await asyncio.wait_for(process.stdout.readline(), 20)
            await asyncio.sleep(after)
        finally:
            with suppress(ProcessLookupError):  # it may have ended with the server
                process.kill()
                self.kills += 1
            await process.communicate()


async def check(database: Database, chaos: Chaos) -> None:
    """Everything that is in the journal was handled once, each source's in order."""
    by_workers = len(await effects(database))
    async with asyncio.timeout(60):
        await run_until_caught_up(database, recording(name="chaos"))
    async with database.session() as session:
        rows = await session.fetch("SELECT source_id, seq_nr FROM projections.events")
    appended = {(row["source_id"], row["seq_nr"]) for row in rows}
    handled = await effects(database)
    seen: dict[str, list[int]] = {}
    for source_id, seq_nr in handled:
        seen.setdefault(source_id, []).append(seq_nr)
    print(
        f"{len(appended)} events, {by_workers} by workers, {chaos.kills} kills, {chaos.rolled_back} rolled back"
    )

    assert by_workers > 100
    assert chaos.kills > 0
    assert set(handled) == appended
    assert len(handled) == len(appended)
    assert all(seq_nrs == list(range(1, len(seq_nrs) + 1)) for seq_nrs in seen.values())


async def killed_workers(dsn: str, seconds: float) -> None:
    chaos = Chaos(dsn, seconds)
    async with connect(dsn, ConnectionSettings(max_connections=APPENDERS + 4)) as database:
        await execute(database, EFFECTS)
        await chaos.run(database)
        await check(database, chaos)


async def test_workers_that_are_killed_neither_lose_nor_repeat(dsn: str) -> None:
    await killed_workers(dsn, 10)


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_workers_that_are_killed_for_minutes_neither_lose_nor_repeat(dsn: str) -> None:
    await killed_workers(dsn, 180)


@asynccontextmanager
async def server_of_its_own() -> AsyncIterator[tuple[EmbeddedServer, str]]:
    """A server with the settings of a user's: what it said was committed must be there after a crash."""
    with tempfile.TemporaryDirectory(prefix="sp-chaos-") as directory:
        Path(directory).chmod(0o755)  # the server may run as another user
        server = EmbeddedServer(Path(directory) / "server")
        dsn = await asyncio.to_thread(server.start)
        try:
            yield server, dsn
        finally:
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.remove)


def stop_at_once(server: EmbeddedServer) -> None:
    """Immediate mode: no checkpoint, every connection is cut, the next start replays the log."""
    postmaster = int((server.root / "data" / "postmaster.pid").read_text().splitlines()[0])
    ended = os.pidfd_open(postmaster)
    os.kill(postmaster, signal.SIGQUIT)
    select.select([ended], [], [], 60)
    os.close(ended)


async def crashed_server(seconds: float, crashes: int) -> None:
    async with server_of_its_own() as (server, dsn):
        await asyncio.to_thread(install, dsn)
        chaos = Chaos(dsn, seconds)
        choices = chaos.choices()

        async def crash() -> None:
            for _ in range(crashes):
                await asyncio.sleep(seconds / (crashes + 1) * choices.uniform(0.6, 1.0))
                await asyncio.to_thread(stop_at_once, server)
                await asyncio.to_thread(server.start)

        async with connect(dsn, ConnectionSettings(max_connections=APPENDERS + 4)) as database:
            await execute(database, EFFECTS)
            await chaos.run(database, crash)
            await check(database, chaos)


async def test_a_server_that_crashes_neither_loses_nor_repeats() -> None:
    await crashed_server(6, 1)


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_server_that_crashes_often_neither_loses_nor_repeats() -> None:
    await crashed_server(120, 12)
