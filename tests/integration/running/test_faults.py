"""Faults around claims: what must not hang, not stop the others, and not undo a reset."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

import offsets
from journal import Database, DatabaseError
from projections import EventEnvelope, RunSettings, Session, handles, projection, run
from projections.running.loop_monitor import LoopMonitor
from tests.fixtures.projections import (
    EFFECTS,
    Happened,
    caught_up,
    each_once,
    effects,
    execute,
    fetchval,
    happen,
    recording,
    running,
    settings,
    until,
    until_effects,
)

EVICTED = "SELECT evicted_before < '2000-01-01' FROM projections.projections"
HORIZONS = "SELECT max(horizon) FROM projections.projection_ranges"
WAITS = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
OF_Q = """
SELECT w.owner FROM projections.projection_ranges AS r JOIN projections.projections AS p USING (projection_id)
LEFT JOIN projections.workers AS w ON r.owner = w.owner AND p.projection_id = ANY(w.projection_ids) WHERE p.name = 'q'
"""
PAST = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
async def journal(database: Database) -> Database:
    await execute(database, EFFECTS)
    return database


async def id_of(database: Database, name: str = "p") -> int:
    async with database.session() as session:
        return (await offsets.status(session, name)).projection_id


@pytest.mark.slow
async def test_an_eviction_that_meets_a_reset_evicts_by_what_the_reset_leaves(journal: Database) -> None:
    await happen(journal, "a")
    await caught_up(journal, recording())
    number = await id_of(journal)

    async with journal.session() as other:
        async with journal.transaction() as session:
            await offsets.set_offset(session, "p", PAST)
            evicting = asyncio.create_task(offsets.evict(other, number, timedelta(minutes=1)))
            await until(journal, WAITS)
        await evicting

    assert await fetchval(journal, EVICTED)


@pytest.mark.slow
async def test_a_reset_that_meets_a_cut_resets_what_the_cut_leaves(journal: Database) -> None:
    await happen(journal, "a")
    await caught_up(journal, recording())
    number = await id_of(journal)

    async with journal.session() as other:
        async with journal.transaction() as session:
            await session.execute("SELECT projections._set_ranges_v1($1, '{0,512}')", number)
            reset = asyncio.create_task(offsets.set_offset(other, "p", PAST))
            await until(journal, WAITS)
        await reset

    assert await fetchval(journal, HORIZONS) == PAST


@pytest.mark.slow
async def test_an_eviction_does_not_wait_for_an_import(journal: Database) -> None:
    await caught_up(journal, recording())
    number = await id_of(journal)

    async with journal.transaction() as importing, journal.session() as session:
        await importing.execute("LOCK TABLE projections.imports IN SHARE ROW EXCLUSIVE MODE")

        with pytest.raises(DatabaseError) as refused:
            await offsets.evict(session, number, timedelta(minutes=1))

    assert refused.value.sqlstate == "55P03"


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["{512}", "{0,512,512}", "{0,1024}", "{}", "{0,600,300}"])
async def test_a_cut_that_does_not_tile_is_refused(journal: Database, cut: str) -> None:
    await caught_up(journal, recording())

    with pytest.raises(DatabaseError, match="ranges must begin at slice 0"):
        await execute(journal, f"SELECT projections._set_ranges_v1(1, '{cut}')")


async def test_a_release_that_fails_does_not_keep_a_process_from_stopping(journal: Database) -> None:
    """Of the only worker, so that nobody else is assigned its range."""
    await execute(journal, "CREATE SEQUENCE releases")
    await execute(
        journal,
        """
        CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF OLD.owner IS NOT NULL AND NEW.owner IS NULL AND nextval('public.releases') = 1 THEN
                RAISE EXCEPTION 'not now';
            END IF;
            RETURN NEW;
        END $$
        """,
    )
    async with running(journal, recording()):
        await execute(
            journal,
            "CREATE TRIGGER fail_once BEFORE UPDATE ON projections.projection_ranges "
            "FOR EACH ROW EXECUTE FUNCTION fail_once()",
        )

    assert await fetchval(journal, "SELECT bool_and(owner IS NULL) FROM projections.projection_ranges")


async def test_a_fatal_fault_ends_all_though_another_projection_fails_to_stop(journal: Database) -> None:
    @projection("other", entity_type="plane")
    class Stubborn:
        async def stop(self) -> None:
            raise RuntimeError("it does not stop")

        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None: ...

    async def end(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await session.connection.execute("COMMIT")

    await happen(journal, "a")

    async with asyncio.timeout(300):
        with pytest.raises(offsets.TransactionEnded):
            await run(journal, Stubborn, recording(end), settings=settings())


@pytest.mark.slow
async def test_a_projection_that_is_locked_does_not_keep_others_from_being_shared(journal: Database) -> None:
    """Somebody has begun to pause the first, and not committed, when a worker leaves."""
    both = (recording(), recording(name="q"))
    owners = f"SELECT count(DISTINCT owner) = $1 AND count(owner) = 2 FROM ({OF_Q}) AS q"
    async with running(journal, *both, ranges=2):
        async with running(journal, *both):
            await until(journal, owners, 2)
            locking = journal.transaction()
            session = await locking.__aenter__()
            await session.execute("UPDATE projections.projections SET paused = paused WHERE name = 'p'")

        await until(journal, owners, 1)
        await locking.__aexit__(None, None, None)


async def test_a_range_that_moves_on_has_recovered(journal: Database) -> None:
    quick = settings(save_horizon_every=timedelta(milliseconds=50))
    failed = "SELECT bool_or(failures > 0) FROM projections.projection_ranges"
    async with running(journal, recording(), settings=quick):
        await execute(journal, "UPDATE projections.projection_ranges SET failures = 3, error = 'why'")

        await until(journal, f"SELECT NOT ({failed})")

    assert await fetchval(journal, "SELECT error IS NULL FROM projections.projection_ranges")


@pytest.mark.slow
async def test_a_batch_of_slow_handlers_is_not_taken_for_a_frozen_process(
    journal: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call is within its limit; all together are silent for longer than the database waits."""
    monkeypatch.setattr("projections.running.range_runner._LATER", timedelta(seconds=1))
    monkeypatch.setattr("projections.running.dispatch._SILENCE", 0.2)

    async def slow(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await asyncio.to_thread(time.sleep, 0.3)

    await happen(journal, *"abcdefghij")

    quick = settings(handler_timeout=timedelta(seconds=1.5))
    told = await caught_up(journal, recording(slow), settings=quick)

    assert told.all("failed") == []
    each_once(await effects(journal), **dict.fromkeys("abcdefghij", 1))


async def test_a_projection_that_is_deleted_while_it_runs_is_told(
    journal: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        async with running(journal, recording(), recording(name="q")) as told:
            await told.first("started", 2)
            await execute(journal, "DELETE FROM projections.projections WHERE name = 'p'")
            await told.first("stopped")
            await happen(journal, "a")
            await until_effects(journal, 1)

    assert "deleted" in [getattr(record, "action", None) for record in caplog.records]


@pytest.mark.slow
async def test_take_over_leaves_the_other_projections_of_a_worker_alone(journal: Database) -> None:
    both = (recording(), recording(name="q"))
    async with running(journal, *both) as told:
        await told.first("started", 2)
        async with journal.session() as session:
            await offsets.take_over(session, "another", {await id_of(journal): 1})

        assert await fetchval(journal, f"SELECT owner IS NOT NULL FROM ({OF_Q}) AS q")


def test_a_lease_that_heartbeats_do_not_keep_is_refused() -> None:
    with pytest.raises(ValidationError, match="does not outlast two heartbeats"):
        RunSettings(lease=timedelta(seconds=5), heartbeat=timedelta(seconds=4))


@pytest.mark.slow  # a process is stopped for longer than the limit
def test_a_process_that_was_frozen_is_not_taken_for_a_blocked_one() -> None:
    """A child stops itself for longer than the limit and is continued: it must end by itself, not be aborted."""
    child = os.fork()
    if child == 0:

        async def freeze() -> None:
            monitor = LoopMonitor(timedelta(seconds=0.2), timedelta(seconds=60), timedelta(seconds=0.5))
            with monitor.watching():
                await asyncio.sleep(0.3)
                os.kill(os.getpid(), signal.SIGSTOP)
                await asyncio.sleep(0.6)

        asyncio.run(freeze())
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    threading.Event().wait(1.5)
    os.kill(child, signal.SIGCONT)

    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
