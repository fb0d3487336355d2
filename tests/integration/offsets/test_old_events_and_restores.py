"""Events come back from an archive beside a projection that catches up and stores no offsets of old events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from journal import ConnectionSettings, Database, DatabaseError, connect
from projections import EventEnvelope, Session
from projections.testing import run_until_caught_up
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import (
    EFFECTS,
    Happened,
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

MINUTE = timedelta(minutes=1)
TIMES = {
    "events": ("db_timestamp",),
    "sources": ("db_timestamp",),
    "source_offsets": ("db_timestamp",),
    "projection_ranges": ("horizon", "handled_until"),
}
TAKE_OUT = "CREATE TABLE archived AS SELECT * FROM projections.events WHERE source_id = 's'"
BRING_BACK = "INSERT INTO projections.events SELECT * FROM archived"
PASS = """
SELECT projections._pass_restored_v1(
    1, '{[0,1024)}', (SELECT handled_until FROM projections.projection_ranges),
    array_agg(source_id), array_agg(slice), array_agg(seq_nr), array_agg(db_timestamp)
) FROM archived
"""


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=20)) as pool:
        await execute(pool, EFFECTS)
        yield pool


async def a_day_goes_by(database: Database) -> None:
    for table, columns in TIMES.items():
        values = ", ".join(f"{column} = {column} - interval '1 day'" for column in columns)
        await execute(database, f"UPDATE projections.{table} SET {values}")


async def passed_without(database: Database) -> None:
    """The first event of source "s" is in an archive, and was so when the projection passed its time."""
    await happen(database, "s")
    await happen(database, "a")
    await execute(database, TAKE_OUT)
    await execute(database, "DELETE FROM projections.events WHERE source_id = 's'")
    await run_until_caught_up(database, recording())
    await a_day_goes_by(database)


async def test_a_range_that_looks_no_offset_up_begins_again_when_a_restore_stores_some(
    journal: Database,
) -> None:
    handling, restored = asyncio.Event(), asyncio.Event()

    async def wait(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if envelope.source_id == "b" and not restored.is_set():
            handling.set()
            await restored.wait()

    await passed_without(journal)
    await happen(journal, "b", "s", "t")  # no offset is stored of the first two
    await a_day_goes_by(journal)
    await execute(journal, "UPDATE archived SET db_timestamp = db_timestamp - interval '2 days'")

    async with running(journal, recording(wait), settings=settings(retention=MINUTE)):
        async with asyncio.timeout(300):
            await handling.wait()  # it has taken in all offsets: none of "s"
        await execute(journal, PASS)
        await execute(journal, BRING_BACK)
        restored.set()
        await until_effects(journal, 4)
        await happen(journal, "s", "end")
        await until(journal, "SELECT EXISTS (SELECT FROM effects WHERE source_id = 'end')")

    assert sorted(await effects(journal)) == [("a", 1), ("b", 1), ("end", 1), ("s", 2), ("s", 3), ("t", 1)]


async def test_a_range_that_is_not_behind_keeps_its_owner(journal: Database) -> None:
    await passed_without(journal)
    await execute(journal, "UPDATE projections.projection_ranges SET owner = 'w', horizon = now()")

    await execute(journal, PASS)

    assert await fetchval(journal, "SELECT owner FROM projections.projection_ranges") == "w"
    assert (
        await fetchval(journal, "SELECT count(*) FROM projections.source_offsets WHERE source_id = 's'") == 1
    )


async def test_a_restore_locks_the_range_before_the_offsets(journal: Database, dsn: str) -> None:
    """As a batch does: it has its range, and then stores the offset of a source that the restore moves, too."""
    await passed_without(journal)
    await execute(journal, PASS)  # its offset is there
    batch = await asyncpg.connect(dsn)
    await batch.execute("BEGIN")
    await batch.execute("SELECT FROM projections.projection_ranges FOR UPDATE")

    restore = asyncio.create_task(execute(journal, PASS.replace("seq_nr)", "seq_nr + 1)")))
    await until(journal, f"SELECT EXISTS (SELECT FROM {WAITING})")
    await batch.execute("UPDATE projections.source_offsets SET seq_nr = 2 WHERE source_id = 's'")
    await batch.execute("COMMIT")
    await restore
    await batch.close()


def restore_of(first: datetime, last: datetime) -> tuple[Any, ...]:
    return "SELECT projections._read_restored_v1('{plane}', $1, $2)", first, last


async def test_no_events_come_back_into_a_time_in_which_a_projection_stands_without_offsets(
    journal: Database,
) -> None:
    """It would take those before the bound for handled, and handle the others."""
    await happen(journal, "a", "b", "c")
    await a_day_goes_by(journal)
    first = await fetchval(journal, "SELECT min(db_timestamp) FROM projections.events")
    await run_until_caught_up(journal, recording(batch_size=2), retention=MINUTE)
    stands = await fetchval(journal, "SELECT evicted_before FROM projections.projections")
    assert first < stands
    await execute(
        journal, "UPDATE projections.projection_ranges SET horizon = $1, handled_until = $1", stands
    )

    with pytest.raises(DatabaseError, match=r"stands between .* leave out others") as refused:
        await execute(journal, *restore_of(first, stands + MINUTE))
    assert refused.value.sqlstate == "PJ040"

    await execute(journal, *restore_of(first, stands))  # it has passed that time
    await execute(journal, *restore_of(stands, stands + MINUTE))  # it knows what it handles of that time


async def test_events_come_back_before_a_time_that_a_projection_was_set_to(journal: Database) -> None:
    """What is older than that is not to be handled, and nothing else has been."""
    await happen(journal, "a", "b")
    await run_until_caught_up(journal, recording())
    first, last = await fetchval(
        journal, "SELECT array_agg(db_timestamp ORDER BY db_timestamp) FROM projections.events"
    )
    async with journal.transaction() as session:
        await session.fetchval("SELECT projections._set_offset_v1(1, $1)", last)
        await session.execute("TRUNCATE effects")

    await execute(journal, *restore_of(first, last + MINUTE))
    await run_until_caught_up(journal, recording())

    each_once(await effects(journal), b=1)
