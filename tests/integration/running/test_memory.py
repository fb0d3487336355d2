"""Who is short of memory, or gets no answer, goes on with less at a time."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import weakref
from asyncio.subprocess import PIPE
from datetime import timedelta
from typing import Any

import pytest

import offsets
from journal import (
    ConnectionSettings,
    Database,
    EventEnvelope,
    NoAnswer,
    OutOfMemory,
    Session,
    connect,
)
from journal.database.error_translation import translate
from projections import AtLeastOnce, Recovery
from projections.defining import ExactlyOnce
from projections.testing import run_until_caught_up
from tests.fixtures.commands import environment
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    Failure,
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
    until_effects,
)

MIB = 2**20

# Handles what it is told to with so many bytes of memory more than it has after its start.
LIMITED = """
import asyncio, logging, resource, sys
from datetime import timedelta
from journal import ConnectionSettings, connect
from projections import run
from tests.fixtures.projections import recording, settings

logging.basicConfig(level=logging.INFO, format="%(message)s")

def limit(more):
    with open("/proc/self/statm") as statm:
        size = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + more, size + more))

async def main(dsn, driver, more, page_bytes):
    chosen = settings(page_bytes=int(page_bytes), read_timeout=timedelta(seconds=5))
    async with connect(dsn, ConnectionSettings(driver=driver)) as database:
        limit(int(more))
        await run(database, recording(), ranges=2, settings=chosen, until_caught_up=True)

asyncio.run(main(*sys.argv[1:]))
"""


# Of digests, which do not compress: what compresses well may exceed the bound of a page.
APPEND = """
WITH pad AS MATERIALIZED (
    SELECT string_agg(md5(n::text), '') AS pad FROM generate_series(1, $1::integer / 32) AS n
)
SELECT projections.append_event_v1('a', 'plane', 'Happened', concat('{"n": 1, "pad": "', p.pad, '"}')::json)
FROM pad AS p CROSS JOIN generate_series(1, $2::integer)
"""


@pytest.fixture(params=["asyncpg", pytest.param("psycopg", marks=pytest.mark.slow)])
def driver(request: pytest.FixtureRequest) -> Any:
    return request.param


async def limited(dsn: str, driver: str, more: int, page_bytes: int) -> str:
    """Run the projection in a process with so much memory; returns what it has said."""
    arguments = [dsn, driver, str(more), str(page_bytes)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LIMITED, *arguments, stderr=PIPE, env=environment()
    )
    try:
        _, said = await asyncio.wait_for(process.communicate(), 300)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, said.decode()
    return said.decode()


@pytest.mark.slow
async def test_a_process_with_less_memory_than_the_events_of_a_batch_handles_all(
    database: Database, dsn: str, driver: str
) -> None:
    await execute(database, EFFECTS)
    await execute(database, APPEND, 5 * MIB, 27)

    said = await limited(dsn, driver, 120 * MIB, 8 * MIB)

    assert "reads pages of at most" not in said
    each_once(await effects(database), a=27)


@pytest.mark.slow
async def test_a_process_whose_pages_are_too_large_for_its_memory_halves_them_until_they_fit(
    database: Database, dsn: str, driver: str
) -> None:
    await execute(database, EFFECTS)
    await execute(database, APPEND, 5 * MIB, 27)

    said = await limited(dsn, driver, 120 * MIB, 256 * MIB)

    assert "reads pages of at most" in said, said
    each_once(await effects(database), a=27)


class HalfRead:
    """What a lost connection has read of an answer, in a cycle with it as asyncpg's are."""

    def __init__(self) -> None:
        self.connection = self


def test_a_lack_of_memory_frees_what_lost_connections_have_read() -> None:
    """Few objects hold it, so that Python would not look for them soon."""
    gc.disable()
    try:
        read = weakref.ref(HalfRead())
        assert read() is not None

        with pytest.raises(OutOfMemory, match="this process has no memory left"):
            raise translate(MemoryError())

        assert read() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("give_up", [Recovery.retry_and_park, Recovery.retry_and_skip])
