"""A connection that knows of what another transaction has dropped: it goes, with all that it has prepared."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psycopg
import pytest

from journal import ConnectionSettings, Database, DatabaseError, DatabaseUnavailable, connect, schema
from journal.database import Fault, fault_of
from journal.sql_files import sql_root
from tests.fixtures.pgbouncer import pooler
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    effects,
    execute,
    fetchval,
    happen,
    recording,
    running,
    until,
)

DRIVERS = pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])

# As a heartbeat does it: the function is looked up, and then the table may be locked by whoever drops both.
CALL = """
SELECT g.*, (SELECT max(v.version) FROM projections.schema_versions AS v) AS schema_version
FROM projections.generation_v1() AS g
"""
PID = "SELECT pg_backend_pid()"
WAITS = "SELECT count(*) = $1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
RAISES = """
CREATE FUNCTION fails(reason text) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    RAISE '%', reason USING ERRCODE = 'XX000';
END $$
"""
_UNPREPARED = 5
"""psycopg prepares a statement that it has sent so often."""


def pool(dsn: str, driver: Any, size: int) -> Any:
    return connect(dsn, ConnectionSettings(driver=driver, max_connections=size))


async def planned_while_dropped(stale: list[Any], database: Database, dsn: str) -> None:
    """Have sessions plan a call of a function while another transaction drops it and makes it again."""
    made = (sql_root() / "functions/journal/generation_v1.sql").read_text(encoding="utf-8")
    with psycopg.connect(dsn) as other:
        other.execute("DROP FUNCTION projections.generation_v1()")
        other.execute(made.encode())
        other.execute("LOCK projections.schema_versions")
        calls = [asyncio.create_task(session.fetch(CALL)) for session in stale]
        await until(database, WAITS, len(stale))
        other.commit()
    for failed in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(failed, DatabaseUnavailable)
        assert "cache lookup failed" in str(failed)


@DRIVERS
async def test_a_connection_that_calls_what_was_dropped_is_not_lent_again(
    database: Database, dsn: str, driver: Any
) -> None:
    async with pool(dsn, driver, 1) as one:
        async with one.session() as session:
            pid = await session.fetchval(PID)
            for _ in range(_UNPREPARED if driver == "psycopg" else 0):
                await session.fetch(CALL)
            await planned_while_dropped([session], database, dsn)

        async with one.session() as session:
            assert await session.fetch(CALL)
            assert await session.fetchval(PID) != pid


@DRIVERS
async def test_a_pool_is_replaced_when_two_of_its_connections_call_what_was_dropped(
    database: Database, dsn: str, driver: Any
) -> None:
    async with pool(dsn, driver, 3) as three:
        async with AsyncExitStack() as lent:
            sessions = [await lent.enter_async_context(three.session()) for _ in "123"]
            pids = {await session.fetchval(PID) for session in sessions}
            for session in sessions[:2] * (_UNPREPARED if driver == "psycopg" else 0):
                await session.fetch(CALL)
            await planned_while_dropped(sessions[:2], database, dsn)

        async with AsyncExitStack() as lent:
            sessions = [await lent.enter_async_context(three.session()) for _ in "123"]
            assert not pids & {await session.fetchval(PID) for session in sessions}


@DRIVERS
async def test_an_internal_error_is_of_the_connection_once_and_then_of_what_was_asked(
    database: Database, dsn: str, driver: Any
) -> None:
    """Extensions raise it for data that they cannot read: it fails on a connection that was opened since, too."""
    await execute(database, RAISES)
    faults = []
    async with pool(dsn, driver, 1) as one:
        for reason in ["a", "a", "b", "a"]:
            with pytest.raises(DatabaseError, match=reason) as failed:
                async with one.transaction() as session:
                    await session.fetchval("SELECT fails($1)", reason)
            faults.append(fault_of(failed.value))
    assert faults == [Fault.DATABASE, Fault.EVENT, Fault.DATABASE, Fault.EVENT]


@DRIVERS
async def test_an_internal_error_on_a_statement_alone_or_in_a_savepoint_closes_its_connection(
    database: Database, dsn: str, driver: Any
) -> None:
    await execute(database, RAISES)
    async with pool(dsn, driver, 1) as one:
        pids = [await fetchval(one, PID)]
        with pytest.raises(DatabaseUnavailable):
            await fetchval(one, "SELECT fails('a')")
        pids.append(await fetchval(one, PID))
        async with one.transaction() as session:  # it goes on, and commits what it did
            with pytest.raises(DatabaseUnavailable):
                async with session.savepoint():
                    await session.fetchval("SELECT fails('b')")
            await session.execute("CREATE TABLE kept ()")
        pids.append(await fetchval(one, PID))
        assert len(set(pids)) == 3
        assert await fetchval(one, "SELECT count(*) FROM kept") == 0


@DRIVERS
async def test_a_connection_goes_when_what_nobody_explains_fails_again(
    database: Database, dsn: str, driver: Any
) -> None:
    async with pool(dsn, driver, 1) as one:
        pids = []
        for sql in ["SELECT * FROM no_such"] * 4 + ["SELECT 1 / 0"] * 3:
            async with one.session() as session:
                pids.append(await session.fetchval(PID))
                with pytest.raises(DatabaseError):
                    await session.fetch(sql)
    first, second = pids[0], pids[-1]
    assert first != second
    # Not again for one that was opened since, which cannot be at fault; and what is wrong with data says so.
    assert pids == [first] * 2 + [second] * 5


@DRIVERS
async def test_behind_a_pooler_the_session_that_it_lends_ends_too(
    database: Database, dsn: str, driver: Any
) -> None:
    await execute(database, RAISES)
    async with pooler(dsn) as address, pool(address, driver, 1) as one:
        pid = await fetchval(one, PID)
        with pytest.raises(DatabaseUnavailable, match="cannot explain"):
            async with one.transaction() as session:
                await session.fetchval("SELECT fails('a')")
        assert await fetchval(one, PID) != pid


_CUT_OFF = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'worker'
"""
_PLANS_A_HEARTBEAT = """
SELECT count(*) > 0 FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database() AND query LIKE '%heartbeat_v1%'
"""
_FILE = re.compile(r"^(?=-- [\w/]+\.sql$)", re.MULTILINE)
PARTS = _FILE.split("\n".join(line for line in schema.script().splitlines() if not line.startswith("\\")))
"""What makes the schema, file by file."""


