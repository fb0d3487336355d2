"""What a journal is without the partitions that have left it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from journal import Database, append, import_events
from projections.testing import run_until_caught_up
from tests.fixtures.journal import event, historic, uuid7
from tests.fixtures.projections import EFFECTS, each_once, effects, execute, fetchval, happen, recording
from tests.fixtures.retention import DAY, HOUR, NAMES, PAST, filled, keep, reader, retained

WEEK = 7 * DAY


@pytest.fixture
async def journal(database: Database) -> Database:
    return await filled(database)


@pytest.mark.slow
async def test_projection_that_has_passed_goes_on_after_the_drop(journal: Database) -> None:
    await execute(journal, EFFECTS)
    await run_until_caught_up(journal, recording())
    await execute(journal, "UPDATE projections.projection_ranges SET horizon = $1", PAST + WEEK)
    dropped = await retained(journal)
    # Eviction takes the offsets of what is gone, as far as retention of offsets lets it.
    await fetchval(journal, "SELECT projections._evict_offsets_v1(1, '1 day', '')")

    await happen(journal, "a", "b", "a", "new")
    await run_until_caught_up(journal, recording())

    assert [each.partition.name for each in dropped.dropped] == NAMES
    each_once(await effects(journal), a=14, b=13, c=12, new=1)


@pytest.mark.slow
async def test_projection_that_was_robbed_by_force_goes_on_with_what_is_left(journal: Database) -> None:
    await execute(journal, EFFECTS)
    await reader(journal, PAST + DAY, "p")
    await execute(
        journal,
        "INSERT INTO projections.source_offsets (projection_id, source_id, slice, seq_nr, db_timestamp) "
        "SELECT projection_id, 'a', 97, 4, $1 FROM projections.projections",
        PAST + 18 * HOUR,
    )
    await execute(journal, "UPDATE projections.projections SET evicted_before = $1", PAST)
    await retained(journal, force=True)

    await happen(journal, "a", "b", "new")
    await run_until_caught_up(journal, recording())

    assert sorted(await effects(journal)) == [("a", 13), ("b", 13), ("new", 1)]


@pytest.mark.slow
async def test_projection_that_is_made_after_the_drop_begins_with_what_is_left(journal: Database) -> None:
    await execute(journal, EFFECTS)
    await keep(journal, "events", retention=datetime.now(UTC) - (PAST + 2 * DAY) - HOUR)
    await retained(journal)
    await happen(journal, "a", "new")

    await run_until_caught_up(journal, recording())

    assert sorted(await effects(journal)) == [
        *(("a", number) for number in range(9, 14)),
        *((source, number) for source in ("b", "c") for number in range(9, 13)),
        ("new", 1),
    ]


async def test_numbers_and_times_of_a_source_go_on_after_its_events_are_gone(journal: Database) -> None:
    await retained(journal)

    await happen(journal, "a")

    rows = "SELECT array_agg(seq_nr) FROM projections.events WHERE source_id = 'a'"
    assert await fetchval(journal, rows) == [13]


async def test_id_of_an_event_that_is_gone_is_no_longer_known(journal: Database) -> None:
    number = uuid7(PAST, 1)
    await import_events(journal, [historic("x", 1, event_id=number)])
    await retained(journal)

    async with journal.transaction() as session:
        (appended,) = await append(session, [event("x", event_id=number)])

    assert appended.seq_nr == 2


async def test_import_into_dropped_time_is_taken_by_the_default_partition_and_leaves_again(
    journal: Database,
) -> None:
    await retained(journal)
    await execute(
        journal,
        "INSERT INTO projections.events (db_timestamp, seq_nr, event_id, slice, version, source_id, entity_type, "
        "event_type, payload) VALUES ($1, 1, gen_random_uuid(), 1, 1, 'late', 'plane', 'Happened', '{}')",
        PAST,
    )

    first = await retained(journal)

    assert [each.moved for each in first.made] == [1]
    assert [each.partition.name for each in first.dropped] == [NAMES[0]]
