"""Readers of a group keep their ranges whatever somebody else has locked."""

from __future__ import annotations

from datetime import timedelta

import pytest

from journal import Database, DatabaseError, Session
from projections.subscriptions import create_group
from tests.fixtures.projections import execute

LEASE = timedelta(minutes=1)
POLL = "SELECT min_slice, max_slice, kept FROM projections.poll_group_v1('g', $1, $2, $3)"
LEFT = "SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 FROM projections.workers WHERE owner = $1"


@pytest.fixture(autouse=True)
async def group(database: Database) -> None:
    async with database.session() as session:
        await create_group(session, "g", ranges=2)


async def poll(
    session: Session, owner: str, *, joined: bool = True, lease: timedelta = LEASE
) -> list[tuple[int, int, bool]]:
    await session.execute("SET statement_timeout = '5s'")
    return [tuple(row.values()) for row in await session.fetch(POLL, owner, lease, joined)]


async def test_one_who_rescales_in_an_open_transaction_holds_up_no_reader(database: Database) -> None:
    async with database.session() as reader, database.transaction() as rescaling:
        found = await poll(reader, "a", joined=False)
        assert found == [(0, 511, True), (512, 1023, True)]
        await execute(database, "UPDATE projections.workers SET lease_until = clock_timestamp()")
        await rescaling.execute("SELECT projections._cut_group_v1('g', ARRAY[0, 256, 512])")

        assert await poll(reader, "a") == found
        assert await poll(reader, "b", joined=False) == []  # it has joined, and is assigned ranges later
        assert await reader.fetchval(LEFT, "a") > 30


async def test_after_it_the_next_poll_assigns(database: Database) -> None:
    async with database.session() as reader:
        await poll(reader, "a", joined=False)
        async with database.transaction() as rescaling:
            await rescaling.execute("SELECT projections._cut_group_v1('g', ARRAY[0, 256])")
            await poll(reader, "b", joined=False)

        first, second = await poll(reader, "a"), await poll(reader, "b")

    assert (first, second) == ([(0, 255, True)], [(256, 1023, True)])


async def test_a_dead_reader_whose_row_is_locked_holds_up_no_other(database: Database) -> None:
    async with database.session() as reader, database.transaction() as hanging:
        await poll(reader, "dead", joined=False)
        await execute(database, "UPDATE projections.workers SET lease_until = clock_timestamp()")
        await hanging.execute("SELECT FROM projections.workers WHERE owner = 'dead' FOR UPDATE")

        assert await poll(reader, "b", joined=False) == []

        await hanging.rollback()
        assert await poll(reader, "b") == [(0, 511, True), (512, 1023, True)]


async def test_a_reader_that_is_not_known_is_told(database: Database) -> None:
    async with database.session() as reader:
        with pytest.raises(DatabaseError, match="reader 'a' of group 'g' is not known"):
            await poll(reader, "a")
