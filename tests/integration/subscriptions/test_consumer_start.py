"""Handlers that start in the past, in processes of their own, beside a worker that matches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from journal import Database
from projections import InvalidHandler
from projections.subscriptions import Consumer, InvalidSubscription, create_group, subscribe
from tests.fixtures.commands import COMMAND, environment
from tests.fixtures.past import until_settled
from tests.fixtures.projections import fetchval, until
from tests.fixtures.subscriptions import Seen, consuming_process, end_leases, landed, quick, until_handled

BEGUN = "SELECT count(*) > 0 FROM projections.projections AS p WHERE p.name LIKE 'matching%'"
SUBSCRIBED = "SELECT count(*) = 1 FROM projections.subscriptions"


@asynccontextmanager
async def worker(dsn: str, database: Database, cwd: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that matches, for the length of the block, which begins when it does; some event must be there."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "worker", "--subscriptions", "--lease", "1s", "--dsn", dsn,
        cwd=cwd, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, env=environment(),
    )  # fmt: skip
    try:
        await until(database, BEGUN)
        yield process
    finally:
        process.kill()
        await process.wait()


async def until_got(process: asyncio.subprocess.Process, number: int) -> None:
    """Wait until a process has had so many events; none has more."""
    assert process.stdout is not None
    got = 0
    async with asyncio.timeout(300):
        while got < number:
            got += int(await process.stdout.readline())
    assert got == number


@pytest.fixture
async def matched(dsn: str, database: Database, tmp_path: Path) -> AsyncIterator[None]:
    """Twenty events of before, and a worker that matches."""
    await landed(database, *(f"s{number % 4}" for number in range(20)))
    async with worker(dsn, database, tmp_path):
        yield


@pytest.mark.usefixtures("matched")
class TestProcesses:
    @pytest.mark.slow
    async def test_from_the_beginning_and_the_next_process_goes_on(
        self, dsn: str, database: Database
    ) -> None:
        for start, number in (("beginning", 20), ("beginning", 0), ("now", 0)):
            async with consuming_process(dsn, "h", seconds=0, topics=["Landed"], start=start) as process:
                await landed(database, "a", "b")
                await until_got(process, number + 2)
                await until_handled(database)
            await end_leases(database)
            assert await fetchval(database, SUBSCRIBED)

    @pytest.mark.slow
    async def test_from_now_on(self, dsn: str, database: Database) -> None:
        await until_settled(database)  # of the second before, some may come, too
        async with consuming_process(dsn, "h", seconds=0, topics=["Landed"], start="now") as process:
            await until(database, SUBSCRIBED)
            await landed(database, "a", "b")
            await until_got(process, 2)
            await until_handled(database)

    @pytest.mark.slow
    async def test_from_a_time_on(self, dsn: str, database: Database) -> None:
        start = await fetchval(database, "SELECT clock_timestamp()")
        await landed(database, "a", "b", "c")
        async with consuming_process(dsn, "h", seconds=0, topics=["Landed"], start=start) as process:
            await until_got(process, 3)
            await until_handled(database)

    @pytest.mark.slow
    async def test_for_a_group_that_is_known_and_has_read(self, dsn: str, database: Database) -> None:
        async with database.session() as session:
            await create_group(session, "g", ranges=4)
            await subscribe(session, "g", topics=["Other"])
        async with consuming_process(dsn, "h", seconds=0, topics=["Landed"], start="beginning") as process:
            await until_got(process, 20)
            await until_handled(database)
        await end_leases(database)
        async with consuming_process(
            dsn, "new", seconds=0, topics=["Landed"], start="beginning", params={"for": "new"}
        ) as process:
            await until_got(process, 20)


def consumer(database: Database, **starts: datetime | str) -> Consumer:
    made = Consumer(database, "g", settings=quick())
    for name, start in starts.items():
        made.handle(Seen(), name=name, topics=["t"], start=start)
    return made


async def test_handlers_that_ask_for_the_same_from_different_times_are_refused(database: Database) -> None:
    for starts in (
        {"one": "now", "two": "beginning"},
        {"one": "beginning", "two": datetime(2020, 1, 1, tzinfo=UTC)},
    ):
        with pytest.raises(InvalidHandler, match="'one' and 'two' share a subscription"):
            await consumer(database, **starts).run()
    assert await fetchval(database, "SELECT count(*) FROM projections.subscriptions") == 0


async def test_a_start_that_cannot_be_is_refused_when_it_runs(database: Database) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    for start in (later, later.replace(tzinfo=None), "tomorrow"):
        with pytest.raises(InvalidSubscription, match="start"):
            await consumer(database, one=start).run()
