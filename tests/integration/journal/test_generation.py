"""What the database tells of its own life; with two servers in test_failover.py."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

import psycopg
import pytest

from journal import (
    BEGINNING,
    ConnectionSettings,
    Database,
    EntityTypes,
    WritersPoller,
    connect,
    generation,
    hearing_polls,
)
from tests.fixtures.projections import fetchval


async def test_a_generation_is_followed_by_what_is_written_later(database: Database) -> None:
    async with database.session() as session:
        before = await generation(session)
    async with database.transaction() as session:
        await session.execute("SET LOCAL synchronous_commit = on")  # the place is of what is written out
        await session.execute("CREATE TABLE written ()")
    async with database.session() as session:
        after = await generation(session)

    assert after.follows(before)
    assert not before.follows(after)
    assert before.timeline >= 1
    assert before.started_at == await fetchval(database, "SELECT pg_postmaster_start_time()")


def test_it_needs_no_privilege_beyond_those_of_a_reader(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET ROLE projections_reader")

        found = connection.execute(
            "SELECT timeline, system_identifier FROM projections.generation_v1()"
        ).fetchone()

    assert found is not None
    assert None not in found


class Poller(WritersPoller):
    """One whose answers a test changes before they are looked at."""

    changes: ClassVar[dict[str, Any]] = {}

    async def _ask(self, *args: Any) -> Any:
        told = await super()._ask(*args)
        return replace(told, row={**dict(told.row.items()), **self.changes})


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_poll_that_does_not_follow_counts_and_its_connection_is_given_back(
    dsn: str, driver: Any
) -> None:
    async with connect(dsn, ConnectionSettings(driver=driver)) as database:
        poller = Poller(database)
        first = await poller.look("me", EntityTypes(("plane",)), BEGINNING, 0, 0)
        second = await poller.look("me", EntityTypes(("plane",)), BEGINNING, first.number, 0)
        kept = poller._session._session
        poller.changes = {"timeline": 77}
        third = await poller.look("me", EntityTypes(("plane",)), BEGINNING, second.number, 0)
        given_back = poller._session._session
        fourth = await poller.look("me", EntityTypes(("plane",)), BEGINNING, third.number, 0)
        poller.changes = {"timeline": 77, "wal_position": 1}
        fifth = await poller.look("me", EntityTypes(("plane",)), BEGINNING, fourth.number, 0)
        await poller.close()

    assert [look.generation for look in (first, second, third, fourth, fifth)] == [0, 0, 1, 1, 2]
    assert kept is not None
    assert given_back is None
    first_change, second_change = poller.back_to(0), poller.back_to(1)
    assert isinstance(first_change, datetime)
    assert isinstance(second_change, datetime)
    # Whoever has seen neither begins where the first was.
    assert (
        first_change <= third.poll.polled_at <= second_change <= fourth.poll.polled_at <= fifth.poll.polled_at
    )
    assert poller.back_to(2) is None


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_no_connection_of_before_is_lent_again_when_another_server_answers(
    dsn: str, driver: Any
) -> None:
    async with connect(dsn, ConnectionSettings(driver=driver, max_connections=3)) as database:

        async def pids() -> set[int]:
            async with database.session() as one, database.session() as other:
                return {await session.fetchval("SELECT pg_backend_pid()") for session in (one, other)}

        poller = Poller(database)
        first = await poller.look("me", EntityTypes(("plane",)), BEGINNING, 0, 0)
        await poller.close()
        before = await pids()
        async with database.session() as lent:
            before.add(await lent.fetchval("SELECT pg_backend_pid()"))
            poller.changes = {"timeline": 77}
            await poller.look("me", EntityTypes(("plane",)), BEGINNING, first.number, 0)
            await poller.close()
        after = await pids()

    assert not before & after


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_poll_tells_each_who_hears_it_the_number_that_he_asks_for(dsn: str, driver: Any) -> None:
    first: list[int] = []
    second: list[int] = []
    async with connect(dsn, ConnectionSettings(driver=driver)) as database:
        poller = WritersPoller(database)

        async def poll(after: int) -> int:
            look = await poller.look("range", EntityTypes(("plane",)), BEGINNING, after, 0)
            return look.number

        async with database.transaction() as session:
            await session.execute("CREATE SEQUENCE public.numbers")
        with hearing_polls(
            database, lambda told: first.append(told.number), number="nextval('public.numbers')"
        ):
            number = await poll(0)
            with hearing_polls(database, lambda told: second.append(told.number)):
                number = await poll(number)
        await poll(number)
        await poller.close()

    assert (first, second) == ([1, 2], [0])
