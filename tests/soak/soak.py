"""A soak: appends at a fixed rate for hours, while workers come and go, partitions are dropped and webhooks sent."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

import asyncpg
from aiohttp import web

from journal import ConnectionSettings, Database, Event, Notifier, append, connect
from journal.embedded import EmbeddedServer
from journal.partitions import change_partition_settings
from journal.schema import install
from projections.auditing import History
from projections.webhooks import AddressRules, Endpoints, EndpointSettings, RetryPolicy
from tests.soak.app import TABLES, TENANT, TOLD, Happened
from tests.soak.measuring import Measuring
from tests.soak.processes import DELIVERER, WORKER, Processes, Started

SOURCES = 2000
RESIDENTS = 2
"""Workers that stay from the start to the end: their memory is what is judged."""
_TOGETHER = 4
"""Events in a transaction."""
_MINUTE = timedelta(minutes=1)
_PARTITIONS = 5 * _MINUTE
_XMIN_HELD = (0.25, 0.45)
"""The part of the time in which a transaction is open that keeps every row that it could see."""
_SAMPLES = 240
_CATCH_UP = 300
_HANDLED = "SELECT count(*) FROM seen"
_COUNTED = "SELECT coalesce(sum(n), 0)::bigint FROM counts"
_FOUND = "SELECT source_id, seq_nr FROM seen ORDER BY n"
# A receiver that fails now and then is not given up.
_POLICY = RetryPolicy(
    schedule=(timedelta(seconds=1),) * 24,
    breaker_failures=100,
    disable_after_failures=None,
    disable_after=None,
)


@dataclass(frozen=True, slots=True)
class Options:
    """
    How long and how much.

    Args:
        seconds: From the first event to the last.
        rate: Events in a second.
        out: The file for what is measured, a line of JSON each.
        seed: Of what happens to workers.
    """

    seconds: float
    rate: float
    out: Path
    seed: int


class Soak:
    """One run on a server of its own, whose directory is given and is to be removed by the caller."""

    def __init__(self, options: Options, directory: Path) -> None:
        self._options = options
        self._directory = directory
        self._random = random.Random(options.seed)
        self._history = History()
        self._told = History()
        self._begun = time.monotonic()
        self._stop = asyncio.Event()
        self.appended = 0
        self.delivered = 0
        self.xmin_held = False

    def stop(self) -> None:
        """End before the time is over: what was appended is still handled and compared."""
        self._stop.set()

    async def run(self) -> None:
        """Run to the end; the last lines of the file are the comparison of what was appended and handled."""
        server = EmbeddedServer(self._directory / "server")
        dsn = await asyncio.to_thread(server.start)
        processes = Processes(dsn, self._directory)
        try:
            await asyncio.to_thread(install, dsn)
            async with AsyncExitStack() as stack:
                pool = ConnectionSettings(max_connections=6)
                database = await stack.enter_async_context(connect(dsn, pool))
                await self._prepare(database, await stack.enter_async_context(self._receiver()))
                measuring = Measuring(self, database, processes, server.root)
                self._say("start", rate=self._options.rate, seed=self._options.seed, hours=self._hours)
                await self._work(database, processes, measuring)
                await self._catch_up(database)
                self._say("stopped", exit_codes=await processes.end_all())
                await self._audit(database)
        finally:
            processes.kill_all()
            await asyncio.to_thread(server.stop)

    @property
    def _hours(self) -> float:
        return round(self._options.seconds / 3600, 4)

    def _say(self, kind: str, **values: Any) -> None:
        line = {"kind": kind, "at": round(time.monotonic() - self._begun, 1), **values}
        with self._options.out.open("a") as file:
            file.write(json.dumps(line) + "\n")

    async def _prepare(self, database: Database, url: str) -> None:
        async with database.session() as session:
            for table in TABLES:
                await session.execute(table)
            for table in ("events", "webhook_events", "webhook_attempts"):
                await change_partition_settings(
                    session, table, interval=_PARTITIONS, ahead=3, retention=_PARTITIONS
                )
        endpoints = Endpoints(database, rules=AddressRules(allow=("127.0.0.0/8",)), allow_http=True)
        await endpoints.create(TENANT, EndpointSettings(url=url, ordering="key", policy=_POLICY))

    @asynccontextmanager
    async def _receiver(self) -> AsyncIterator[str]:
        """Where webhooks go: one in fifty fails."""

        async def receive(request: web.Request) -> web.Response:
            message = (await request.json())["data"]
            if self._random.random() < 0.02:
                return web.Response(status=500)
            self.delivered += 1
            self._told.handled(message["source_id"], message["seq_nr"])
            return web.Response(status=204)

        app = web.Application()
        app.router.add_post("/", receive)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
        finally:
            await runner.cleanup()

    async def _work(self, database: Database, processes: Processes, measuring: Measuring) -> None:
        residents = [await processes.start("worker", WORKER) for _ in range(RESIDENTS)]
        residents.append(await processes.start("deliverer", DELIVERER))
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._append(database)),
                group.create_task(self._guests(processes)),
                group.create_task(self._hold_xmin(database)),
                group.create_task(self._measure(measuring)),
                group.create_task(self._watch(residents)),
            ]
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), self._options.seconds)
            self._stop.set()
            await asyncio.wait(tasks, timeout=60)

    async def _pause(self, seconds: float) -> bool:
        """Wait; returns whether to go on."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), max(0.0, seconds))
        return not self._stop.is_set()

    async def _append(self, database: Database) -> None:
        """At a fixed rate: what comes late is caught up with."""
        notifier = Notifier(database)
        begun, turn = time.monotonic(), _TOGETHER / self._options.rate
        while await self._pause(begun + self.appended / _TOGETHER * turn - time.monotonic()):
            sources = self._random.sample(range(SOURCES), _TOGETHER)
            events = [
                Event(f"source {source}", Happened(n=self.appended + n), "plane")
                for n, source in enumerate(sources)
            ]
            async with database.transaction() as session:
                appended = await append(session, events)
            notifier.appended()
            for n, one in enumerate(appended):
                self._history.committed(one.source_id, one.seq_nr)
                if (self.appended + n) % TOLD == 0:
                    self._told.committed(one.source_id, one.seq_nr)
            self.appended += len(events)
        await notifier.close()

    async def _guests(self, processes: Processes) -> None:
        """One worker more, again and again: it leaves in order, or is killed."""
        stays = min(180.0, self._options.seconds / 8)
        for kill in cycle([False, True]):
            if not await self._pause(self._random.uniform(0.5, 1) * stays):
                return
            guest = await processes.start("worker", WORKER)
            self._say("join", worker=guest.number)
            await self._pause(self._random.uniform(0.5, 1) * stays)
            code = await processes.end(guest, kill=kill)
            self._say("kill" if kill else "leave", worker=guest.number, exit_code=code)

    async def _hold_xmin(self, database: Database) -> None:
        begins, ends = (share * self._options.seconds for share in _XMIN_HELD)
        if not await self._pause(begins):
            return
        connection = await asyncpg.connect(database.dsn)
        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetchval("SELECT count(*) FROM counts")
            self.xmin_held = True
            self._say("xmin held")
            await self._pause(ends - begins)
        await connection.close()
        self.xmin_held = False
        self._say("xmin released")

    async def _measure(self, measuring: Measuring) -> None:
        every = min(30.0, max(1.0, self._options.seconds / _SAMPLES))
        while await self._pause(every):
            self._say("sample", **await measuring.sample())

    async def _watch(self, residents: list[Started]) -> None:
        """No resident ends by itself."""
        ends = {asyncio.create_task(one.process.wait()): one for one in residents}
        stopped = asyncio.create_task(self._stop.wait())
        done, pending = await asyncio.wait([*ends, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        for task in done - {stopped}:
            self._say("ended", process=f"{ends[task].role} {ends[task].number}", exit_code=task.result())
            self._stop.set()

    async def _catch_up(self, database: Database) -> None:
        """Wait until all is handled and delivered; what is missing after that is lost."""
        told = (self.appended + TOLD - 1) // TOLD
        begun = time.monotonic()
        async with database.session() as session:
            while time.monotonic() - begun < _CATCH_UP:
                handled = min(await session.fetchval(_HANDLED), await session.fetchval(_COUNTED))
                if handled >= self.appended and self.delivered >= told:
                    break
                await asyncio.sleep(0.2)
        self._say("caught up", seconds=round(time.monotonic() - begun, 1))

    async def _audit(self, database: Database) -> None:
        async with database.transaction() as session:
            await session.execute(f"DECLARE found NO SCROLL CURSOR FOR {_FOUND}")
            while rows := await session.fetch("FETCH 10000 FROM found"):
                for row in rows:
                    self._history.handled(row["source_id"], row["seq_nr"])
            counted = await session.fetchval(_COUNTED)
        with self._history as history, self._told as told:
            self._say("audit", what="projection", **_found(history))
            self._say("audit", what="webhooks", at_least_once=True, **_found(told))
        self._say("read model", expected=self.appended, counted=counted)


def _found(history: History) -> dict[str, Any]:
    history.expect("")
    return history.audit()[""].values