@pytest.mark.parametrize("delivery", [ExactlyOnce(), AtLeastOnce()])
async def test_events_that_fail_are_freed_without_the_garbage_collector(
    database: Database, caplog: pytest.LogCaptureFixture, give_up: Any, delivery: Any
) -> None:
    """A few large ones would be all of the memory, and too few objects for Python to look for them."""
    events: list[weakref.ref[Happened]] = []

    async def fail(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        events.append(weakref.ref(event))
        raise Failure

    caplog.set_level(logging.CRITICAL, logger="projections")  # caplog keeps errors with all that they lead to
    await execute(database, EFFECTS)
    await happen(database, "a", "b", "c")
    again = give_up([timedelta(0)])
    gc.disable()
    try:
        await run_until_caught_up(database, recording(fail, recovery=again, delivery=delivery))

        assert len(events) >= 6
        assert {event() for event in events} == {None}
    finally:
        gc.enable()


async def test_a_statement_that_is_never_answered_ends_and_its_connection_is_dropped(
    dsn: str, driver: str
) -> None:
    async with connect(dsn, ConnectionSettings(driver=driver)) as pool:
        async with pool.session() as session:
            session.patience = timedelta(seconds=0.2)
            with pytest.raises(NoAnswer, match=r"no answer from the database for 0\.2 s"):
                await session.fetchval("SELECT pg_sleep(1000)")

        assert await fetchval(pool, "SELECT 1") == 1


@pytest.mark.slow
async def test_a_range_whose_page_is_never_answered_starts_again_with_smaller_ones(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody has the offsets locked, as if the server said nothing."""
    await execute(database, EFFECTS)
    await happen(database, "a")
    async with database.session() as holder:
        await holder.begin()
        await holder.execute("LOCK TABLE projections.source_offsets IN ACCESS EXCLUSIVE MODE")
        quick = settings(read_timeout=timedelta(seconds=1))
        async with running(database, recording(), settings=quick) as told:
            await told.first("failed")
            await holder.rollback()
            await until_effects(database, 1)

    each_once(await effects(database), a=1)
    (_, _, error) = told.all("failed")[0]
    assert isinstance(error, NoAnswer)
    assert "reads pages of at most 4096 KiB" in caplog.text


@pytest.mark.daily(1)
@pytest.mark.parametrize("delivery", [None, AtLeastOnce()], ids=["exactly-once", "at-least-once"])
async def test_an_event_whose_handler_alone_needs_too_much_memory_is_parked_with_a_reason(
    database: Database, delivery: Any
) -> None:
    async def greedy(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if envelope.source_id == "bad":
            raise MemoryError

    await execute(database, EFFECTS)
    await happen(database, "a", "bad", "b", "c", "d")

    definition = recording(greedy, recovery=NO_RETRY, delivery=delivery)
    await caught_up(database, definition)

    parked = "SELECT error, attempts, decision FROM projections.parked_sources"
    async with database.session() as session:
        assert "MemoryError()" in (await session.fetchrow(parked))["error"]
        await offsets.ParkedSources(session).retry("p", "bad")
    await happen(database, "a")

    # One whose retries all fail holds nobody up, either.
    await caught_up(database, definition)

    found = await effects(database)
    assert {source_id: seq_nr for source_id, seq_nr in found if source_id != "bad"} == {
        "a": 2,
        "b": 1,
        "c": 1,
        "d": 1,
    }
    async with database.session() as session:
        row = await session.fetchrow(parked)
    assert (row["attempts"], row["decision"]) == (2, "waiting")


async def test_what_the_server_has_no_memory_for_is_told_as_such(database: Database) -> None:
    async with database.session() as session:
        with pytest.raises(OutOfMemory, match="the database server has no memory left: nothing left"):
            await session.execute("DO $$ BEGIN RAISE 'nothing left' USING ERRCODE = '53200'; END $$")
