"""PostgreSQL killed between publish and match, and between match and read: nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from journal import Database, ProjectionsError, Session, schema
from journal.database import connect
from journal.embedded import EmbeddedServer
from projections.subscriptions import Consumer, live_reader, reading
from projections.subscriptions.listening import Listener
from projections.subscriptions.reading import SettledMatches
from tests.chaos.server import server_of_its_own, stop_at_once
from tests.fixtures.locks import WAITING
from tests.fixtures.matching import HELD, execute, match, matched, publish, subscribe, tend
from tests.fixtures.projections import until
from tests.fixtures.subscriptions import Seen, consuming, landed_and_matched, quick, until_handled

READ = """
SELECT n.seq_nr FROM projections.poll_group_v1('g', 'reader', '1 hour') AS r
CROSS JOIN LATERAL projections.read_next_v1('g', r.min_slice, r.max_slice, r.cursor, $1, $2) AS n
"""
MOVE = """
SELECT projections.move_cursor_v1('g', r.min_slice, r.epoch, $1)
FROM projections.poll_group_v1('g', 'reader', '1 hour') AS r
"""
OTHERS_END = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


class Crashing:
    """A server that is killed and started again, with a connection to it."""

    def __init__(self, server: EmbeddedServer, dsn: str) -> None:
        self.server = server
        self.dsn = dsn

    async def crash(self) -> None:
        stop_at_once(self.server)
        await asyncio.to_thread(self.server.start)

    async def read(self, database: Database, limit: int) -> list[int]:
        async with database.session() as session:
            settled = await session.fetchval("SELECT projections.settled_matches_v1()")
            return [row["seq_nr"] for row in await session.fetch(READ, settled, limit)]


@pytest.fixture
async def crashing() -> AsyncIterator[Crashing]:
    async with server_of_its_own() as (server, dsn):
        await asyncio.to_thread(schema.install, dsn)
        yield Crashing(server, dsn)


@pytest.mark.slow
async def test_a_crash_between_publish_and_match_loses_nothing(crashing: Crashing) -> None:
    due = datetime.now(UTC) - timedelta(days=1)
    async with connect(crashing.dsn) as database:
        number = await subscribe(database)
        await publish(database, "t", "t", "t")
        await publish(database, "t", "t", not_before=[due, None], subscription_ids=[None, number])
    await crashing.crash()

    async with connect(crashing.dsn) as database:
        await match(database)
        await tend(database)

        assert sorted(n for _, n in await matched(database)) == [1, 2, 3, 4, 5]


@pytest.mark.slow
async def test_a_crash_while_matching_matches_each_once(crashing: Crashing) -> None:
    async with connect(crashing.dsn) as database:
        await execute(database, HELD)
        await subscribe(database)
        await publish(database, *["t"] * 10)
        async with database.session() as holder:
            await holder.execute("SELECT pg_advisory_lock(7)")
            task = asyncio.create_task(match(database))
            await until(database, f"SELECT count(*) > 0 FROM {WAITING} WHERE locktype = 'advisory'")
            await crashing.crash()
            with suppress(ProjectionsError):
                await holder.fetchval("SELECT 1")
        with suppress(ProjectionsError):
            await task

    async with connect(crashing.dsn) as database:
        await match(database)

        assert [n for _, n in await matched(database)] == list(range(1, 11))


@pytest.mark.slow
async def test_a_crash_between_match_and_read_loses_and_repeats_nothing(crashing: Crashing) -> None:
    async with connect(crashing.dsn) as database:
        await subscribe(database)
        await publish(database, *["t"] * 10)
        await match(database)
        assert await crashing.read(database, 4) == [1, 2, 3, 4]
        await execute(database, MOVE, 4)
        # Numbers that a crash may give out again, or leave out.
        await publish(database, "t")
    await crashing.crash()

    async with connect(crashing.dsn) as database:
        assert await crashing.read(database, 100) == [5, 6, 7, 8, 9, 10]
        await publish(database, "t")
        await match(database)

        assert await crashing.read(database, 100) == [5, 6, 7, 8, 9, 10, 11, 12]


async def test_a_consumer_reads_what_gets_numbers_that_a_crash_took_back(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, ask = Polls(1000), reading.look
    monkeypatch.setattr(reading, "look", passed.wrap(ask))
    seen, consumer = Seen(), Consumer(database, "g", settings=quick())
    consumer.handle(seen, name="h")
    async with consuming(database, consumer):
        await landed_and_matched(database, "a")
        await seen.until_events(1)
        # A batch that was rolled back leaves numbers without matches; the log of them need not be on disk.
        await execute(database, "SELECT nextval('projections.match_ids') FROM generate_series(1, 1000)")
        await passed.twice.wait()
        await execute(database, "SELECT setval('projections.match_ids', 1)")
        await execute(database, OTHERS_END)
        await landed_and_matched(database, "b")

        await seen.until_events(2)


async def test_a_consumer_reads_what_gets_numbers_that_were_taken_back_behind_its_connection(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, back, ask = Polls(1000), Polls(0, 1), reading.look
    monkeypatch.setattr(reading, "look", passed.wrap(back.wrap(ask)))
    seen, consumer = Seen(), Consumer(database, "g", settings=quick())
    consumer.handle(seen, name="h")
    async with consuming(database, consumer):
        await landed_and_matched(database, "a")
        await seen.until_events(1)
        await execute(database, "SELECT nextval('projections.match_ids') FROM generate_series(1, 1000)")
        await passed.twice.wait()
        back.forget()
        await execute(database, "SELECT setval('projections.match_ids', 1)")
        await back.twice.wait()
        await landed_and_matched(database, "b")

        await seen.until_events(2)


async def test_a_consumer_goes_back_with_its_cursor(database: Database) -> None:
    seen, consumer = Seen(), Consumer(database, "g", settings=quick())
    consumer.handle(seen, name="h")
    async with consuming(database, consumer):
        await landed_and_matched(database, "a", "b")
        await until_handled(database)
        await execute(database, "UPDATE projections.group_ranges SET cursor = 0")

        await seen.until_events(4)

    assert seen.events == [("a", 1), ("b", 1)] * 2


async def test_a_listener_is_given_what_gets_numbers_that_a_crash_took_back(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = Polls(1000)
    monkeypatch.setattr(live_reader, "look", passed.wrap(live_reader.look))
    async with Listener(database, "l") as listener, listener.listen() as events:
        await execute(database, "SELECT nextval('projections.match_ids') FROM generate_series(1, 1000)")
        await passed.twice.wait()
        await execute(database, "SELECT setval('projections.match_ids', 1)")
        await execute(database, OTHERS_END)
        await landed_and_matched(database, "a")

        async with asyncio.timeout(300):
            assert (await anext(aiter(events))).envelope.source_id == "a"


class Polls:
    """Tells when a consumer has twice been told a number within bounds: what it read after the first is read."""

    def __init__(self, least: int, most: int = 2**63) -> None:
        self.twice = asyncio.Event()
        self._bounds = least, most
        self._count = 0

    def forget(self) -> None:
        self.twice.clear()
        self._count = 0

    def wrap(
        self, ask: Callable[[Session], Awaitable[SettledMatches]]
    ) -> Callable[[Session], Awaitable[SettledMatches]]:
        async def asked(session: Session) -> SettledMatches:
            look = await ask(session)
            self._count += self._bounds[0] <= look.settled <= self._bounds[1]
            if self._count >= 2:
                self.twice.set()
            return look

        return asked
