"""Partitions: made ahead, and the default partition emptied while others write and read."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from journal import (
    ALL_SLICES,
    Database,
    MissingPrivilege,
    Position,
    SliceReader,
    append,
    connect,
    current_events,
    find_event,
)
from journal.importing import import_events
from journal.partitions import MaintainedPartition, maintain
from journal.partitions.making import Patience, make_partitions
from tests.fixtures.journal import PAST, count, event, historic, stored, uuid7
from tests.fixtures.locks import WAITING

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
NOW = timedelta(0)


async def _partitions(database: Database) -> dict[str, tuple[datetime, datetime]]:
    async with database.session() as session:
        rows = await session.fetch(
            "SELECT name, from_timestamp, to_timestamp FROM projections.partitions "
            "WHERE from_timestamp IS NOT NULL ORDER BY from_timestamp"
        )
    return {row["name"]: (row["from_timestamp"], row["to_timestamp"]) for row in rows}


async def _in_default(database: Database) -> int:
    return await count(database, "projections.events_default")


def _today() -> datetime:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


async def test_makes_the_running_day_and_those_ahead(database: Database) -> None:
    made = await make_partitions(database, ahead=3)

    today = made[0].from_timestamp
    assert [(p.from_timestamp, p.to_timestamp, p.moved, p.problem) for p in made] == [
        (today + n * DAY, today + (n + 1) * DAY, 0, None) for n in range(4)
    ]
    assert _today() - DAY <= today <= _today()
    assert await _partitions(database) == {
        f"events_{p.from_timestamp:%Y%m%d}t000000": (p.from_timestamp, p.to_timestamp) for p in made
    }


async def test_running_twice_does_nothing_more(database: Database) -> None:
    await import_events(database, [historic("a", 1)])
    assert await make_partitions(database, ahead=2)

    assert await make_partitions(database, ahead=2) == []


async def test_appends_go_to_the_new_partition(database: Database) -> None:
    await make_partitions(database)

    async with database.transaction() as session:
        await append(session, [event()])

    assert (await count(database), await _in_default(database)) == (1, 0)


async def test_running_interval_stays_in_the_default_partition_once_it_has_events(database: Database) -> None:
    async with database.transaction() as session:
        await append(session, [event()])

    made = await make_partitions(database, ahead=2)

    assert len(made) == 2
    assert await _in_default(database) == 1


async def test_closed_intervals_are_moved_out_of_the_default_partition(database: Database) -> None:
    days = [historic(f"s{n % 3}", 1 + n // 3, db_timestamp=PAST + n * DAY / 4) for n in range(40)]
    await import_events(database, days)

    made = await make_partitions(database, ahead=1)

    assert [p.moved for p in made if p.from_timestamp < PAST + 30 * DAY] == [4] * 10
    assert await _in_default(database) == 0
    read = [e.db_timestamp async for e in current_events(database, "plane")]
    assert read == [PAST + n * DAY / 4 for n in range(40)]
    assert [e.seq_nr for e in await stored(database, "s0")] == list(range(1, 15))


async def test_event_at_the_boundary_belongs_to_the_later_partition(database: Database) -> None:
    micro = timedelta(microseconds=1)
    times = [PAST - micro, PAST, PAST + DAY - micro, PAST + DAY]
    await import_events(database, [historic("a", n, db_timestamp=t) for n, t in enumerate(times, 1)])

    made = await make_partitions(database, ahead=1)

    assert [(p.from_timestamp, p.moved) for p in made[:3]] == [(PAST - DAY, 1), (PAST, 2), (PAST + DAY, 1)]
    assert [e.db_timestamp async for e in current_events(database, "plane", start=PAST)] == times[1:]
    assert [e.db_timestamp async for e in current_events(database, "plane")] == times


async def test_event_is_found_by_its_id_in_every_partition(database: Database) -> None:
    ids = [uuid7(PAST + n * DAY) for n in range(5)] + [uuid7(PAST - 2000 * DAY)]
    history = [historic("a", n, event_id=i, db_timestamp=PAST + n * DAY) for n, i in enumerate(ids, 1)]
    await import_events(database, history)
    await make_partitions(database, ahead=1)

    async with database.session() as session:
        found = [await find_event(session, i) for i in ids]

    assert [e and e.seq_nr for e in found] == [1, 2, 3, 4, 5, 6]


async def test_smaller_interval_begins_after_the_larger_partitions(database: Database) -> None:
    days = await make_partitions(database, ahead=1)

    hours = await make_partitions(database, interval=HOUR, ahead=50)

    assert hours[0].from_timestamp == days[-1].to_timestamp
    assert {p.to_timestamp - p.from_timestamp for p in hours} == {HOUR}
    assert not any(p.problem for p in hours)


async def test_larger_interval_takes_the_time_that_smaller_partitions_leave_free(database: Database) -> None:
    async with database.session() as session:
        await session.execute("SELECT projections._create_partition_v1($1, $2)", PAST + HOUR, PAST + 2 * HOUR)
    times = [PAST + n * HOUR / 2 for n in range(6)]
    await import_events(database, [historic("a", n, db_timestamp=t) for n, t in enumerate(times, 1)])

    made = await make_partitions(database, ahead=1)

    assert [(p.from_timestamp, p.to_timestamp, p.moved) for p in made[:2]] == [
        (PAST, PAST + HOUR, 2),
        (PAST + 2 * HOUR, PAST + DAY, 2),
    ]
    assert [e.db_timestamp for e in await stored(database, "a")] == times


async def test_day_has_24_hours_in_every_time_zone(dsn: str, database: Database) -> None:
    with psycopg.connect(dsn, options="-c timezone=America/New_York") as connection:
        rows = connection.execute("SELECT * FROM projections._missing_partitions_v1('1 day', 400)").fetchall()

    assert {end.astimezone(UTC) - start.astimezone(UTC) for start, end in rows} == {DAY}
    assert {start.astimezone(UTC).hour for start, _ in rows} == {0}


@pytest.mark.slow
async def test_writers_and_readers_go_on_while_the_default_partition_is_emptied(database: Database) -> None:
    history = [historic(f"h{n % 10}", 1 + n // 10, db_timestamp=PAST + n * HOUR) for n in range(600)]
    await import_events(database, history)
    async with database.transaction() as session:
        await append(session, [event("live")])
    done, appended, reads = asyncio.Event(), [1], []

    async def write() -> None:
        while not done.is_set():
            async with database.transaction() as session:
                (last,) = await append(session, [event("live")])
            appended.append(last.seq_nr)

    async def read() -> None:
        while not done.is_set():
            known = len(appended)
            seen = [e async for e in current_events(database, "plane")]
            reads.append((known, seen))

    async def keep_house() -> list[MaintainedPartition]:
        made = await make_partitions(database, ahead=2, patience=Patience(attempts=100, pause=NOW))
        done.set()
        return made

    made, _, _ = await asyncio.gather(keep_house(), write(), read())

    assert sum(p.moved or 0 for p in made) == 600
    assert not any(p.problem for p in made)
    assert [e.seq_nr for e in await stored(database, "live")] == appended == list(range(1, len(appended) + 1))
    for known, seen in reads:
        assert len({(e.source_id, e.seq_nr) for e in seen}) == len(seen)
        assert sum(e.source_id != "live" for e in seen) == 600
        assert sum(e.source_id == "live" for e in seen) >= known


async def test_reader_that_meets_a_move_waits_and_sees_every_event(database: Database) -> None:
    """Else it plans without the new partition, and finds the default partition without the events."""
    history = [historic("a", n, db_timestamp=PAST + n * HOUR) for n in range(1, 48)]
    await import_events(database, history)
    async with database.session() as session:
        await session.begin()
        moved = await session.fetchval("SELECT projections._create_partition_v1($1, $2)", PAST, PAST + DAY)
        reading = asyncio.create_task(_numbers(database))
        await _until_somebody_waits(database)
        await session.commit()

    assert moved == 23
    assert await reading == list(range(1, 48))


async def test_page_within_the_time_of_a_move_waits_and_has_every_event(database: Database) -> None:
    """Its times are all in the new partition: the default one, where its snapshot has the events, is not looked at."""
    await import_events(database, [historic("a", n, db_timestamp=PAST + n * HOUR) for n in range(1, 20)])
    async with database.session() as session:
        await session.begin()
        await session.fetchval("SELECT projections._create_partition_v1($1, $2)", PAST, PAST + DAY)
        reading = [asyncio.create_task(page(database)) for page in (_page_of_events, _page_of_keys)]
        await _until_somebody_waits(database, 2)
        await session.commit()

    assert [await page for page in reading] == [[*range(5, 11)]] * 2


async def _page_of_events(database: Database) -> list[int]:
    async with database.session() as session:
        reader = SliceReader("plane", ALL_SLICES)
        page = await reader.events(session, Position.before(PAST + 5 * HOUR), PAST + 10 * HOUR)
    return [e.seq_nr for e in page]


async def _page_of_keys(database: Database) -> list[int]:
    async with database.session() as session:
        reader = SliceReader("plane", ALL_SLICES)
        page = await reader.keys(session, Position.before(PAST + 5 * HOUR), PAST + 10 * HOUR)
    return [key.seq_nr for key in page]


async def _numbers(database: Database) -> list[int]:
    return [e.seq_nr async for e in current_events(database, "plane")]


async def test_open_writer_makes_maintenance_give_up_and_a_later_run_works(database: Database) -> None:
    await import_events(database, [historic("a", 1)])
    async with database.session() as writer:
        await writer.begin()
        await append(writer, [event("open")])

        waited = timedelta(milliseconds=20)
        refused = await make_partitions(database, ahead=1, patience=Patience(waited, 2, NOW))

        assert {p.moved for p in refused} == {None}
        assert all("stayed open for longer than the lock timeout" in str(p.problem) for p in refused)
        assert await _partitions(database) == {}
        async with database.transaction() as other:
            await append(other, [event("b")])
        await writer.commit()

    made = await make_partitions(database, ahead=1)

    assert [p.moved for p in made] == [1, 0]
    assert await count(database) == 3


@pytest.mark.slow
async def test_writer_that_comes_while_maintenance_waits_is_let_through_by_its_lock_timeout(
    database: Database,
) -> None:
    async with database.session() as opened, database.session() as late:
        await opened.begin()
        await append(opened, [event("open")])
        running = asyncio.create_task(
            make_partitions(database, ahead=1, patience=Patience(timedelta(milliseconds=300), 1))
        )
        await _until_somebody_waits(database)
        await late.begin()
        await append(late, [event("late")])
        await late.commit()
        refused = await running
        await opened.commit()

    assert all(p.problem for p in refused)
    assert len(await stored(database, "late")) == 1


async def _until_somebody_waits(database: Database, number: int = 1) -> None:
    async with database.session() as session:
        while await session.fetchval(f"SELECT count(*) FROM {WAITING}") < number:
            await asyncio.sleep(0.001)


async def test_append_that_meets_the_new_partition_of_its_time_waits_for_it(database: Database) -> None:
    """PostgreSQL refuses a row that was on its way to the default partition: so it must not set out."""
    start = _today()
    async with database.session() as session:
        await session.begin()
        await session.execute("SELECT projections._create_partition_v1($1, $2)", start, start + 2 * DAY)
        appending = asyncio.create_task(_append_one(database))
        await _until_somebody_waits(database)
        await session.commit()
        await appending

    assert (await count(database), await _in_default(database)) == (1, 0)


async def _append_one(database: Database) -> None:
    async with database.transaction() as session:
        await append(session, [event()])


async def test_import_that_meets_the_new_partition_of_its_time_waits_for_it(database: Database) -> None:
    async with database.session() as session:
        await session.begin()
        await session.execute("SELECT projections._create_partition_v1($1, $2)", PAST, PAST + DAY)
        importing = asyncio.create_task(import_events(database, [historic("a", 1)]))
        await _until_somebody_waits(database)
        await session.commit()
        await importing

    assert (await count(database), await _in_default(database)) == (1, 0)


async def test_of_two_maintainers_one_says_that_the_other_is_at_work(database: Database) -> None:
    async with database.session() as other:
        await other.begin()
        await other.execute(
            "SELECT pg_advisory_xact_lock(hashtext('slice-projections'), hashtext('maintain'))"
        )
        refused = await make_partitions(database, ahead=1, patience=Patience(attempts=1))
        await other.rollback()

    assert {p.problem for p in refused} == {"another maintenance run is at work"}


async def test_two_maintainers_at_once_make_each_partition_once(database: Database) -> None:
    await import_events(database, [historic("a", n, db_timestamp=PAST + n * DAY) for n in range(1, 6)])

    runs = await asyncio.gather(
        *(make_partitions(database, ahead=3, patience=Patience(attempts=100, pause=NOW)) for _ in range(2))
    )

    assert not any(p.problem for run in runs for p in run)
    starts = [p.from_timestamp for run in runs for p in run]
    assert len(starts) == len(set(starts)) == 9
    assert await _in_default(database) == 0


async def test_role_that_does_not_own_the_schema_is_refused(dsn: str) -> None:
    async with connect(dsn) as database, database.session() as session:
        await session.execute("SET ROLE projections_writer")
        with pytest.raises(MissingPrivilege):
            await session.execute("SELECT projections._create_partition_v1($1, $2)", PAST, PAST + DAY)


@pytest.mark.parametrize(
    "wrong",
    [
        {"interval": timedelta(seconds=59)},
        {"interval": timedelta(hours=1, microseconds=1)},
        {"ahead": 0},
        {"attempts": 0},
    ],
    ids=str,
)
async def test_setting_out_of_bounds_is_refused(database: Database, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        await maintain(database, **wrong)
