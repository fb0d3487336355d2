"""Handlers whose statements are sent together: what fails is still its event's alone, and nothing counts twice."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from journal import ConnectionSettings, Database, DatabaseError, connect
from projections import (
    AtLeastOnce,
    Event,
    EventEnvelope,
    Inline,
    ProjectionFailed,
    Recovery,
    Session,
    handles,
    handles_group,
    projection,
    reacts,
)
from tests.fixtures.commands import ROOT, environment
from tests.fixtures.pgbouncer import pooler
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    Does,
    Happened,
    caught_up,
    each_once,
    effects,
    execute,
    fetchval,
    happen,
    settings,
)

RECORD = "INSERT INTO effects (source_id, seq_nr) VALUES ($1, $2)"
REFUSES = "ALTER TABLE effects ADD CHECK (source_id <> 'bad')"
PARKED = "SELECT array_agg(source_id || ' ' || seq_nr ORDER BY source_id) FROM projections.parked_sources"
OFFSETS = "SELECT coalesce(sum(seq_nr), 0)::int FROM projections.source_offsets"


@pytest.fixture(params=["asyncpg", "psycopg"])
async def either(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    """A journal through each of the drivers."""
    async with connect(dsn, ConnectionSettings(driver=request.param)) as pool:
        await execute(pool, EFFECTS)
        yield pool


async def queue(session: Session, envelope: EventEnvelope) -> None:
    await session.queue(RECORD, envelope.source_id, envelope.seq_nr)


def queueing(does: Does | None = None, **options: Any) -> type[Any]:
    """A projection that queues a record of each event, and then does something."""

    @projection("p", entity_type="plane", **{"recovery": NO_RETRY} | options)
    class Queueing:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            await queue(session, envelope)
            if does is not None:
                await does(session, event, envelope)

    return Queueing


def at(source_id: str, does: Does) -> Does:
    """Do it at the events of a source alone."""

    async def chosen(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if envelope.source_id == source_id:
            await does(session, event, envelope)

    return chosen


async def refuse_value(session: Session, event: Happened, envelope: EventEnvelope) -> None:
    """No driver makes a bigint of it: nothing of the statement is sent."""
    await session.queue(RECORD, "a", object())


async def refuse_row(session: Session, event: Happened, envelope: EventEnvelope) -> None:
    await session.queue(RECORD, "a", "1")
    await session.queue("SELECT 1 / $1::int", 0)


async def read(session: Session, event: Happened, envelope: EventEnvelope) -> None:
    await session.fetchval("SELECT count(*) FROM effects")


async def read_and_swallow(session: Session, event: Happened, envelope: EventEnvelope) -> None:
    with suppress(DatabaseError):
        await read(session, event, envelope)


async def read_in_a_savepoint(session: Session, event: Happened, envelope: EventEnvelope) -> None:
    with suppress(DatabaseError):
        async with session.savepoint():
            await read(session, event, envelope)


async def flush_impatiently(session: Session, event: Happened, envelope: EventEnvelope) -> None:
    await session.queue("SELECT pg_advisory_xact_lock($1)", 7)
    await session.queue(RECORD, "lost", 1)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            await session.flush()


BATCH = ["a", "b", "a", "c", "bad", "d", "bad", "a", "e", "b"]
REST = {"a": 3, "b": 2, "c": 1, "d": 1, "e": 1}


async def test_a_batch_is_handled_once_each_and_in_order(either: Database) -> None:
    for source_id in BATCH:  # each at a time of its own
        await happen(either, source_id)

    await caught_up(either, queueing())

    assert [source_id for source_id, _ in await effects(either)] == BATCH
    each_once(await effects(either), **REST, bad=2)


@pytest.mark.slow
@pytest.mark.parametrize("later", [None, read, read_and_swallow, read_in_a_savepoint])
async def test_a_row_that_is_refused_parks_the_source_of_its_event_and_no_other(
    either: Database, later: Does | None
) -> None:
    """Whichever handler hears of it first."""
    await execute(either, REFUSES)
    await happen(either, *BATCH)

    told = await caught_up(either, queueing(at("d", later) if later else None))

    each_once(await effects(either), **REST)
    assert await fetchval(either, PARKED) == ["bad 1"]
    [(_, envelope, error)] = told.all("parked")
    assert (envelope.source_id, envelope.seq_nr) == ("bad", 1)
    assert "source 'bad', seq_nr 1" in str(error)
    assert "effects_source_id_check" in str(error)
    assert await fetchval(either, OFFSETS) == sum(REST.values())


@pytest.mark.slow
@pytest.mark.parametrize("refuse", [refuse_value, refuse_row])
@pytest.mark.parametrize("later", [None, read])
async def test_arguments_that_are_refused_park_the_source_of_their_event_and_no_other(
    either: Database, refuse: Does, later: Does | None
) -> None:
    async def does(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if envelope.source_id == "bad":
            await refuse(session, event, envelope)
        elif later is not None:
            await later(session, event, envelope)

    await happen(either, *BATCH)

    told = await caught_up(either, queueing(does))

    each_once(await effects(either), **REST)
    assert [e.source_id for _, e, _ in told.all("parked")] == ["bad"]
    assert "source 'bad', seq_nr 1" in str(told.all("parked")[0][2])


async def test_the_handlers_own_error_is_still_its_events(either: Database) -> None:
    async def fail(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        raise ValueError("no")

    await happen(either, *BATCH)

    await caught_up(either, queueing(at("bad", fail)))

    each_once(await effects(either), **REST)
    assert await fetchval(either, PARKED) == ["bad 1"]


@pytest.mark.parametrize("recovery", [Recovery.skip(), Recovery.retry_and_skip([0.01])])
async def test_a_row_that_is_refused_is_skipped_alone(either: Database, recovery: Recovery) -> None:
    await execute(either, REFUSES)
    await happen(either, *BATCH)

    told = await caught_up(either, queueing(recovery=recovery))

    each_once(await effects(either), **REST)
    assert [(e.source_id, e.seq_nr) for _, e, _ in told.all("skipped")] == [("bad", 1), ("bad", 2)]


async def test_a_traceback_of_what_was_queued_has_the_statement(either: Database) -> None:
    await execute(either, REFUSES)
    await happen(either, "bad")

    await caught_up(either, queueing())

    traceback = await fetchval(either, "SELECT traceback FROM projections.parked_sources")
    assert f"queued: {RECORD}" in traceback


async def test_long_statements_do_not_push_the_error_out_of_its_traceback(either: Database) -> None:
    async def queue_long(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        for n in range(10):
            await session.queue(f"SELECT $1::int /* {n} {'long' * 1000} */", 1)
        await queue(session, envelope)

    await execute(either, REFUSES)
    await happen(either, "bad")

    await caught_up(either, queueing(queue_long))

    traceback = await fetchval(either, "SELECT traceback FROM projections.parked_sources")
    assert "effects_source_id_check" in traceback
    assert "Traceback (most recent call last)" in traceback


@pytest.mark.slow
async def test_a_statement_that_hangs_is_cancelled_and_its_event_parked(either: Database) -> None:
    async def wait(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await session.queue("SELECT pg_advisory_xact_lock($1)", 7)

    await happen(either, "a", "bad", "b")

    async with either.session() as holder:
        await holder.fetchval("SELECT pg_advisory_lock(7)")
        told = await caught_up(
            either, queueing(at("bad", wait)), settings=settings(handler_timeout=timedelta(milliseconds=200))
        )
        await holder.fetchval("SELECT pg_advisory_unlock(7)")

    assert [e.source_id for _, e, _ in told.all("parked")] == ["bad"]
    assert "cancelled after 0.2 s (handler_timeout)" in str(told.all("parked")[0][2])
    each_once(await effects(either), a=1, b=1)


async def test_a_time_out_that_a_handler_swallows_does_not_lose_what_others_queued(either: Database) -> None:
    await happen(either, *BATCH)

    async with either.session() as holder:
        await holder.fetchval("SELECT pg_advisory_lock(7)")
        told = await caught_up(either, queueing(at("bad", flush_impatiently)))
        await holder.fetchval("SELECT pg_advisory_unlock(7)")

    assert [e.source_id for _, e, _ in told.all("parked")] == ["bad"]
    each_once(await effects(either), **REST)


async def test_what_the_server_cancels_is_no_attempt_of_an_event(either: Database) -> None:
    failures = iter(["57014"])

    async def cancelled(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if (code := next(failures, None)) is not None:
            await session.queue(f"DO $$ BEGIN RAISE 'cancelled' USING ERRCODE = '{code}'; END $$")

    await happen(either, "a", "b", "a")

    told = await caught_up(either, queueing(cancelled))

    assert told.names("error", "parked", "failed") == []
    each_once(await effects(either), a=2, b=1)


@pytest.mark.slow
async def test_lists_and_reactions_queue_as_well(either: Database) -> None:
    @projection("p", entity_type="plane", recovery=NO_RETRY)
    class Lists:
        @handles_group(Happened)
        async def many(self, session: Session, events: Sequence[tuple[Happened, EventEnvelope]]) -> None:
            for _, envelope in events:
                await queue(session, envelope)

        @reacts(Happened)
        async def react(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            await session.queue("INSERT INTO reactions VALUES ($1)", envelope.source_id)

    await execute(either, REFUSES)
    await execute(either, "CREATE TABLE reactions (source_id text CHECK (source_id <> 'e'))")
    await happen(either, *BATCH)

    told = await caught_up(either, Lists)

    each_once(await effects(either), a=3, b=2, c=1, d=1)
    assert sorted(e.source_id for _, e, _ in told.all("parked")) == ["bad", "e"]
    reacted = "SELECT array_agg(source_id ORDER BY source_id) FROM reactions"
    assert await fetchval(either, reacted) == ["a", "a", "a", "b", "b", "c", "d"]


async def test_at_least_once_each_statement_commits_by_itself(either: Database) -> None:
    await execute(either, REFUSES)
    await happen(either, *BATCH)

    told = await caught_up(either, queueing(delivery=AtLeastOnce()))

    assert [e.source_id for _, e, _ in told.all("parked")] == ["bad"]
    each_once(sorted(await effects(either)), **REST)


async def test_an_inline_append_runs_what_is_queued_and_names_the_event_that_fails(either: Database) -> None:
    await caught_up(either, queueing())
    inline = Inline(queueing())
    async with either.session() as session:
        await inline.set_mode(session, "inline")
    await execute(either, REFUSES)

    async with either.transaction() as session:
        await inline.append(session, [Event("a", Happened(), "plane"), Event("b", Happened(), "plane")])
    assert await effects(either) == [("a", 1), ("b", 1)]

    with pytest.raises(ProjectionFailed, match="source 'bad', seq_nr 1"):
        async with either.transaction() as session:
            await inline.append(session, [Event(one, Happened(), "plane") for one in ("c", "bad", "d")])
    assert await effects(either) == [("a", 1), ("b", 1)]


async def test_an_inline_append_on_the_callers_connection_does_not_commit_without_what_was_queued(
    either: Database, dsn: str
) -> None:
    await caught_up(either, queueing())
    inline = Inline(queueing(flush_impatiently))
    async with either.session() as session:
        await inline.set_mode(session, "inline")

    async with either.session() as holder:
        await holder.fetchval("SELECT pg_advisory_lock(7)")
        async with either.session() as owner:
            await owner.connection.execute("BEGIN")
            with pytest.raises(ProjectionFailed, match="caught an error of the database"):
                await inline.append(owner.connection, [Event("a", Happened(), "plane")])
            await owner.connection.execute("COMMIT")
        await holder.fetchval("SELECT pg_advisory_unlock(7)")

    assert await effects(either) == []
    assert await fetchval(either, "SELECT count(*) FROM projections.events") == 0


KILLED = """
import asyncio, os, signal, sys
from journal import ConnectionSettings, connect
from projections import run
from tests.integration.running.test_queued_statements import at, queueing
from tests.fixtures.projections import settings

