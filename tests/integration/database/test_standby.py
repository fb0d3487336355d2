"""A standby: what can be read there goes by the time that it has replayed; the rest is refused with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from journal import (
    BEGINNING,
    ConnectionSettings,
    Database,
    DatabaseUnavailable,
    EntityTypes,
    Event,
    IntervalBacktracking,
    WritersPoller,
    append,
    connect,
    current_events,
)
from journal.errors import NeedsPrimary
from journal.polling import Polled, hearing_polls
from offsets import live_events
from projections.monitoring.snapshot import snapshot
from spark_projections.reading.horizon import NoHorizon, settled_now
from spark_projections.reading.logs import ReadLog
from tests.fixtures.commands import called, projections
from tests.fixtures.failover import Pair, Server, pair
from tests.fixtures.projections import execute, happen

BY_INTERVAL = partial(
    IntervalBacktracking, late_by=timedelta(milliseconds=300), every=timedelta(milliseconds=50)
)
READ = [
    ["status"],
    ["lag"],
    ["lag", "--slices"],
    ["workers"],
    ["offsets", "list"],
    ["offsets", "verify"],
    ["parked", "list", "p"],
    ["groups"],
    ["subscriptions"],
    ["partitions"],
    ["captures", "list"],
    ["rebuilds", "list"],
    ["webhooks", "endpoints", "list"],
    ["webhooks", "deliveries", "list"],
    ["webhooks", "dead", "list"],
    ["webhooks", "events", "list"],
    ["webhooks", "attempts", "list"],
    ["webhooks", "schedules", "list"],
    ["webhooks", "stats"],
    ["webhooks", "metrics"],
]
WRITTEN = [
    ["pause", "p"],
    ["worker", "--subscriptions", "--until-caught-up"],
    ["publish", "order.paid", "{}"],
    ["maintain"],
]


class Followed:
    """Both servers, with a pool on each."""

    def __init__(self, servers: Pair, primary: Database, standby: Database) -> None:
        self.servers = servers
        self.primary = primary
        self.standby = standby

    def replayed(self) -> None:
        """Wait until the standby has what the primary has committed."""
        until = self.servers.primary.value("SELECT pg_current_wal_insert_lsn()")
        self.servers.standby.until(f"SELECT pg_last_wal_replay_lsn() >= '{until}'")

    def pause(self) -> None:
        self.servers.standby.value("SELECT pg_wal_replay_pause()")
        self.servers.standby.until("SELECT pg_get_wal_replay_pause_state() = 'paused'")

    def resume(self) -> None:
        self.servers.standby.value("SELECT pg_wal_replay_resume()")


@pytest.fixture
async def followed(base_cluster: Server) -> AsyncIterator[Followed]:
    async with pair(base_cluster, "one") as servers:
        servers.follow()
        async with (
            connect(servers.primary.dsn("one")) as primary,
            connect(servers.standby.dsn("one"), ConnectionSettings(max_connections=5)) as standby,
        ):
            yield Followed(servers, primary, standby)


class Live:
    """A live reader of the standby, in the background."""

    def __init__(self, database: Database) -> None:
        self.polls = 0
        self.seen: list[tuple[str, int]] = []
        self._database = database
        self._more = asyncio.Condition()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        with hearing_polls(self._database, self._polled):
            async with asyncio.TaskGroup() as group:
                task = group.create_task(self._read())
                await self.polled(1)
                yield
                task.cancel()

    def _polled(self, _: Polled) -> None:
        self.polls += 1

    async def _read(self) -> None:
        events = live_events(self._database, "plane", backtracking=BY_INTERVAL)
        async for event in events:
            self.seen.append((event.source_id, event.seq_nr))
            async with self._more:
                self._more.notify_all()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(300), self._more:
            await self._more.wait_for(lambda: len(self.seen) >= count)

    async def polled(self, times: int) -> None:
        """Wait for so many polls more."""
        number = self.polls + times
        async with asyncio.timeout(300):
            while self.polls < number:
                await asyncio.sleep(0.001)


@pytest.mark.slow
async def test_what_is_replayed_late_is_read(followed: Followed) -> None:
    live = Live(followed.standby)
    async with live.reading():
        followed.pause()
        for number in range(48):
            await happen(followed.primary, f"s{number % 5}")
        # Longer ago than what is read again, by the clocks of both servers; the reader has polled meanwhile.
        followed.servers.standby.until(
            "SELECT clock_timestamp() - projections._replayed_until_v1() > '1 s'", "one"
        )
        await live.polled(5)
        assert live.seen == []
        followed.resume()
        await live.until(48)

    assert len(set(live.seen)) == len(live.seen) == 48


async def test_a_late_commit_is_read_when_the_primary_commits_nothing_more(followed: Followed) -> None:
    live = Live(followed.standby)
    async with live.reading(), followed.primary.session() as late:
        await late.begin()
        await append(late, [Event("late", {}, entity_type="plane", event_type="Happened")])
        await happen(followed.primary, "early")
        await live.until(1)
        await live.polled(20)
        await late.commit()
        await live.until(2)

    assert live.seen == [("early", 1), ("late", 1)]


@pytest.mark.slow
async def test_a_reader_by_the_writers_lock_is_refused(followed: Followed) -> None:
    with pytest.raises(NeedsPrimary, match=r"standby.*target_session_attrs.*IntervalBacktracking"):
        await anext(live_events(followed.standby, "plane"))


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_poll_notices_that_its_connection_leads_to_a_standby_now_and_to_a_primary_again(
    base_cluster: Server, driver: Any
) -> None:
    async with pair(base_cluster, "one") as servers:
        servers.follow()
        either = servers.direct("one").replace("&target_session_attrs=read-write", "")
        async with connect(either, ConnectionSettings(driver=driver)) as database:
            poller = WritersPoller(database)
            first = await look(poller)
            servers.primary.kill()
            with pytest.raises(NeedsPrimary):
                await look(poller)
            await asyncio.to_thread(servers.standby.value, "SELECT pg_promote(TRUE)")
            again = await look(poller)
            await poller.close()

    assert first < again


async def look(poller: WritersPoller) -> int:
    """Poll again after connections that were lost."""
    while True:
        with suppress(DatabaseUnavailable):
            return (await poller.look("me", EntityTypes(("plane",)), BEGINNING, poller.number, 0)).number


@pytest.mark.slow
async def test_what_only_reads_works_and_what_writes_says_why_not(followed: Followed) -> None:
    await happen(followed.primary, "a", "b")
    await execute(followed.primary, "SELECT projections.register_projection_v1('p', '{plane}')")
    followed.replayed()
    dsn = followed.servers.standby.dsn("one")

    async with followed.standby.session() as session:
        await snapshot(session)
    found = [event.source_id async for event in current_events(followed.standby, "plane")]
    read = {" ".join(command): called(*command, "--dsn", dsn) for command in READ}
    doctor = called("doctor", "--dsn", dsn)
    written = {" ".join(command): projections(*command, "--dsn", dsn) for command in WRITTEN}
    with pytest.raises(NoHorizon, match="standby"):
        await asyncio.to_thread(settled_now, ReadLog(dsn), timedelta(seconds=1))

    assert found == ["a", "b"]
    assert {name: done.stderr for name, done in read.items() if done.returncode} == {}
    assert "it is a standby" in doctor.stdout + doctor.stderr
    for name, done in written.items():
        assert done.returncode == 1, name
        assert "Connect to the primary" in done.stderr, (name, done.stderr)
