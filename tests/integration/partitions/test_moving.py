"""Rows move out of the default partition in pieces, while others read and write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import pytest

from journal import Database, DatabaseError, append, current_events, import_events
from journal.partitions import maintain
from journal.partitions.making import make_partitions
from projections import connect, run
from projections.subscriptions import Consumer, Matching, Publisher, create_group, subscribe
from tests.fixtures.journal import PAST, count, event, historic, pid, until_blocked
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.retention import NAMES, filled

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
_PIECES = """
SELECT m.from_timestamp, m.to_timestamp FROM projections._missing_partitions_v1('1 day', 1, 'events', 10) AS m
WHERE m.to_timestamp < '2021-01-01Z'
"""
_CREATE = "SELECT projections._create_partition_v1($1, $2, $3)"
_MATCH = """
INSERT INTO projections.matches
SELECT
    nextval('projections.match_ids'), 1, g %% 1024, g, %s, %s + g * interval '1 ms', 's/' || g %% 1000, ARRAY[1::bigint]
FROM generate_series(1, %s) AS g
"""


async def _matches(database: Database, at: str, number: int) -> None:
    await execute(database, _MATCH % (at, at, number))


async def test_interval_with_many_rows_moves_in_pieces_and_each_event_is_read_once_after_each(
    database: Database,
) -> None:
    """36 events of a day in no order, three of each second but the first ten at one; ten of the day after."""
    seconds = [0] * 10 + [10 + n % 9 for n in range(26)]
    times = [PAST + timedelta(seconds=s) for s in seconds] + [PAST + DAY + n * HOUR for n in range(10)]
    await import_events(database, [historic(f"s{n}", 1, db_timestamp=at) for n, at in enumerate(times)])
    moved: list[int] = []
    while True:
        async with database.session() as session:
            pieces = await session.fetch(_PIECES)
            if not pieces:
                break
            moved.append(await session.fetchval(_CREATE, *pieces[0].values(), "events"))
        read = [e.source_id async for e in current_events(database, "plane")]
        assert sorted(read) == sorted(f"s{n}" for n in range(46))

    assert moved == [19, 9, 8, 10]  # a second is not cut
    assert await count(database, "projections.events_default") == 0
    assert await _gaps(database) == []


async def _gaps(database: Database) -> list[datetime]:
    """Ends of the two days' partitions where the next one does not begin."""
    async with database.session() as session:
        rows = await session.fetch(
            "SELECT p.to_timestamp FROM projections.partitions AS p WHERE p.table_name = 'events' "
            "AND p.to_timestamp < $1 AND NOT EXISTS ("
            "SELECT FROM projections.partitions AS n WHERE n.from_timestamp = p.to_timestamp)",
            PAST + 2 * DAY,
        )
    return [row["to_timestamp"] for row in rows]


async def test_others_match_and_read_while_rows_move(database: Database) -> None:
    """A lock on one row holds the move up where all rows move."""
    await _matches(database, "timestamptz '2020-01-01Z'", 5)
    async with database.session() as holder, database.session() as mover:
        await holder.begin()
        await holder.execute("SELECT FROM projections.matches WHERE seq_nr = 3 FOR UPDATE")
        mover_pid = await pid(mover)
        moving = asyncio.create_task(mover.fetchval(_CREATE, PAST, PAST + DAY, "matches"))
        await until_blocked(database, [mover_pid])

        async with database.session() as other:
            await other.execute("SET lock_timeout = 1")
            await other.execute(_MATCH % ("clock_timestamp()", "clock_timestamp()", 2))
            assert await other.fetchval("SELECT count(*) FROM projections.matches") == 7
            await other.execute("RESET lock_timeout")
        await holder.rollback()
        assert await moving == 5

    assert await count(database, "projections.matches_20200101t000000") == 5
    assert await count(database, "projections.matches") == 7


@pytest.mark.slow
async def test_whoever_is_in_the_way_for_a_moment_does_not_have_all_rows_moved_again(
    database: Database,
) -> None:
    await _matches(database, "timestamptz '2020-01-01Z'", 10_001)
    async with database.session() as reader, database.session() as mover:
        await reader.begin()
        await reader.fetchval("SELECT count(*) FROM projections.matches")
        await mover.execute("SET lock_timeout = '1ms'")
        mover_pid = await pid(mover)
        moving = asyncio.create_task(mover.fetchval(_CREATE, PAST, PAST + DAY, "matches"))
        while await fetchval(
            database,
            "SELECT wait_event IS DISTINCT FROM 'PgSleep' FROM pg_stat_activity WHERE pid = $1",
            mover_pid,
        ):
            await asyncio.sleep(0.001)
        await reader.rollback()

        assert await moving == 10_001
        await mover.execute("RESET lock_timeout")


async def test_default_partition_has_no_dead_rows_after_a_move(database: Database) -> None:
    await _matches(database, "timestamptz '2020-01-01Z'", 1000)

    made = await make_partitions(database, "matches", ahead=1)

    assert made[0].moved == 1000
    assert await fetchval(database, "SELECT pg_relation_size('projections.matches_default')") == 0


