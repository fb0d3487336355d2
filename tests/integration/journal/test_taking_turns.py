"""More ranges than connections: each holds one only while it has something to ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

import offsets
from journal import (
    ConnectionSettings,
    Database,
    EntityTypes,
    PollPacing,
    WritersPoller,
    connect,
    slice_ranges,
)
from journal.polling import Look
from offsets import Claim
from projections import StatusObserver
from projections.defining.handlers import projection_of
from projections.failing.streak import Streak
from projections.running.process import Process
from projections.running.range_runner import RangeRunner
from tests.fixtures.projections import (
    EFFECTS,
    each_once,
    effects,
    execute,
    happen,
    recording,
    settings,
    until_effects,
)

NEVER = PollPacing(timedelta(days=10_000), timedelta(days=10_000))
SOURCES = [f"s{number}" for number in range(12)]


class Poller(WritersPoller):
    """Polls only when it is woken, and tells when so many ranges wait for that."""

    def __init__(self, database: Database, ranges: int) -> None:
        super().__init__(database, NEVER)
        self._missing = ranges
        self.all_wait = asyncio.Event()

    async def look(self, *args: Any, **options: Any) -> Look:
        self._missing -= 1
        if not self._missing:
            self.all_wait.set()
        return await super().look(*args, **options)


@pytest.fixture
async def smallest(dsn: str) -> AsyncIterator[Database]:
    """A pool of which ranges share one connection."""
    async with connect(dsn, ConnectionSettings(max_connections=4)) as pool:
        await execute(pool, EFFECTS)
        yield pool


async def claims(process: Process, ranges: int) -> list[Claim]:
    async with process.database.session() as session:
        number = await offsets.register(session, "p", "plane", slice_ranges(ranges))
        known = {number: offsets.Registered("p", 1, EntityTypes(("plane",)))}
        (told,) = await offsets.heartbeat(session, process.worker, timedelta(hours=1), known, offsets.Beats())
    return [held.claim for held in told.held]


async def test_ranges_that_wait_for_a_poll_hold_no_connection_that_others_need_to_begin(
    smallest: Database,
) -> None:
    """So that one poll is for all of them, and not each range waits for one of its own."""
    await happen(smallest, *SOURCES)
    process = Process(smallest, settings(), StatusObserver(), asyncio.Event())
    (read,) = process.logs
    read.poller = poller = Poller(smallest, 5)
    definition = projection_of(recording())
    runners = [
        RangeRunner(definition, claim, process, 100, Streak(10), read=read)
        for claim in await claims(process, 5)
    ]
    running = [asyncio.create_task(runner.run()) for runner in runners]

    async with asyncio.timeout(300):
        await poller.all_wait.wait()
    poller.wake()
    await until_effects(smallest, len(SOURCES))
    for runner in runners:
        runner.stop()
    await asyncio.gather(*running)
    await poller.close()

    each_once(await effects(smallest), **dict.fromkeys(SOURCES, 1))
