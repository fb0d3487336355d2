"""Dropping partitions beside readers, writers, imports, other runs and kills."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from journal import Database, DatabaseError, DatabaseUnavailable, current_events, import_events
from journal.partitions.periodic import take_turn
from projections.subscriptions.groups import poll_group
from projections.subscriptions.reading import read_held, read_on
from tests.fixtures.journal import count, historic
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import execute, fetchval, happen, until
from tests.fixtures.retention import (
    DAY,
    HOUR,
    NAMES,
    NOW,
    PAST,
    filled,
    group,
    keep,
    match,
    past,
    reader,
    retained,
)
from tests.fixtures.subscriptions import read_next

DROP = "SELECT projections._drop_partition_v1($1)"
LOOKED_AT = """
SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0) FROM pg_stat_xact_user_tables
WHERE relname = 'matches_20200102t000000'
"""
OF_CONSUMERS = """
SELECT count(*) FROM pg_locks WHERE relation = 'projections.group_ranges'::regclass AND mode = 'ShareLock'
AND database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
"""
LONGER = "stayed open for longer than the lock timeout"


@pytest.fixture
async def journal(database: Database) -> Database:
    return await filled(database)


async def _until_somebody_waits(database: Database) -> None:
    await until(database, f"SELECT count(*) > 0 FROM {WAITING}")


@pytest.mark.slow
async def test_run_that_is_killed_after_detaching_leaves_the_partition_whole(journal: Database) -> None:
    async with journal.session() as session:
        await session.begin()
        pid = await session.fetchval("SELECT pg_backend_pid()")
        await session.fetchval(DROP, NAMES[0])
        assert await session.fetchval("SELECT to_regclass($1) IS NULL", f"projections.{NAMES[0]}")
        await fetchval(journal, "SELECT pg_terminate_backend($1, 10000)", pid)
        with pytest.raises(DatabaseUnavailable):
            await session.fetchval("SELECT 1")

    assert await past(journal) == NAMES
    assert await count(journal) == 36
    assert len((await retained(journal)).dropped) == 3


@pytest.mark.slow
async def test_open_reader_makes_the_run_give_up_and_a_later_one_works(journal: Database) -> None:
    async with journal.session() as session:
        await session.begin()
        await session.fetchval("SELECT count(*) FROM projections.events")
        refused = await retained(journal)
        await happen(journal, "a")
        await session.rollback()

    assert {LONGER in str(each.problem) for each in refused.dropped} == {True}
    done = await retained(journal)
    assert [each.problem for each in done.dropped] == [None] * 3
    assert await count(journal) == 1


@pytest.mark.slow
async def test_run_does_not_wait_for_every_partition_when_the_first_few_are_in_use(
    database: Database,
) -> None:
    for day in range(6):
        start = PAST + day * DAY
        await execute(database, "SELECT projections._create_partition_v1($1, $2)", start, start + DAY)
    await keep(database, "events", retention=DAY)
    async with database.session() as session:
        await session.begin()
        await session.fetchval("SELECT count(*) FROM projections.events")
        refused = await retained(database)
        await session.rollback()

    assert [str(each.problem).startswith("not tried: ") for each in refused.dropped] == [False] * 3 + [
        True
    ] * 3


@pytest.mark.slow
async def test_whoever_comes_while_the_run_waits_is_let_through_by_its_lock_timeout(
    journal: Database,
) -> None:
    async with journal.session() as session:
        await session.begin()
        await session.fetchval("SELECT count(*) FROM projections.events")
        run = asyncio.create_task(retained(journal, lock_timeout=timedelta(milliseconds=300)))
        await _until_somebody_waits(journal)
        await happen(journal, "a")
        seen = [event async for event in current_events(journal, "plane")]
        await run
        await session.rollback()

    assert len(seen) == 37


async def test_import_in_flight_into_the_partition_is_waited_for_and_then_kept(journal: Database) -> None:
    """Its events are behind no horizon yet: what reads them is told of them by the import alone."""
    await reader(journal, PAST + 7 * DAY)
    async with journal.session() as session:
        await session.begin()
        await session.execute(
            "INSERT INTO projections.imports (entity_type, from_timestamp, events) VALUES ('plane', $1, 1)",
            PAST,
        )
        await session.execute("LOCK TABLE projections.imports IN SHARE ROW EXCLUSIVE MODE")
        refused = asyncio.create_task(fetchval(journal, DROP, NAMES[0]))
        await _until_somebody_waits(journal)
        await session.commit()
        with pytest.raises(DatabaseError, match="has not read an import from 2020-01-01"):
            await refused


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        "_set_offset_v1(1, '2020-01-01Z')",
        "register_projection_v1('new', '{plane}')",
        "_begin_rebuild_v1(1, 0, 1023, 1, now(), 0, '', 'rename', '{0}', '{1023}', '{}', '{}', '{}', '{}', '{plane}')",
    ],
    ids=["set back", "registered", "rebuilt"],
)
async def test_projection_that_comes_to_need_the_partition_meanwhile_keeps_it(
    journal: Database, change: str
) -> None:
    await reader(journal, PAST + 7 * DAY)
    async with journal.session() as session:
        await session.begin()
        await session.fetchval(f"SELECT projections.{change}")
        refused = asyncio.create_task(fetchval(journal, DROP, NAMES[0]))
        await _until_somebody_waits(journal)
        await session.commit()
        with pytest.raises(DatabaseError, match="is kept: ") as error:
            await refused

    assert error.value.sqlstate == "PJ071"


@pytest.mark.slow
@pytest.mark.parametrize("table", ["events", "matches"])
async def test_what_a_group_has_not_read_is_looked_at_before_the_locks_of_consumers_and_once(
    journal: Database, table: str
) -> None:
    number = await group(journal)
    for day in range(2):
        start = PAST + day * DAY
        await execute(
            journal, "SELECT projections._create_partition_v1($1, $2, 'matches')", start, start + DAY
        )
    await keep(journal, "matches", retention=DAY)
    for match_id in range(1, 21):
        await match(journal, number, PAST + 2 * DAY, PAST + DAY + HOUR, match_id)
    async with journal.session() as rows, journal.session() as dropping:
        await rows.begin()
        await rows.execute("LOCK TABLE projections.matches_20200102t000000 IN ACCESS EXCLUSIVE MODE")
        await dropping.begin()
        before = await dropping.fetchval(LOOKED_AT)
        dropped = asyncio.create_task(dropping.fetchval(DROP, f"{table}_20200101t000000"))
        await _until_somebody_waits(journal)
        assert await fetchval(journal, OF_CONSUMERS) == 0
        await rows.rollback()
        assert await dropped > 0
        assert await dropping.fetchval(OF_CONSUMERS) == 1
        assert await dropping.fetchval(LOOKED_AT) - before == 20
        await dropping.rollback()


@pytest.mark.slow
async def test_a_group_that_is_cut_while_a_partition_is_to_be_dropped_keeps_it(journal: Database) -> None:
    await group(journal)
    async with journal.session() as session:
        await session.begin()
        await session.execute("SELECT projections._cut_group_v1('billing', '{0,512}')")
        refused = asyncio.create_task(fetchval(journal, DROP, NAMES[0]))
        await _until_somebody_waits(journal)
        await session.commit()
        with pytest.raises(
            DatabaseError, match="billing has gone back, or was cut into other ranges, just now"
        ):
            await refused
    assert await fetchval(journal, DROP, NAMES[0]) > 0


@pytest.mark.slow
async def test_all_locks_of_a_drop_are_had_within_one_lock_timeout(journal: Database) -> None:
    """What is left of it when the first is had is all that there is for the next."""
    async with journal.session() as session, journal.session() as other:
        await other.begin()
        await other.execute("LOCK TABLE projections.rebuilds IN ACCESS EXCLUSIVE MODE")
        await session.begin()
        await session.execute("SET LOCAL lock_timeout = '300ms'")
        with pytest.raises(DatabaseError) as error:
            await session.fetchval(
                "SELECT projections._lock_within_v1(ARRAY['projections.projections IN SHARE MODE',"
                " 'projections.rebuilds IN SHARE MODE'])"
            )
        assert error.value.sqlstate == "55P03"
        await session.rollback()
        await other.rollback()
        await session.begin()
        await session.execute("SET LOCAL lock_timeout = '300ms'")
        await session.fetchval("SELECT projections._lock_within_v1('{projections.rebuilds IN SHARE MODE}')")
        assert await session.fetchval("SELECT current_setting('lock_timeout')") == "300ms"
        await session.rollback()


async def test_match_that_is_written_into_the_partition_meanwhile_keeps_it(journal: Database) -> None:
    number = await group(journal)
    await execute(journal, "SELECT projections._create_partition_v1($1, $2, 'matches')", PAST, PAST + DAY)
    async with journal.session() as session:
        await session.begin()
        await session.execute(
            "INSERT INTO projections.matches SELECT 5, $1, 7, 1, $2, $2, 'a', '{1}'", number, PAST + HOUR
        )
        refused = asyncio.create_task(fetchval(journal, DROP, "matches_20200101t000000"))
        await _until_somebody_waits(journal)
        await session.commit()
        with pytest.raises(DatabaseError, match="billing has 1 matches to read"):
            await refused


async def test_match_that_meets_the_new_partition_of_its_time_waits_for_it(database: Database) -> None:
    """PostgreSQL refuses a row that is on its way to the default partition when its own appears."""
    number = await group(database)
    create = "SELECT projections._create_partition_v1($1, $2, 'matches')"
    async with database.session() as session:
        await session.begin()
        await session.fetchval(create, PAST, PAST + DAY)
        writing = asyncio.create_task(match(database, number, PAST, PAST + HOUR))
        await _until_somebody_waits(database)
        await session.commit()
        await writing

    assert await count(database, "projections.matches_20200101t000000") == 1


@pytest.mark.parametrize("held", [True, False], ids=["by who holds a range", "by who listens"])
async def test_match_that_moves_to_a_new_partition_while_it_is_looked_for_is_found(
    database: Database, held: bool
) -> None:
    number = await group(database)
    await match(database, number, PAST, PAST + HOUR)
    async with database.session() as session:
        (range_,) = await poll_group(session, "billing", "me", DAY)
        (found,) = await read_next(session, "billing", after=0, until=100, limit=10)
    async with database.session() as session, database.session() as other:
        await session.begin()
        moved = await session.fetchval(
            "SELECT projections._create_partition_v1($1, $2, 'matches')", PAST, PAST + DAY
        )
        places: dict[str, Any] = {"after": found.place, "until": 100, "limit": 10}
        reading = asyncio.create_task(
            read_held(other, "billing", range_, **places) if held else read_on(other, "billing", **places)
        )
        await _until_somebody_waits(database)
        await session.commit()
        page = await reading

    assert moved == 1
    assert page == []


@pytest.mark.slow
async def test_of_two_runs_at_once_each_partition_is_dropped_by_one(journal: Database) -> None:
    # The drop of the other may have to wait for the disk.
    patient: dict[str, Any] = {"attempts": 1000, "pause": timedelta(milliseconds=20)}
    runs = await asyncio.gather(*(retained(journal, **patient) for _ in range(2)))

    dropped = [each for run in runs for each in run.dropped]
    assert sorted(each.partition.name for each in dropped if each.problem is None) == NAMES
    assert [each.problem for each in dropped if each.problem] == []


async def test_run_says_that_another_is_at_work(journal: Database) -> None:
    async with journal.session() as other:
        await other.begin()
        await other.execute(
            "SELECT pg_advisory_xact_lock(hashtext('slice-projections'), hashtext('maintain'))"
        )
        refused = await retained(journal)
        assert await fetchval(journal, "SELECT count(*) FROM projections.maintain_v1()") == 0
        await other.rollback()

    assert {each.problem for each in refused.dropped} == {"another maintenance run is at work"}
    assert await past(journal) == NAMES


@pytest.mark.slow
async def test_step_that_waits_in_vain_is_told_and_the_next_is_done(journal: Database) -> None:
    await keep(journal, "events", ahead=1)
    async with journal.session() as session:
        await session.begin()
        await session.execute(f"LOCK TABLE projections.{NAMES[0]} IN ROW EXCLUSIVE MODE")
        async with journal.session() as other:
            rows = await other.fetch("SELECT * FROM projections.maintain_v1()")
        await session.rollback()

    assert [(row["name"], row["problem"]) for row in rows] == [
        (NAMES[0], "canceling statement due to lock timeout"),
        (NAMES[1], None),
    ]


@pytest.mark.slow
async def test_broken_partition_never_stops_the_others(journal: Database) -> None:
    await execute(journal, f"CREATE VIEW public.depends AS SELECT * FROM projections.{NAMES[0]}")

    await take_turn(journal, NOW)

    assert await past(journal) == NAMES[:1]


@pytest.mark.slow
async def test_writers_and_readers_go_on_while_old_partitions_leave(journal: Database) -> None:
    done, appended = asyncio.Event(), 0

    async def write() -> None:
        nonlocal appended
        while not done.is_set():
            await happen(journal, "live")
            appended += 1

    async def read() -> None:
        while not done.is_set():
            known = appended
            seen = [event async for event in current_events(journal, "plane")]
            assert sum(event.source_id == "live" for event in seen) >= known

    async def keep_house() -> None:
        result = await retained(journal, attempts=200)
        done.set()
        assert [each.problem for each in result.dropped] == [None] * 3

    await asyncio.gather(keep_house(), write(), read())

    assert await count(journal) == appended


@pytest.mark.slow
async def test_import_of_the_dropped_time_waits_and_goes_to_the_default_partition(journal: Database) -> None:
    async with journal.session() as session:
        await session.begin()
        await session.fetchval(DROP, NAMES[0])
        importing = asyncio.create_task(import_events(journal, [historic("late", 1)]))
        await _until_somebody_waits(journal)
        await session.commit()
        await importing

    assert await count(journal, "projections.events_default") == 1


@pytest.mark.slow
async def test_copy_in_slice_order_goes_with_its_partition(journal: Database) -> None:
    """A run that puts it in slice order says so at its swap."""
    await fetchval(journal, "SELECT projections._cluster_partition_v1($1)", NAMES[0])

    await retained(journal)

    copies = "SELECT count(*) FROM pg_class WHERE relname LIKE 'events_copy_of_%'"
    assert await fetchval(journal, copies) == 0
    with pytest.raises(DatabaseError, match="is gone: another run has removed it") as refused:
        await fetchval(journal, "SELECT projections._swap_partition_v1($1)", NAMES[0])
    assert refused.value.sqlstate == "PJ050"


@pytest.mark.slow
async def test_table_that_was_detached_by_hand_is_left_alone(journal: Database) -> None:
    await execute(journal, f"ALTER TABLE projections.events DETACH PARTITION projections.{NAMES[0]}")

    done = await retained(journal)

    assert [each.partition.name for each in done.dropped] == NAMES[1:]
    assert await count(journal, f"projections.{NAMES[0]}") == 12


async def test_isolation_level_that_would_not_see_what_was_waited_for_is_refused(journal: Database) -> None:
    async with journal.session() as session:
        await session.begin()
        await session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(DatabaseError, match="needs the isolation level READ COMMITTED"):
            await session.fetchval(DROP, NAMES[0])
        await session.rollback()
