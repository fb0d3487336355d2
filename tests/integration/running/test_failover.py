"""Nothing is lost and nothing happens twice when the primary is killed before its standby has everything."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, NamedTuple
from uuid import UUID

import pytest

import offsets
from journal import (
    BEGINNING,
    ConnectionSettings,
    Database,
    DatabaseUnavailable,
    EventEnvelope,
    ProjectionsError,
    connect,
)
from offsets import live_events
from tests.fixtures.failover import Pair, Server, pair
from tests.fixtures.projections import (
    EFFECTS,
    Told,
    effects,
    execute,
    fetchval,
    happen,
    recording,
    running,
    settings,
    until,
)

SOURCES = [f"s{number}" for number in range(12)]
RANGES = 4
_HANDLED = """
SELECT count(*) >= (SELECT count(*) FROM projections.events) FROM effects
"""
_STORED = "SELECT array_agg(source_id || ' ' || seq_nr ORDER BY source_id, seq_nr) FROM projections.events"


class Way(NamedTuple):
    """How a worker is connected, and what it does when the primary dies."""

    driver: Any
    path: str
    mode: str

    @property
    def name(self) -> str:
        return f"{self.driver}_{self.path}_{self.mode}"

    def address(self, servers: Pair) -> str:
        return servers.direct(self.name) if self.path == "direct" else servers.pooled(self.name)

    @property
    def connection(self) -> ConnectionSettings:
        # With fewer connections than ranges and three, ranges take turns.
        return ConnectionSettings(driver=self.driver, max_connections=6 if self.mode == "scarce" else 8)


EVERY = [
    Way(*way)
    for way in itertools.product(
        ["asyncpg", "psycopg"], ["direct", "pooled"], ["paused", "scarce", "idle", "busy"]
    )
]
SOME = [
    Way("asyncpg", "direct", "scarce"),
    Way("psycopg", "direct", "paused"),
    Way("asyncpg", "pooled", "idle"),
    Way("psycopg", "pooled", "busy"),
    Way("asyncpg", "pooled", "paused"),
]


class Heard(Told):
    """Counts heartbeats, after which a pause has been taken in."""

    def heartbeat(self, pulse: Any) -> None:
        self._tell("heartbeat", pulse)

    def went_back(self, *args: Any) -> None:
        self._tell("went_back", *args)

    async def two_heartbeats(self) -> None:
        await self.first("heartbeat", len(self.all("heartbeat")) + 2)


class Worker:
    """A worker in this process on a database of its own, and who appends there."""

    def __init__(self, way: Way, database: Database, told: Heard) -> None:
        self.way = way
        self.database = database
        self.told = told
        self.live: list[EventEnvelope] = []
        """What a live reader beside it was given."""
        self.reading = asyncio.create_task(self._read())

    @classmethod
    @asynccontextmanager
    async def started(cls, way: Way, servers: Pair) -> AsyncIterator[Worker]:
        async with connect(way.address(servers), way.connection) as database:
            worker = cls(way, database, told := Heard())
            async with running(
                database, recording(batch_size=5), ranges=RANGES, observer=told, settings=settings()
            ):
                yield worker
            worker.reading.cancel()
            await asyncio.wait([worker.reading])

    async def _read(self) -> None:
        async for envelope in live_events(self.database, "plane", start=BEGINNING):
            self.live.append(envelope)

    async def append(self, turns: int) -> None:
        for _ in range(turns):
            await happen(self.database, *SOURCES)

    async def before(self) -> None:
        """Handle what is to be lost, and then be as the primary dies."""
        await self.append(3)
        await until(self.database, _HANDLED)
        if self.way.mode == "paused":
            async with self.database.session() as session:
                await offsets.set_paused(session, "p", paused=True)
            await self.told.two_heartbeats()

    async def during(self, over: asyncio.Event) -> None:
        """Append all the time, if busy, over what is lost of it."""
        while self.way.mode == "busy" and not over.is_set():
            with suppress(ProjectionsError, TimeoutError):
                await happen(self.database, *SOURCES[:3])

    async def after(self) -> None:
        """Append what uses the lost numbers again, and handle it."""
        await self.reachable()
        await self.append(2)
        async with self.database.session() as session:
            await offsets.set_paused(session, "p", paused=False)
        await self.append(2)
        await until(self.database, _HANDLED)

    async def reachable(self) -> None:
        async with asyncio.timeout(300):
            while True:
                with suppress(ProjectionsError, TimeoutError):
                    await execute(self.database, "INSERT INTO effects SELECT WHERE FALSE")
                    return

    async def check(self) -> None:
        handled = await effects(self.database)
        assert sorted(f"{source_id} {seq_nr}" for source_id, seq_nr in handled) == sorted(
            await fetchval(self.database, _STORED)
        ), self.way
        for wanted in SOURCES:
            numbers = [seq_nr for source_id, seq_nr in handled if source_id == wanted]
            assert numbers == list(range(1, len(numbers) + 1)), (self.way, wanted)
        assert self.told.all("parked") == []
        await self._check_live()

    async def _check_live(self) -> None:
        """A reader that met the fail-over has ended and says so; through the pooler most have heard of nothing."""
        async with asyncio.timeout(300):
            while not set(held := await _ids(self.database)) <= {e.event_id for e in self.live}:
                if self.reading.done():
                    assert isinstance(self.reading.exception(), DatabaseUnavailable | TimeoutError), self.way
                    break
                await asyncio.sleep(0.001)
        given = [e.event_id for e in self.live]
        assert len(given) == len(set(given)), self.way
        order = [event_id for event_id in given if event_id in set(held)]
        numbers = {e.event_id: (e.source_id, e.seq_nr) for e in self.live}
        for wanted in SOURCES:
            assert (ns := [numbers[i][1] for i in order if numbers[i][0] == wanted]) == sorted(ns), self.way


async def _ids(database: Database) -> list[UUID]:
    async with database.session() as session:
        return [row["event_id"] for row in await session.fetch("SELECT event_id FROM projections.events")]


async def _fail_over(base: Server, ways: Sequence[Way]) -> None:
    async with pair(base, *(way.name for way in ways), pooler=True) as servers, AsyncExitStack() as stack:
        for way in ways:
            async with connect(servers.primary.dsn(way.name)) as database:
                await execute(database, EFFECTS)
        await asyncio.to_thread(servers.follow)
        workers = [await stack.enter_async_context(Worker.started(way, servers)) for way in ways]
        await asyncio.gather(*(worker.append(2) for worker in workers))
        await asyncio.gather(*(until(worker.database, _HANDLED) for worker in workers))
        await asyncio.to_thread(servers.cut)
        await asyncio.gather(*(worker.before() for worker in workers))
        over = asyncio.Event()
        busy = [asyncio.create_task(worker.during(over)) for worker in workers]

        await servers.fail_over()

        over.set()
        await asyncio.gather(*busy)
        await asyncio.gather(*(worker.after() for worker in workers))
        for worker in workers:
            await worker.check()


async def test_what_the_promoted_standby_holds_is_handled_once(base_cluster: Server) -> None:
    await _fail_over(base_cluster, SOME)


@pytest.mark.slow
async def test_it_is_so_with_every_driver_path_and_load(base_cluster: Server) -> None:
    await _fail_over(base_cluster, EVERY)
