"""Settings of partitioned tables, changed while running; bounds, names and numbers of partitions."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from journal import Database, DatabaseError, MissingPrivilege, append, connect, current_events, import_events
from journal.partitions import (
    InvalidValue,
    change_partition_settings,
    partition_settings,
    partitions,
)
from journal.partitions.making import make_partitions
from journal.schema import install
from tests.fixtures.journal import count, event, historic
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.retention import DAY, HOUR, NOW, PAST, keep, reader, retained

MICRO = timedelta(microseconds=1)


async def spans(database: Database, table: str = "events") -> list[tuple[datetime | None, datetime | None]]:
    async with database.session() as session:
        found = await partitions(session)
    return [
        (each.from_timestamp, each.to_timestamp)
        for each in found
        if each.table == table and not each.is_default
    ]


async def test_installing_again_leaves_the_settings_as_they_are(database: Database, dsn: str) -> None:
    install(dsn)

    async with database.session() as session:
        events, *_ = await partition_settings(session)
    assert (events.interval, events.ahead) == (DAY, 7)


async def test_tables_have_settings_from_the_start(empty_dsn: str) -> None:
    install(empty_dsn)
    async with connect(empty_dsn) as database, database.session() as session:
        events, matches, attempts, logged = await partition_settings(session)

    assert (events.table, events.interval, events.ahead, events.retention) == ("events", 7 * DAY, 2, None)
    assert (matches.table, matches.interval, matches.ahead, matches.retention) == ("matches", DAY, 7, 7 * DAY)
    assert (attempts.table, attempts.retention) == ("webhook_attempts", 30 * DAY)
    assert (logged.table, logged.retention) == ("webhook_events", 30 * DAY)


async def test_what_is_not_given_stays(database: Database) -> None:
    async with database.session() as session:
        await change_partition_settings(session, "events", retention=90 * DAY, archive_first=True)
        await change_partition_settings(session, "events", interval=HOUR)
        events = await change_partition_settings(session, "events", ahead=9)
        assert (events.interval, events.ahead, events.retention, events.archive_first) == (
            HOUR,
            9,
            90 * DAY,
            True,
        )

        events = await change_partition_settings(session, "events", retention="forever", archive_first=False)
        assert (events.interval, events.ahead, events.retention, events.archive_first) == (
            HOUR,
            9,
            None,
            False,
        )


@pytest.mark.parametrize(
    ("table", "wrong", "says"),
    [
        ("sources", {"ahead": 1}, "no table 'sources' has partitions"),
        ("events", {"interval": timedelta(seconds=59)}, "1 minute to 366 days"),
        ("events", {"interval": HOUR + MICRO}, "whole seconds"),
        ("events", {"interval": timedelta(days=367)}, "1 minute to 366 days"),
        ("events", {"ahead": 0}, "ahead is 1 to 1,000, not 0"),
        ("events", {"ahead": 1001}, "ahead is 1 to 1,000, not 1001"),
        ("events", {"retention": NOW}, "retention is at least 1 minute"),
        ("matches", {"archive_first": True}, "only partitions of events are archived"),
    ],
    ids=str,
)
async def test_setting_out_of_bounds_is_refused(
    database: Database, table: str, wrong: dict[str, Any], says: str
) -> None:
    async with database.session() as session:
        with pytest.raises(InvalidValue, match=says):
            await change_partition_settings(session, table, **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        "partition_interval = '1 month'",
        "partition_interval = '1 year'",
        "partition_interval = '59 seconds'",
        "partition_interval = '90.5 seconds'",
        "partition_interval = '-1 day'",
        "ahead = 0",
        "retention = '0'",
        "retention = '-1 day'",
        "table_name = 'sources'",
    ],
)
async def test_database_refuses_such_a_setting_too(database: Database, wrong: str) -> None:
    with pytest.raises(DatabaseError) as refused:
        await execute(
            database, f"UPDATE projections.partition_settings SET {wrong} WHERE table_name = 'events'"
        )

    assert refused.value.sqlstate == "23514"


async def test_role_that_does_not_own_the_schema_changes_no_setting(database: Database) -> None:
    async with database.session() as session:
        await session.execute("SET ROLE projections_worker")
        with pytest.raises(MissingPrivilege):
            await change_partition_settings(session, "events", ahead=3)


async def test_function_knows_tables_with_partitions_alone(database: Database) -> None:
    with pytest.raises(DatabaseError, match="'sources' is not a table with partitions in time") as refused:
        await fetchval(
            database, "SELECT projections._create_partition_v1($1, $2, 'sources')", PAST, PAST + DAY
        )

    assert refused.value.sqlstate == "PJ070"


@pytest.mark.slow
@pytest.mark.parametrize("table", ["events", "matches", "webhook_events", "webhook_attempts"])
@pytest.mark.parametrize(("before", "after"), [(DAY, 7 * HOUR), (HOUR, DAY)], ids=["shorter", "longer"])
async def test_interval_is_changed_while_running_and_no_time_is_left_out_or_taken_twice(
    database: Database, table: str, before: timedelta, after: timedelta
) -> None:
    await keep(database, table, interval=before, ahead=3)
    await make_partitions(database, table=table)
    await keep(database, table, interval=after, ahead=15)

    made = await make_partitions(database, table=table)

    found = await spans(database, table)
    assert not any(each.problem for each in made)
    assert all(stop == start for (_, stop), (start, _) in pairwise(found))
    assert found[-1][1] is not None
    assert found[-1][1] - datetime.now(UTC) > 14 * after
    assert await make_partitions(database, table=table) == []


async def test_events_go_on_into_the_right_partition_over_changes_of_the_interval(database: Database) -> None:
    for interval in (DAY, HOUR, 6 * HOUR, timedelta(minutes=10), DAY):
        await keep(database, "events", interval=interval)
        await make_partitions(database)
        async with database.transaction() as session:
            await append(session, [event()])

    assert await count(database) == 5
    assert await count(database, "projections.events_default") == 0


@pytest.mark.slow
async def test_days_without_maintenance_are_drained_while_writing_goes_on(database: Database) -> None:
    days = [historic(f"s{n % 4}", 1 + n // 4, db_timestamp=PAST + n * HOUR) for n in range(24 * 6)]
    await import_events(database, days)
    done, appended = asyncio.Event(), 0

    async def write() -> None:
        nonlocal appended
        while not done.is_set():
            async with database.transaction() as session:
                await append(session, [event("live")])
            appended += 1

    async def keep_house() -> None:
        result = await retained(database, attempts=200)
        done.set()
        assert [each.problem for each in result.made if each.problem] == []
        old = [each for each in result.made if each.to_timestamp < PAST + 9 * DAY]
        assert [each.moved for each in old] == [24] * 6

    await asyncio.gather(keep_house(), write())

    found = [each async for each in current_events(database, "plane")]
    assert [e.db_timestamp for e in found if e.source_id != "live"] == [each.db_timestamp for each in days]
    assert await count(database) == 144 + appended


async def test_matches_are_drained_likewise(database: Database) -> None:
    await execute(
        database,
        "INSERT INTO projections.matches SELECT n, 1, 7, 1, $1::timestamptz, $1 + n * interval '1 hour', 'a', '{1}' "
        "FROM generate_series(0, 71) AS n",
        PAST,
    )

    made = await make_partitions(database, table="matches")

    assert [each.moved for each in made if each.moved] == [24, 24, 24]
    assert await count(database, "projections.matches") == 72


@pytest.mark.slow
@pytest.mark.parametrize(
    "day",
    [
        datetime(2020, 2, 29, tzinfo=UTC),  # of a leap year
        datetime(2020, 3, 29, tzinfo=UTC),  # clocks go forward in Europe
        datetime(2020, 10, 25, tzinfo=UTC),  # and back
        datetime(1970, 1, 1, tzinfo=UTC),
    ],
    ids=str,
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata"])
async def test_day_begins_and_ends_at_midnight_utc_wherever_the_session_is(
    dsn: str, database: Database, day: datetime, zone: str
) -> None:
    times = [day + MICRO, day + DAY - MICRO, day + DAY, day + 2 * DAY - MICRO]
    await import_events(database, [historic("a", n, db_timestamp=at) for n, at in enumerate(times, 1)])

    with psycopg.connect(dsn, options=f"-c timezone={zone} -c datestyle=SQL,DMY", autocommit=True) as session:
        for _ in range(30):
            session.execute("SELECT projections.maintain_v1()")
        found = session.execute(
            "SELECT extract(EPOCH FROM from_timestamp)::bigint, extract(EPOCH FROM to_timestamp)::bigint "
            "FROM projections.partitions WHERE to_timestamp < now() AND table_name = 'events' ORDER BY 1"
        ).fetchall()

    start = int(day.timestamp())
    assert found[:2] == [(start, start + 86_400), (start + 86_400, start + 2 * 86_400)]
    assert [await count(database, f"projections.events_{at:%Y%m%d}t000000") for at in (day, day + DAY)] == [
        2,
        2,
    ]


async def test_longest_interval_and_most_ahead_lead_to_times_that_can_be_shown(database: Database) -> None:
    await keep(database, "events", interval=timedelta(days=366), ahead=1000)

    async with database.session() as session:
        rows = await session.fetch("SELECT * FROM projections._missing_partitions_v1()")

    assert len(rows) == 1001
    assert rows[-1]["to_timestamp"].year > 3000


@pytest.mark.slow
async def test_name_that_is_taken_is_left_alone(database: Database) -> None:
    await import_events(database, [historic("a", 1)])
    await execute(database, "CREATE TABLE projections.events_20200101t000000 (mine integer)")
    await execute(database, "CREATE VIEW projections.events_20200101t000000_2 AS SELECT 1 AS mine")

    made = await retained(database)

    assert [each.problem for each in made.made] == [None] * len(made.made)
    assert await count(database, "projections.events_20200101t000000_3") == 1
    assert await count(database, "projections.events_20200101t000000") == 0


async def test_partitions_of_any_name_and_bounds_are_taken_for_what_they_are(database: Database) -> None:
    await execute(
        database,
        "CREATE TABLE projections.ancient PARTITION OF projections.events "
        "FOR VALUES FROM (MINVALUE) TO ('2019-12-31T22:00:00Z')",
    )
    await execute(
        database,
        """CREATE TABLE projections."by ""hand"" %I" PARTITION OF projections.events """
        "FOR VALUES FROM ('2020-01-01T12:00:00+03') TO ('2020-01-01T15:30:00+03')",
    )
    await execute(database, "ALTER TABLE projections.events_default RENAME TO everything_else")
    times = [PAST - 3 * HOUR, PAST - HOUR, PAST + HOUR, PAST + 10 * HOUR, PAST + 13 * HOUR]
    await import_events(database, [historic("a", n, db_timestamp=at) for n, at in enumerate(times, 1)])

    await make_partitions(database, ahead=1)

    assert (await spans(database))[:5] == [
        (None, PAST - 2 * HOUR),
        (PAST - 2 * HOUR, PAST),
        (PAST, PAST + 9 * HOUR),
        (PAST + 9 * HOUR, PAST + 12.5 * HOUR),
        (PAST + 12.5 * HOUR, PAST + DAY),
    ]
    assert await count(database, "projections.everything_else") == 0
    assert [e.db_timestamp async for e in current_events(database, "plane")] == times


@pytest.mark.slow
async def test_partitions_of_any_name_and_place_are_dropped(database: Database) -> None:
    await execute(database, "CREATE SCHEMA elsewhere")
    await execute(
        database,
        """CREATE TABLE elsewhere."by ""hand"" %I" PARTITION OF projections.events """
        "FOR VALUES FROM (MINVALUE) TO ('2020-01-01Z')",
    )
    await execute(
        database,
        "CREATE TABLE projections.divided PARTITION OF projections.events "
        "FOR VALUES FROM ('2020-01-01Z') TO ('2020-01-02Z') PARTITION BY HASH (source_id)",
    )
    await execute(
        database,
        "CREATE TABLE projections.divided_0 PARTITION OF projections.divided FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
    )
    await keep(database, "events", retention=DAY)

    done = await retained(database)

    assert [(each.partition.name, each.problem) for each in done.dropped] == [
        ('by "hand" %I', None),
        ("divided", None),
    ]
    assert await fetchval(database, "SELECT to_regclass('projections.divided_0')") is None


async def test_table_without_a_default_partition_gets_partitions_too(database: Database) -> None:
    await execute(database, "DROP TABLE projections.events_default")

    made = await make_partitions(database, ahead=2)

    assert [each.problem for each in made] == [None] * 3


async def test_rows_are_counted_where_that_is_asked_for(database: Database) -> None:
    await import_events(database, [historic("a", n) for n in range(1, 8)])
    await make_partitions(database, ahead=1)

    async with database.session() as session:
        exact = {each.name: each.rows for each in await partitions(session, exact=True)}

    assert exact["events_20200101t000000"] == 7
    assert exact["events_default"] == exact["matches_default"] == 0


class Counting:
    """A session that counts its queries."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.queries = 0

    async def fetch(self, sql: str, *args: Any) -> Any:
        self.queries += 1
        return await self._session.fetch(sql, *args)


@pytest.mark.slow
async def test_a_thousand_partitions_are_listed_by_one_query_and_maintained(database: Database) -> None:
    for day in range(1000):
        start = PAST + day * DAY
        await execute(database, "SELECT projections._create_partition_v1($1, $2)", start, start + DAY)
    await keep(database, "events", retention=DAY)
    await reader(database, PAST + 100 * DAY)
    await retained(database, force=False)

    async with database.session() as session:
        counting = Counting(session)
        found = await partitions(counting)  # type: ignore[arg-type]
    again = await retained(database)

    assert counting.queries == 1
    assert sum(bool(each.holders) for each in found) == len(again.kept) == 900
    assert (again.made, again.dropped) == ((), ())
