"""Appending on a connection of the caller's: every driver, one behaviour."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session as OrmSession
from sqlalchemy.pool import NullPool

from journal import (
    AppendConflict,
    Appended,
    ConnectionSettings,
    Database,
    DatabaseError,
    Event,
    RawJson,
    append,
    append_sync,
    connect,
)
from tests.fixtures.journal import count, event, stored


class Caller(NamedTuple):
    """A transaction of the caller's: how it appends, and how it writes to a table of its own."""

    append: Callable[..., Awaitable[list[Appended]]]
    execute: Callable[[str], Awaitable[Any]]


Way: TypeAlias = Callable[[str], AbstractAsyncContextManager[Caller]]


def _caller(connection: Any, execute: Callable[[str], Awaitable[Any]]) -> Caller:
    async def run(events: Sequence[Event], **arguments: Any) -> list[Appended]:
        return await append(connection, events, **arguments)

    return Caller(run, execute)


def _sync_caller(connection: Any, execute: Callable[[str], Any]) -> Caller:
    async def run(events: Sequence[Event], **arguments: Any) -> list[Appended]:
        return append_sync(connection, events, **arguments)

    async def run_sql(statement: str) -> None:
        execute(statement)

    return Caller(run, run_sql)


@asynccontextmanager
async def by_asyncpg(dsn: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            yield _caller(connection, connection.execute)
    finally:
        await connection.close()


@asynccontextmanager
async def by_asyncpg_pool(dsn: str) -> AsyncIterator[Caller]:
    async with (
        asyncpg.create_pool(dsn, min_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield _caller(connection, connection.execute)


@asynccontextmanager
async def by_psycopg_async(dsn: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(dsn, row_factory=dict_row) as connection:
        yield _caller(connection, connection.execute)


@asynccontextmanager
async def by_psycopg_sync(dsn: str) -> AsyncIterator[Caller]:
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        yield _sync_caller(connection, connection.execute)


@asynccontextmanager
async def by_sqlalchemy_asyncpg(dsn: str) -> AsyncIterator[Caller]:
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(dsn), poolclass=NullPool
    )
    async with engine.begin() as connection:
        yield _caller(connection, lambda statement: connection.execute(text(statement)))


@asynccontextmanager
async def by_sqlalchemy_psycopg(dsn: str) -> AsyncIterator[Caller]:
    engine = create_async_engine(
        "postgresql+psycopg://",
        async_creator=lambda: psycopg.AsyncConnection.connect(dsn),
        poolclass=NullPool,
    )
    async with AsyncSession(engine) as session, session.begin():
        yield _caller(session, lambda statement: session.execute(text(statement)))


@asynccontextmanager
async def by_sqlalchemy_sync(dsn: str) -> AsyncIterator[Caller]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=NullPool)
    with engine.begin() as connection:
        yield _sync_caller(connection, lambda statement: connection.execute(text(statement)))


@asynccontextmanager
async def by_sqlalchemy_orm_session(dsn: str) -> AsyncIterator[Caller]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=NullPool)
    with OrmSession(engine) as session, session.begin():
        yield _sync_caller(session, lambda statement: session.execute(text(statement)))


@asynccontextmanager
async def by_session(dsn: str) -> AsyncIterator[Caller]:
    async with connect(dsn) as database, database.transaction() as session:
        yield _caller(session, session.execute)


@asynccontextmanager
async def by_psycopg_session(dsn: str) -> AsyncIterator[Caller]:
    async with (
        connect(dsn, ConnectionSettings(driver="psycopg")) as database,
        database.transaction() as session,
    ):
        yield _caller(session, session.execute)


WAYS: list[Way] = [
    by_asyncpg,
    by_asyncpg_pool,
    by_psycopg_async,
    by_psycopg_sync,
    by_sqlalchemy_asyncpg,
    by_sqlalchemy_psycopg,
    by_sqlalchemy_sync,
    by_sqlalchemy_orm_session,
    by_session,
    by_psycopg_session,
]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param  # type: ignore[no-any-return]


class Undone(Exception):
    """What the caller's own code raises."""


async def _table(database: Database) -> None:
    async with database.session() as session:
        await session.execute("CREATE TABLE landings (plane text)")


async def test_event_and_the_callers_row_commit_together(way: Way, dsn: str, database: Database) -> None:
    await _table(database)

    async with way(dsn) as caller:
        await caller.execute("INSERT INTO landings VALUES ('a')")
        (first, second) = await caller.append([event(), event()])

    assert (first.seq_nr, second.seq_nr) == (1, 2)
    assert [e.event_id for e in await stored(database, "a")] == [first.event_id, second.event_id]
    assert await count(database, "landings") == 1


async def test_event_and_the_callers_row_roll_back_together(way: Way, dsn: str, database: Database) -> None:
    await _table(database)

    async def write_and_fail() -> None:
        async with way(dsn) as caller:
            await caller.execute("INSERT INTO landings VALUES ('a')")
            await caller.append([event()])
            raise Undone

    with pytest.raises(Undone):
        await write_and_fail()

    assert (await count(database), await count(database, "projections.sources")) == (0, 0)
    assert await count(database, "landings") == 0


async def test_conflict_is_the_same_error_on_every_connection(way: Way, dsn: str) -> None:
    with pytest.raises(AppendConflict) as caught:
        async with way(dsn) as caller:
            await caller.append([event('it\'s "x"')], expected_seq_nr=4)

    conflict = caught.value
    assert (conflict.source_id, conflict.expected, conflict.found) == ('it\'s "x"', 4, 0)
    assert "seq_nr 0, expected 4" in str(conflict)


async def test_every_connection_writes_the_same_values(way: Way, dsn: str, database: Database) -> None:
    odd = ['"', "'", "a,b", "{x}", "\\", "\\N", "NULL", "null", " ", "ä€😀", "%s", ":p1", "$1"]
    payload = RawJson('{ "b" : 1.0, "a":1,"c":"\\u00e9 %s :p1 $1" }')

    async with way(dsn) as caller:
        await caller.append(
            [event(payload=payload, tags=odd, metadata={"who": odd}, version=7), event(tags=["x"])]
        )

    first, second = await stored(database, "a")
    assert (first.payload_json, first.tags, first.metadata, first.version) == (payload, odd, {"who": odd}, 7)
    assert (second.tags, second.metadata_json, second.version) == (["x"], None, 1)


async def test_unknown_connection_is_named() -> None:
    with pytest.raises(TypeError, match=r"cannot append on builtins\.object: pass a Session, asyncpg's"):
        await append(object(), [event()])
    with pytest.raises(TypeError, match=r"cannot append on builtins\.object: pass psycopg's"):
        append_sync(object(), [event()])


async def test_plain_sql_commits_with_its_transaction(dsn: str, database: Database) -> None:
    sql = (
        "SELECT * FROM projections.append_event_v1("
        "'a', 'plane', 'Landed', '{\"x\" : 1.0}', p_tags => ARRAY['a,b', '\"'])"
    )
    with psycopg.connect(dsn) as connection:
        connection.execute(sql)
        connection.rollback()
        row = connection.execute(sql.encode()).fetchone()

    (only,) = await stored(database, "a")
    assert row == (1, only.db_timestamp, only.event_id)
    assert (only.payload_json, only.tags) == ('{"x" : 1.0}', ["a,b", '"'])


async def test_plain_sql_conflict_carries_its_numbers(dsn: str) -> None:
    with psycopg.connect(dsn) as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute(
            "SELECT projections.append_event_v1('a', 'plane', 'Landed', '{}', p_expected_seq_nr => 3)"
        )

    assert caught.value.sqlstate == "PJ001"
    assert json.loads(str(caught.value.diag.message_detail)) == {"source_id": "a", "expected": 3, "found": 0}


async def test_spoiled_transaction_is_a_database_error(way: Way, dsn: str) -> None:
    async def append_after_a_conflict() -> None:
        async with way(dsn) as caller:
            with pytest.raises(AppendConflict):
                await caller.append([event()], expected_seq_nr=1)
            await caller.append([event()])

    with pytest.raises(DatabaseError, match="aborted"):
        await append_after_a_conflict()
