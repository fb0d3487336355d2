"""Statements that are queued run as they would have run one by one: in their order, before all else, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from journal import ConnectionSettings, Database, DatabaseError, OwnedSession, Session, connect
from journal.database.base import _MOST_QUEUED, _MOST_QUEUED_TEXT
from tests.fixtures.locks import OWN_LOCKS
from tests.fixtures.projections import execute

ADD = "INSERT INTO done (what) VALUES ($1)"
ADD_LATER = "INSERT INTO done (what) VALUES ($1 || ', the other way')"
DONE = "SELECT coalesce(array_agg(what ORDER BY n), '{}') FROM done"


@pytest.fixture(params=["asyncpg", "psycopg"])
async def either(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    """A database through each of the drivers."""
    async with connect(dsn, ConnectionSettings(driver=request.param)) as pool:
        await execute(
            pool, "CREATE TABLE done (n bigserial PRIMARY KEY, what text UNIQUE CHECK (what <> 'bad'))"
        )
        yield pool


async def done(database: Database) -> list[str]:
    async with database.session() as session:
        return list(await session.fetchval(DONE))


async def seen_by_others(database: Database) -> int:
    """How many locks on the table transactions have: none, before a statement of them has come to the server."""
    async with database.session() as session:
        return int(
            await session.fetchval(f"SELECT count(*) FROM {OWN_LOCKS} WHERE relation = 'done'::regclass")
        )


async def test_what_is_queued_is_sent_before_the_commit_and_not_before(either: Database) -> None:
    async with either.transaction() as session:
        await session.queue(ADD, "a")
        await session.queue(ADD, "b")
        assert await seen_by_others(either) == 0

    assert await done(either) == ["a", "b"]


async def test_the_order_is_that_of_queueing_over_statements_of_different_texts(either: Database) -> None:
    async with either.transaction() as session:
        await session.queue(ADD, "a")
        await session.queue(ADD_LATER, "b")
        await session.queue(ADD_LATER, "c")
        await session.queue(ADD, "d")

    assert await done(either) == ["a", "b, the other way", "c, the other way", "d"]


async def execute_one(session: Session) -> None:
    await session.execute(ADD, "direct")


async def execute_several(session: Session) -> None:
    await session.executemany(ADD, [["direct"]])


async def copy(session: Session) -> None:
    await session.copy_rows(("public", "done"), ["what"], [["direct"]])


async def in_a_savepoint(session: Session) -> None:
    async with session.savepoint():
        await session.queue(ADD, "direct")


async def on_the_connection(session: Session) -> None:
    await session.flush()
    await session.connection.execute("INSERT INTO done (what) VALUES ('direct')")


@pytest.mark.parametrize("direct", [execute_one, execute_several, copy, in_a_savepoint, on_the_connection])
async def test_what_is_queued_runs_before_what_is_run_directly(either: Database, direct: Any) -> None:
    async with either.transaction() as session:
        await session.queue(ADD, "before")
        await direct(session)
        await session.queue(ADD, "after")

    assert await done(either) == ["before", "direct", "after"]


@pytest.mark.parametrize("read", ["fetch", "fetchrow", "fetchval"])
async def test_a_query_sees_what_was_queued_before_it(either: Database, read: str) -> None:
    async with either.transaction() as session:
        await session.queue(ADD, "a")
        found = await getattr(session, read)("SELECT what FROM done")

    assert (
        "a"
        in {"fetch": lambda: found[0]["what"], "fetchrow": lambda: found["what"]}.get(read, lambda: found)()
    )


async def test_the_drivers_connection_is_not_lent_while_statements_are_queued(either: Database) -> None:
    async with either.transaction() as session:
        await session.queue(ADD, "a")
        with pytest.raises(DatabaseError, match=r"statements are queued \(1\).*await session\.flush\(\)"):
            _ = session.connection

    assert await done(either) == ["a"]


async def test_no_more_are_queued_than_a_bound(either: Database) -> None:
    async with either.transaction() as session:
        for n in range(_MOST_QUEUED - 1):
            await session.queue(ADD, str(n))
        assert await seen_by_others(either) == 0
        await session.queue(ADD, "last")
        assert await seen_by_others(either) > 0

    assert len(await done(either)) == _MOST_QUEUED


async def test_little_is_kept_of_long_texts(either: Database) -> None:
    async with either.transaction() as session:
        await session.queue("SELECT n FROM done WHERE what = $1", "x" * (_MOST_QUEUED_TEXT - 1))
        assert await seen_by_others(either) == 0
        await session.queue("SELECT $1::bytea", b"x")
        assert await seen_by_others(either) > 0


async def test_outside_of_a_transaction_a_statement_runs_at_once(either: Database) -> None:
    async with either.session() as session:
        await session.queue(ADD, "a")
        assert await done(either) == ["a"]
        with pytest.raises(DatabaseError, match="done_what_check"):
            await session.queue(ADD, "bad")


async def queue_and_swallow(database: Database, what: Sequence[Any]) -> None:
    async with database.transaction() as session:
        for one in what:
            await session.queue(ADD, one)
        with suppress(DatabaseError):
            await session.flush()


@pytest.mark.parametrize("bad", ["bad", object(), "a\0"], ids=["refused", "no value of SQL", "no text"])
@pytest.mark.parametrize("place", [0, 1, 300])
async def test_nothing_is_committed_where_a_queued_statement_has_failed_and_that_was_swallowed(
    either: Database, bad: Any, place: int
) -> None:
    with pytest.raises(DatabaseError, match="nothing was committed"):
        await queue_and_swallow(either, [bad if n == place else str(n) * 1000 for n in range(400)])

    assert await done(either) == []


async def queue_all(database: Database, what: Sequence[Any]) -> None:
    async with database.transaction() as session:
        for one in what:
            await session.queue(ADD, one)


async def test_a_failure_ends_the_transaction_that_does_not_swallow_it(either: Database) -> None:
    with pytest.raises(DatabaseError, match="done_what_check"):
        await queue_all(either, ["a", "bad"])

    assert await done(either) == []


async def test_what_was_queued_behind_a_failure_can_be_run_again_on_the_connection(either: Database) -> None:
    """A driver may count it as prepared, as it was sent, but the server has not come to it."""
    async with either.session() as session:
        await queue_both(session, "a")
        for _ in range(12):
            with pytest.raises(DatabaseError, match="done_what_check"):
                await queue_both(session, "bad")
        await queue_both(session, "b")
        await session.execute(ADD_LATER, "c")

    assert await done(either) == ["a", "a, the other way", "b", "b, the other way", "c, the other way"]


async def queue_both(session: OwnedSession, what: str) -> None:
    async with session.transaction():
        await session.queue(ADD, what)
        await session.queue(ADD_LATER, what)


async def test_rows_that_had_no_table_can_be_sent_again_on_the_connection(either: Database) -> None:
    async with either.session() as session:
        await session.execute(ADD, "a")
        await execute(either, "ALTER TABLE done RENAME TO gone")
        with pytest.raises(DatabaseError, match='relation "done" does not exist'):
            await session.executemany(ADD, [("b",), ("c",)])
        await execute(either, "ALTER TABLE gone RENAME TO done")
        await session.executemany(ADD, [("b",), ("c",)])
        await session.executemany(ADD, [("d",), ("e",)])

    assert await done(either) == ["a", "b", "c", "d", "e"]


async def test_after_a_rollback_nothing_of_it_is_queued(either: Database) -> None:
    async with either.session() as session:
        with suppress(KeyError):
            async with session.transaction():
                await session.queue(ADD, "a")
                raise KeyError
        async with session.transaction():
            await session.queue(ADD, "b")

    assert await done(either) == ["b"]


async def test_a_savepoint_undoes_what_was_queued_in_it_and_nothing_before_it(either: Database) -> None:
    async with either.transaction() as session:
        await session.queue(ADD, "before")
        with suppress(KeyError):
            async with session.savepoint():
                await session.queue(ADD, "undone")
                raise KeyError
        await session.queue(ADD, "after")

    assert await done(either) == ["before", "after"]


@pytest.mark.parametrize("bad", ["bad", object()], ids=["refused", "no value of SQL"])
async def test_a_savepoint_undoes_a_failure_of_what_was_queued_in_it(either: Database, bad: Any) -> None:
    async with either.transaction() as session:
        await session.queue(ADD, "before")
        with suppress(DatabaseError):
            async with session.savepoint():
                await session.queue(ADD, "undone")
                await session.queue(ADD, bad)
        await session.queue(ADD, "after")

    assert await done(either) == ["before", "after"]


async def queue_and_enter_a_savepoint(database: Database, what: Any) -> None:
    async with database.transaction() as session:
        await session.queue(ADD, what)
        with suppress(DatabaseError):
            async with session.savepoint():
                await session.queue(ADD, "a")


async def test_a_savepoint_does_not_undo_a_failure_of_what_was_queued_before_it(either: Database) -> None:
    with pytest.raises(DatabaseError, match="nothing was committed"):
        await queue_and_enter_a_savepoint(either, object())

    assert await done(either) == []


async def queue_impatiently(database: Database, *what: str) -> None:
    async with database.transaction() as session:
        for n, one in enumerate(what):
            await session.queue(ADD if n % 2 else ADD_LATER, one)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await session.flush()


@pytest.mark.slow
async def test_nothing_is_committed_where_sending_was_interrupted_and_that_was_swallowed(
    either: Database,
) -> None:
    async with either.transaction() as other:
        await other.execute(ADD, "a")
        with pytest.raises(DatabaseError, match="nothing was committed"):
            await queue_impatiently(either, "b", "a", "c")  # the second waits for the other

    assert await done(either) == ["a"]


async def test_control_of_the_transaction_is_refused_when_it_is_queued(either: Database) -> None:
    async with either.transaction() as session:
        with pytest.raises(DatabaseError, match="COMMIT is not for this session"):
            await session.queue("COMMIT")
