"""What a transaction of the library's tells the code that it is lent to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from journal import AppendConflict, ConnectionSettings, Database, DatabaseError, Session, append, connect
from tests.fixtures.journal import event, stored


@pytest.fixture(params=["asyncpg", "psycopg"])
async def either(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    """A database through each of the drivers."""
    async with connect(dsn, ConnectionSettings(driver=request.param)) as pool:
        yield pool


async def divide_by_zero(session: Session) -> None:
    await session.execute("SELECT 1 / 0")


async def conflict(session: Session) -> None:
    await append(session, [event("a")], expected_seq_nr=0)


async def append_and_swallow(database: Database, fail: Callable[[Session], Awaitable[None]]) -> None:
    async with database.transaction() as session:
        await append(session, [event("a")])
        with suppress(DatabaseError, AppendConflict):
            await fail(session)


async def test_a_swallowed_error_does_not_end_in_a_commit_that_stores_nothing(either: Database) -> None:
    with pytest.raises(DatabaseError, match=r"nothing was committed.*division by zero.*savepoint"):
        await append_and_swallow(either, divide_by_zero)

    assert await stored(either, "a") == []


async def test_a_swallowed_conflict_is_named_as_the_reason(either: Database) -> None:
    with pytest.raises(DatabaseError, match=r"nothing was committed.*'a' is at seq_nr 1, expected 0"):
        await append_and_swallow(either, conflict)


async def test_an_error_that_a_savepoint_undid_does_not_stop_the_commit(either: Database) -> None:
    async with either.transaction() as session:
        await append(session, [event("a")])
        with suppress(AppendConflict):
            async with session.savepoint():
                await conflict(session)

    assert [envelope.seq_nr for envelope in await stored(either, "a")] == [1]
