"""Everything that may go wrong, at random moments from one seed, while events are appended and handled."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import offsets
from journal import Database, Event, ProjectionsError, append
from journal.embedded import EmbeddedServer
from tests.chaos.server import stop_at_once
from tests.chaos.worker import LEASE
from tests.fixtures.projections import Happened

ROOT = Path(__file__).parents[2]
SOURCES = [f"source {number}" for number in range(200)]
APPENDERS = 6
WORKERS = 4
CONNECTIONS = APPENDERS + 4

_TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
ORDER BY md5(pid::text || $1) LIMIT 1
"""


class Side(NamedTuple):
    """A database on a server that may be crashed."""

    server: EmbeddedServer
    dsn: str
    database: Database


class Chaos:
    """
    Appenders, worker processes and what happens to them.

    Args:
        server: May be crashed.
        dsn: Its database.
        database: The same, for the appenders.
        logs: A directory for what the workers say.
        seconds: How long.
        read_side: Where the effects are, if that is another database, on a server of its own: may be crashed, too.
        both: Events are appended there, too.
    """

    module = "tests.chaos.worker"
    """What a worker runs."""

    def __init__(  # noqa: PLR0917 - called in one place
        self,
        server: EmbeddedServer,
        dsn: str,
        database: Database,
        logs: Path,
        seconds: float,
        read_side: Side | None = None,
        *,
        both: bool = False,
    ) -> None:
        self.seed = int(os.environ.get("CHAOS_SEED") or random.randrange(2**32))
        print(f"CHAOS_SEED={self.seed}", flush=True)
        self.counts: Counter[str] = Counter()
        self._random = random.Random(self.seed)
        journal = Side(server, dsn, database)
        self._sides = [journal] if read_side is None else [journal, read_side]
        self._read_side = self._sides[-1]
        self._database = database
        self._journals = self._sides if both else self._sides[:1]
        self._logs = logs
        self._seconds = seconds
        self._end = asyncio.get_running_loop().time() + seconds

    async def run(self) -> None:
        """Let it all happen until the time is over and it has all happened; all workers are dead then."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._until_all_happened())
            for _ in range(APPENDERS):
                group.create_task(self._appender(self._choices()))
            for _ in range(WORKERS):
                group.create_task(self._workers(self._choices()))
            group.create_task(self._now_and_then(self._rescale, 1.0, self._choices()))
            group.create_task(self._now_and_then(self._terminate, 0.5, self._choices()))
            group.create_task(self._now_and_then(self._crash, min(12, self._seconds / 3), self._choices()))
        self.counts["take-overs"] = sum(
            path.read_text().count(" taken over from ") for path in self._logs.iterdir()
        )

    async def catch_up(self) -> None:
        """A worker that nothing happens to handles what is left."""
        process = await self._start("asyncpg", "until_caught_up")
        assert await asyncio.wait_for(process.wait(), 120) == 0

    def _choices(self) -> random.Random:
        """For one task: what it chooses does not depend on when it runs."""
        return random.Random(self._random.randrange(2**32))

    @property
    def _going_on(self) -> bool:
        return asyncio.get_running_loop().time() < self._end

    async def _until_all_happened(self) -> None:
        """On a slow machine, that takes longer; disturbing workers that only start would prove nothing."""
        while not await self._all_happened():
            self._end = max(self._end, asyncio.get_running_loop().time() + 5)
            await asyncio.sleep(0.5)

    async def _all_happened(self) -> bool:
        if not all(self.counts[what] for what in ("kills", "rescales", "terminations", "crashes")):
            return False
        with suppress(ProjectionsError, OSError):
            async with self._read_side.database.session() as session:
                enough: bool = await session.fetchval("SELECT count(*) > $1 FROM effects", self._seconds / 2)
                return enough
        return False

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(max(0, min(seconds, self._end - asyncio.get_running_loop().time())))

    async def _appender(self, choices: random.Random) -> None:
        while self._going_on:
            try:
                await self._append(choices)
            except (ProjectionsError, OSError):
                await asyncio.sleep(0.05)  # the server is away, or this connection

    def _event(self, source_id: str, choices: random.Random, journal: int = 0) -> Event:
        """What is appended, with the number of its journal."""
        return Event(source_id, Happened(n=journal), "plane")

    async def _append(self, choices: random.Random) -> None:
        """One transaction of one to four events; some stay open for long, some are rolled back."""
        source_ids = sorted(choices.sample(SOURCES, choices.randint(1, 4)))
        number = choices.randrange(len(self._journals))
        async with self._journals[number].database.session() as session:
            await session.begin()
            try:
                await append(session, [self._event(source_id, choices, number) for source_id in source_ids])
                if choices.random() < 0.05:
                    self.counts["late commits"] += 1
                    await self._pause(choices.choice([0.1, 0.3, 1.0, 3.0]))
                if choices.random() < 0.1:
                    self.counts["roll-backs"] += 1
                else:
                    await session.commit()
            finally:
                with suppress(ProjectionsError):
                    await session.rollback()
        await asyncio.sleep(choices.uniform(0, 0.05))

    async def _workers(self, choices: random.Random, *options: str) -> None:
        """One worker after the other: stopped past its lease, killed, or told to end."""
        while self._going_on:
            process = await self._start(choices.choice(["asyncpg", "psycopg"]), *options)
            try:
                await self._live(process, choices)
                if process.returncode is None and choices.random() < 0.3:
                    self.counts["clean stops"] += 1
                    process.send_signal(signal.SIGTERM)
                    await asyncio.wait_for(process.wait(), 60)
            finally:
                if process.returncode is None:
                    self.counts["kills"] += 1
                    process.kill()
                await process.wait()
            await self._check_end(process)

    async def _live(self, process: Process, choices: random.Random) -> None:
        for _ in range(choices.randint(0, 3)):
            await self._pause(choices.uniform(0.1, 5.0))
            if process.returncode is not None or not self._going_on:
                return
            if choices.random() < 0.5:
                self.counts["stops"] += 1
                process.send_signal(signal.SIGSTOP)
                await self._pause(LEASE.total_seconds() * choices.uniform(0.5, 4))
                process.send_signal(signal.SIGCONT)

    async def _start(self, *options: str) -> Process:
        self.counts["workers"] += 1
        with self._log(self.counts["workers"]).open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self.module, self._read_side.dsn, *options, *self._elsewhere()),
                cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=log,
            )  # fmt: skip
        process.log = log.name  # type: ignore[attr-defined]
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), 60)
        return process

    def _elsewhere(self) -> list[str]:
        both = ["both"] if len(self._journals) > 1 else []
        return [f"journal={self._sides[0].dsn}", *both] if len(self._sides) > 1 else []

    def _log(self, number: int) -> Path:
        return self._logs / f"{number}.log"

    async def _check_end(self, process: Process) -> None:
        """Only a server that is away when a worker starts lets it end by itself."""
        if process.returncode not in {0, -signal.SIGKILL}:
            log = Path(process.log).read_text()  # type: ignore[attr-defined]
            assert "journal.errors.DatabaseUnavailable: " in log, f"a worker ended by itself: {log[-2000:]}"
            self.counts["failed starts"] += 1

    async def _now_and_then(
        self, do: Callable[[random.Random], Awaitable[str]], seconds: float, choices: random.Random
    ) -> None:
        while self._going_on:
            await self._pause(choices.uniform(0.5, 1.5) * seconds)
            if self._going_on:
                with suppress(ProjectionsError, OSError):
                    self.counts[await do(choices)] += 1

    async def _rescale(self, choices: random.Random) -> str:
        async with self._read_side.database.session() as session:
            await offsets.rescale(session, "chaos", choices.choice([1, 2, 3, 4, 8, 13, 32, 64, 100]))
        return "rescales"

    async def _terminate(self, choices: random.Random) -> str:
        async with choices.choice(self._sides).database.session() as session:
            await session.execute(_TERMINATE, str(choices.random()))
        return "terminations"

    async def _crash(self, choices: random.Random) -> str:
        server = choices.choice(self._sides).server
        await asyncio.to_thread(stop_at_once, server)
        await self._pause(choices.uniform(0, 2))
        await asyncio.to_thread(server.start)
        return "crashes"