async def die(session, event, envelope):
    if sys.argv[3] == "sent":
        await session.flush()
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with connect(sys.argv[1], ConnectionSettings(driver=sys.argv[2])) as database:
        await run(database, queueing(at("c", die)), settings=settings(), until_caught_up=True)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["queued", "sent"])
async def test_a_process_that_is_killed_in_the_middle_of_a_batch_leaves_nothing_of_it(
    request: pytest.FixtureRequest, either: Database, dsn: str, place: str
) -> None:
    driver = request.node.callspec.params["either"]
    await happen(either, *BATCH)

    killed = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        KILLED,
        dsn,
        driver,
        place,
        cwd=ROOT,
        env=environment(),
    )
    assert await killed.wait() == -signal.SIGKILL
    assert await effects(either) == []

    await caught_up(either, queueing())
    each_once(await effects(either), **REST, bad=2)


async def test_through_a_pooler_a_bad_row_is_found_as_well(
    request: pytest.FixtureRequest, either: Database, dsn: str
) -> None:
    """Statements have no names there, and settings hold for a transaction."""
    await execute(either, REFUSES)
    await happen(either, *BATCH)

    driver = request.node.callspec.params["either"]
    async with pooler(dsn) as address, connect(address, ConnectionSettings(driver=driver)) as pooled:
        await caught_up(pooled, queueing(at("d", read)))

    each_once(await effects(either), **REST)
    assert await fetchval(either, PARKED) == ["bad 1"]