@asynccontextmanager
async def worker(database: Database, dsn: str, driver: Any) -> AsyncIterator[None]:
    await execute(database, EFFECTS)
    named = ConnectionSettings(driver=driver, max_connections=8, application_name="worker")
    async with connect(dsn, named) as own, running(own, recording(recovery=NO_RETRY), ranges=2) as told:
        await happen(database, "a", "b")
        await until(database, "SELECT count(*) = 2 FROM effects")
        yield
    assert told.all("parked") == []


def dropped(other: psycopg.Connection[Any]) -> None:
    """Drop the schema; a poll of the worker that looks at two of its tables meanwhile may deadlock with it."""
    while True:
        try:
            other.execute("DROP SCHEMA projections, projections_conditions CASCADE")
        except psycopg.errors.DeadlockDetected:
            other.rollback()
        else:
            return


async def restored(database: Database, dsn: str, held_at: int) -> None:
    """Drop the schema and make it again in one transaction, while a worker plans on new connections at some step."""
    with psycopg.connect(dsn) as other:
        dropped(other)
        other.execute("".join(PARTS[:held_at]).encode())
        await execute(database, _CUT_OFF)
        await until(database, _PLANS_A_HEARTBEAT)
        other.execute("".join(PARTS[held_at:]).encode())
        other.commit()


async def handles_events(dsn: str, times: int) -> None:
    async with connect(dsn) as later:
        await happen(later, "a", "b")
        await until(later, "SELECT count(*) = $1 FROM effects", 2 + 2 * times)
        assert sorted(await effects(later)) == [("a", 1)] * (1 + times) + [("b", 1)] * (1 + times)


@pytest.mark.daily(1)
@DRIVERS
async def test_a_worker_goes_on_after_the_schema_was_dropped_and_made_again(
    database: Database, dsn: str, driver: Any
) -> None:
    async with worker(database, dsn, driver):
        await restored(database, dsn, len(PARTS))
        await handles_events(dsn, 1)


@pytest.mark.slow
@DRIVERS
async def test_a_worker_goes_on_wherever_a_restore_was_held(
    database: Database, dsn: str, driver: Any
) -> None:
    steps = range(0, len(PARTS), 20)
    async with worker(database, dsn, driver):
        for times, held_at in enumerate(steps, 1):
            await restored(database, dsn, held_at)
            await handles_events(dsn, times)


@pytest.mark.slow
@DRIVERS
async def test_a_worker_goes_on_after_an_upgrade(database: Database, dsn: str, driver: Any) -> None:
    """Which makes all functions again, while it plans calls of them."""
    async with worker(database, dsn, driver):
        with psycopg.connect(dsn) as other:
            other.execute("LOCK projections.schema_versions")
            await execute(database, _CUT_OFF)
            await until(database, _PLANS_A_HEARTBEAT)
            upgrade = asyncio.create_task(asyncio.to_thread(schema.upgrade, dsn))
            other.commit()
        await upgrade
        async with connect(dsn) as later:
            await happen(later, "a", "b")
            await until(later, "SELECT count(*) = 4 FROM effects")