_UNDER_NO_LOCK = """
DO $$
BEGIN
    EXECUTE regexp_replace(
        pg_get_functiondef('projections._content_of_events_v1'::regproc), 'BEGIN\\s',
        'BEGIN IF EXISTS (SELECT FROM pg_locks AS l '
        'WHERE l.pid = pg_backend_pid() AND l.mode = ''ShareLock'' AND l.locktype = ''relation'') '
        'THEN RAISE ''under a lock''; END IF; '
    );
END;
$$
"""


async def test_archive_is_compared_before_the_locks_and_a_change_meanwhile_is_seen(
    database: Database,
) -> None:
    await filled(database)
    first = (
        "SELECT sum(c.events)::bigint AS events, sum(c.content) AS content "
        "FROM projections._content_of_events_v1($1, $2) AS c"
    )
    async with database.session() as session:
        events, content = (await session.fetch(first, PAST, PAST + DAY))[0].values()
    await execute(database, _UNDER_NO_LOCK)
    detach = f"SELECT projections.detach_partition_v1('{NAMES[0]}', $1, $2)"
    async with database.session() as importer, database.session() as detacher:
        await importer.begin()
        await importer.execute("LOCK TABLE projections.imports IN SHARE ROW EXCLUSIVE MODE")
        detacher_pid = await pid(detacher)
        detaching = asyncio.create_task(detacher.execute(detach, events, content))
        await until_blocked(database, [detacher_pid])
        await execute(
            database, "UPDATE projections.events SET payload = 'null' WHERE source_id = 'a' AND seq_nr = 1"
        )
        await importer.rollback()

        # It is compared again, and there alone under the locks.
        with pytest.raises(DatabaseError, match="under a lock"):
            await detaching
        async with database.session() as session:
            events, content = (await session.fetch(first, PAST, PAST + DAY))[0].values()
        while await fetchval(
            database, "SELECT count(*) FROM projections.partitions WHERE name = $1", NAMES[0]
        ):
            with suppress(DatabaseError):  # a transaction of another database may be older than the rows
                await detacher.execute(detach, events, content)


@asynccontextmanager
async def _measured(
    waits: dict[str, list[float]], **steps: Callable[[], Awaitable[Any]]
) -> AsyncIterator[None]:
    """Do each step again and again, and note how long it took."""
    done = asyncio.Event()

    async def repeat(name: str, step: Callable[[], Awaitable[Any]]) -> None:
        while not done.is_set():
            begun = time.monotonic()
            await step()
            waits.setdefault(name, []).append(time.monotonic() - begun)
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as group:
        for name, step in steps.items():
            group.create_task(repeat(name, step))
        yield
        done.set()


@pytest.mark.slow
@pytest.mark.parametrize("days", [10, 1])
async def test_nobody_waits_for_long_while_two_million_matches_move(dsn: str, days: int) -> None:
    """Readers, appends, publishers, consumers and matching, beside what they wait when nothing moves."""
    stop, arrived = asyncio.Event(), asyncio.Event()
    async with connect(dsn) as database:
        async with database.transaction() as session:
            await create_group(session, "slow")
            await subscribe(session, "slow", topics=["slow.*"])
        for n in range(days):
            await _matches(database, f"now() - interval '{days + 1 - n} days'", 2_000_000 // days)
        await execute(database, "ANALYZE projections.matches")
        consumer = Consumer(database, "fast")

        @consumer.handle(name="h", topics=["fast.x"])
        async def handle(events: Any) -> None:
            arrived.set()

        async with asyncio.TaskGroup() as group, Publisher(database, name="p") as publisher:
            group.create_task(run(database, discovery=Matching(), stop=stop))
            group.create_task(consumer.run(stop))

            async def deliver() -> None:
                arrived.clear()
                await publisher.publish("fast.x", {})
                await arrived.wait()

            async def read() -> None:
                await fetchval(database, "SELECT max(match_id) FROM projections.matches WHERE group_id = 2")

            async def write() -> None:
                async with database.transaction() as session:
                    await append(session, [event("w")])

            steps = {"deliver": deliver, "read": read, "write": write}
            quiet: dict[str, list[float]] = {}
            waits: dict[str, list[float]] = {}
            await deliver()
            async with _measured(quiet, **steps):
                while len(quiet.get("deliver", [])) < 100:
                    await asyncio.sleep(0.05)
            async with _measured(waits, **steps):
                maintained = await maintain(database)
                await deliver_once(waits)
            stop.set()

    assert not maintained.problems
    assert sum(each.moved or 0 for each in maintained.made if each.table == "matches") == 2_000_000
    longest = {name: (round(max(quiet[name]), 3), round(max(waits[name]), 3)) for name in steps}
    print(longest)
    assert all(busy <= 0.5 + calm for calm, busy in longest.values()), longest


async def deliver_once(waits: dict[str, list[float]]) -> None:
    """Until each step has ended that was under way."""
    before = {name: len(seen) for name, seen in waits.items()}
    while any(len(seen) <= before[name] for name, seen in waits.items()):
        await asyncio.sleep(0.01)
