"""Effects and offset commit together, whatever fails and whoever else claims the range."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from journal import ConnectionSettings, Database, DatabaseError, DatabaseUnavailable, connect
from offsets import TransactionEnded
from projections import EventEnvelope, Recovery, Session, run
from projections.testing import run_until_caught_up
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    Does,
    Happened,
    Told,
    caught_up,
    each_once,
    effects,
    execute,
    failing,
    fetchval,
    happen,
    recording,
    running,
    settings,
    until,
    until_effects,
)
from tests.fixtures.proxy import proxy_to

OFFSETS = "SELECT count(*) FROM projections.source_offsets"


@pytest.fixture(params=["asyncpg", "psycopg"])
async def either(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    """A database through each of the drivers."""
    async with connect(dsn, ConnectionSettings(driver=request.param)) as pool:
        await execute(pool, EFFECTS)
        yield pool


@pytest.fixture
async def journal(database: Database) -> Database:
    await execute(database, EFFECTS)
    return database


def once(does: Does) -> Does:
    """Do something at the first call only."""
    done = False

    async def first(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        nonlocal done
        if not done:
            done = True
            await does(session, event, envelope)

    return first


@pytest.mark.slow
async def test_every_event_has_its_effect_once_and_in_order(either: Database) -> None:
    for _ in range(3):
        await happen(either, "a", "b", "a", "c")

    await run_until_caught_up(either, recording(batch_size=2))
    await run_until_caught_up(either, recording(batch_size=2))

    each_once(await effects(either), a=6, b=3, c=3)


@pytest.mark.slow
async def test_a_handler_that_raises_leaves_neither_effect_nor_offset(either: Database) -> None:
    await happen(either, "a")

    await caught_up(either, recording(failing(("a", 1)), recovery=NO_RETRY))

    assert await effects(either) == []
    assert await fetchval(either, OFFSETS) == 0


async def test_bad_sql_leaves_neither_effect_nor_offset(either: Database) -> None:
    async def bad(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await session.execute("SELECT 'x'::integer")

    await happen(either, "a")

    told = await caught_up(either, recording(bad, recovery=NO_RETRY))

    assert await effects(either) == []
    assert await fetchval(either, OFFSETS) == 0
    assert "invalid input syntax" in str(told.all("parked")[0][2])


@pytest.mark.slow
async def test_a_constraint_that_fails_at_commit_is_tried_again_and_not_lost(either: Database) -> None:
    await execute(either, "CREATE TABLE allowed (source_id text PRIMARY KEY)")
    await execute(
        either, "ALTER TABLE effects ADD FOREIGN KEY (source_id) REFERENCES allowed INITIALLY DEFERRED"
    )
    await execute(either, "INSERT INTO allowed VALUES ('a')")
    await happen(either, "a", "b", "a")
    told = Told()

    async with running(either, recording(recovery=Recovery.retry_and_fail(1)), observer=told):
        await told.first("failed")
        await execute(either, "INSERT INTO allowed VALUES ('b')")
        await until_effects(either, 3)

    each_once(await effects(either), a=2, b=1)


@pytest.mark.slow
async def test_retries_that_failed_at_commit_are_counted(journal: Database) -> None:
    await execute(journal, "CREATE TABLE allowed (source_id text PRIMARY KEY)")
    await execute(
        journal, "ALTER TABLE effects ADD FOREIGN KEY (source_id) REFERENCES allowed INITIALLY DEFERRED"
    )
    await happen(journal, "a")

    told = await caught_up(journal, recording(recovery=Recovery.retry_and_park(2)))

    assert [attempt for _, _, _, attempt in told.all("error")] == [1, 2, 3]
    assert len(told.all("parked")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_connection_lost_at_commit_neither_loses_nor_repeats(
    journal: Database, dsn: str, when: str, driver: Any
) -> None:
    async with proxy_to(dsn) as proxy, connect(proxy.dsn, ConnectionSettings(driver=driver)) as through:

        async def cut(session: Session, event: Happened, envelope: EventEnvelope) -> None:
            proxy.cut_at_commit(when)

        async with running(through, recording(once(cut))) as told:
            await happen(journal, "a", "b", "a")
            await proxy.lost.wait()
            await happen(journal, "a")
            await until_effects(journal, 4)

    each_once(await effects(journal), a=3, b=1)
    assert isinstance(told.all("failed")[0][2], DatabaseUnavailable)


@pytest.mark.slow
async def test_a_backend_that_dies_in_the_middle_of_a_batch_repeats_nothing(
    either: Database, database: Database
) -> None:
    async def kill(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        mine = await session.fetchval("SELECT pg_backend_pid()")
        await fetchval(database, "SELECT pg_terminate_backend($1, 10000)", mine)

    await happen(either, "a", "b", "a")

    told = await caught_up(either, recording(once(kill)))

    each_once(await effects(either), a=2, b=1)
    assert told.names("failed", "error", "parked") == ["failed"]


@pytest.mark.slow
async def test_a_swallowed_database_error_is_a_failure_of_the_event(either: Database) -> None:
    async def swallow(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if envelope.source_id == "bad":
            with suppress(DatabaseError):
                await session.execute("SELECT 1 / 0")

    await happen(either, "a", "bad", "b")

    told = await caught_up(either, recording(swallow, recovery=NO_RETRY))

    each_once(await effects(either), a=1, b=1)
    assert "savepoint()" in str(told.all("parked")[0][2])


@pytest.mark.slow
async def test_a_swallowed_loss_of_the_connection_is_not_the_events_fault(
    either: Database, database: Database
) -> None:
    async def kill(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        mine = await session.fetchval("SELECT pg_backend_pid()")
        await fetchval(database, "SELECT pg_terminate_backend($1, 10000)", mine)
        with suppress(DatabaseUnavailable):
            await session.execute("SELECT 1")

    await happen(either, "a")

    told = await caught_up(either, recording(once(kill)))

    each_once(await effects(either), a=1)
    assert told.names("failed", "parked") == ["failed"]


async def test_an_error_inside_a_savepoint_is_the_handlers_own_affair(either: Database) -> None:
    async def guarded(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        with suppress(DatabaseError):
            async with session.savepoint():
                await session.execute("SELECT 1 / 0")

    await happen(either, "a", "a")

    await caught_up(either, recording(guarded))

    each_once(await effects(either), a=2)


@pytest.mark.slow
async def test_a_commit_through_the_session_is_refused(either: Database) -> None:
    async def commit(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await session.execute("COMMIT")

    await happen(either, "a")

    told = await caught_up(either, recording(commit, recovery=NO_RETRY))

    assert "COMMIT is not for this session" in str(told.all("parked")[0][2])
    assert await effects(either) == []


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "COMMIT; BEGIN"])
async def test_a_handler_that_ends_the_transaction_behind_the_session_stops_the_run(
    journal: Database, statement: str
) -> None:
    async def commit(session: Any, event: Happened, envelope: EventEnvelope) -> None:
        await session.connection.execute(statement)

    await happen(journal, "a")

    with pytest.raises(TransactionEnded):
        await caught_up(journal, recording(commit))

    assert await fetchval(journal, OFFSETS) == 0


async def test_a_serialization_failure_is_no_attempt_of_the_event(journal: Database) -> None:
    async def conflict(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await session.execute("DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$")

    await happen(journal, "a", "b")

    told = await caught_up(journal, recording(once(conflict), recovery=Recovery.fail()))

    each_once(await effects(journal), a=1, b=1)
    assert told.names("error", "failed") == []


@pytest.mark.slow
async def test_a_late_commit_is_delivered_once(either: Database) -> None:
    """A transaction appends, stays open while later events are handled, and commits."""
    async with running(either, recording()):
        async with either.transaction() as late:
            await late.fetchval("SELECT projections.append_event_v1('late', 'plane', 'Happened', '{}')")
            await happen(either, "a", "b")
            await until_effects(either, 2)
        await until_effects(either, 3)
        await happen(either, "late")
        await until_effects(either, 4)

    each_once(await effects(either), a=1, b=1, late=2)


@pytest.mark.slow
async def test_a_late_commit_survives_a_restart_of_the_projection(journal: Database) -> None:
    async with journal.transaction() as late:
        await late.fetchval("SELECT projections.append_event_v1('late', 'plane', 'Happened', '{}')")
        async with running(journal, recording()):
            await happen(journal, "a", "b")
            await until_effects(journal, 2)
        async with running(journal, recording()):
            await happen(journal, "a")
            await until_effects(journal, 3)
    await run_until_caught_up(journal, recording())

    each_once(await effects(journal), a=2, b=1, late=1)


async def test_a_graceful_stop_finishes_the_batch(journal: Database) -> None:
    entered, go_on, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        entered.set()
        await go_on.wait()

    await happen(journal, "a", "b", "a")
    task = asyncio.create_task(run(journal, recording(hold), settings=settings(), stop=stop))
    await entered.wait()

    stop.set()
    go_on.set()
    await task

    each_once(await effects(journal), a=2, b=1)
    assert await fetchval(journal, "SELECT bool_and(owner IS NULL) FROM projections.projection_ranges")
    await until(journal, "SELECT count(*) = 2 FROM projections.source_offsets")


@pytest.mark.slow
async def test_a_run_that_is_cancelled_rolls_back_what_it_was_at(journal: Database) -> None:
    entered = asyncio.Event()

    async def hang(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        entered.set()
        await asyncio.Event().wait()

    await happen(journal, "a", "b")
    task = asyncio.create_task(run(journal, recording(hang), settings=settings()))
    await entered.wait()

    task.cancel()
    async with asyncio.timeout(300):
        await asyncio.gather(task, return_exceptions=True)
    await caught_up(journal, recording())

    each_once(await effects(journal), a=1, b=1)
