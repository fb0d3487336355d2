"""Consumers of one group: each range has one reader, and whoever comes, goes, hangs or dies, nothing is lost."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

import offsets
from journal import ConnectionSettings, Database, connect, slice_of
from projections.subscriptions import Consumer, MatchedEvent, cursors, rescale_group, subscribe
from projections.subscriptions.dead_letters import DeadLetters
from projections.subscriptions.groups import poll_group, release_range
from tests.fixtures.pgbouncer import pooler
from tests.fixtures.projections import Failure, execute, fetchval, until
from tests.fixtures.proxy import proxy_to
from tests.fixtures.subscriptions import (
    Seen,
    consuming,
    consuming_process,
    end_leases,
    landed_and_matched,
    quick,
    until_handled,
)

SOURCES = [
    next(name for number in range(10_000) if slice_of(name := f"source-{number}") // 34 == place)
    for place in range(30)
]
"""Spread over all slices: whatever range somebody has, it has some."""
SHARED = """
SELECT array_agg(n ORDER BY n) = $1::bigint[] FROM (
    SELECT count(r.min_slice) AS n FROM projections.workers AS o
    LEFT JOIN projections.group_ranges AS r ON o.group_id = r.group_id AND o.owner = r.owner GROUP BY o.owner
) AS s
"""

LEASE = timedelta(seconds=10)


def consumer(database: Database, handler: Seen, **settings: object) -> Consumer:
    made = Consumer(database, "g", settings=quick(**settings))
    made.handle(handler, name="h")
    return made


async def group(database: Database, ranges: int) -> None:
    async with database.session() as session:
        await subscribe(session, "g")
        await rescale_group(session, "g", ranges)


def each_once(*seen: Seen) -> None:
    """Every source's events, in order, and none twice."""
    for source in SOURCES:
        by_reader = [[n for found, n in one.events if found == source] for one in seen]
        for numbers in by_reader:
            assert numbers == sorted(numbers)
    events = [event for one in seen for event in one.events]
    assert [event for event, count in Counter(events).items() if count > 1] == []


async def test_a_consumer_reads_while_somebody_subscribes_for_its_group(database: Database) -> None:
    """For as long as the transaction of that takes: it has locked the subscription, which is the same."""
    seen = Seen()
    every = timedelta(milliseconds=10)

    async with consuming(database, consumer(database, seen, keep_every=every)), database.session() as session:
        await until(database, "SELECT active_at > created_at FROM projections.subscriptions")
        await session.begin()
        await subscribe(session, "g")
        await landed_and_matched(database, "a")
        await until_handled(database)
        await session.rollback()

    assert seen.events == [("a", 1)]


@pytest.mark.slow
async def test_of_several_consumers_of_a_group_with_one_range_only_one_reads(database: Database) -> None:
    seen = [Seen(), Seen(), Seen()]

    async with consuming(database, *(consumer(database, one) for one in seen)):
        for _ in range(5):
            await landed_and_matched(database, *SOURCES)
        await until_handled(database)

    assert sorted(len(one.events) for one in seen) == [0, 0, 150]
    each_once(*seen)


@pytest.mark.slow
async def test_consumers_that_come_and_go_share_the_ranges_and_repeat_nothing(database: Database) -> None:
    await group(database, 4)
    seen = [Seen(), Seen(), Seen()]
    readers = [consumer(database, one) for one in seen]

    async with consuming(database, readers[0]):
        await landed_and_matched(database, *SOURCES)
        await until(database, SHARED, [4])
        async with consuming(database, readers[1], readers[2]):
            await landed_and_matched(database, *SOURCES)
            await until(database, SHARED, [1, 1, 2])
            await landed_and_matched(database, *SOURCES)
            await until_handled(database)
        await until(database, SHARED, [4])
        await landed_and_matched(database, *SOURCES)
        await until_handled(database)

    assert sum(len(one.events) for one in seen) == 4 * len(SOURCES)
    assert all(one.events for one in seen)
    each_once(*seen)


@pytest.mark.slow
@pytest.mark.parametrize("ranges", [1, 7])
async def test_cutting_a_group_anew_while_it_is_read_loses_nothing(database: Database, ranges: int) -> None:
    await group(database, 3)
    seen = [Seen(), Seen()]

    async with consuming(database, *(consumer(database, one, page_size=5) for one in seen)):
        for turn in range(6):
            await landed_and_matched(database, *SOURCES)
            async with database.session() as session:
                await rescale_group(session, "g", ranges if turn % 2 else 4)
        await until_handled(database)

    events = {event for one in seen for event in one.events}
    assert events == {(source, n) for source in SOURCES for n in range(1, 7)}


async def test_merged_ranges_begin_at_the_lowest_cursor_of_their_parts(database: Database) -> None:
    await group(database, 2)
    await execute(
        database, "UPDATE projections.group_ranges SET cursor = CASE min_slice WHEN 0 THEN 9 ELSE 4 END"
    )

    async with database.session() as session:
        await rescale_group(session, "g", 1)

        assert [cursor for _, cursor in await cursors(session, "g")] == [4]


async def test_a_consumer_that_loses_its_range_cancels_what_runs_and_stores_nothing_of_it(
    database: Database,
) -> None:
    cancelled, begun = asyncio.Event(), asyncio.Event()

    async def hang_once(batch: Sequence[MatchedEvent]) -> None:
        if len(seen.batches) > 1:
            return
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    seen = Seen(hang_once)
    reader = Consumer(database, "g", settings=quick())
    reader.handle(seen, name="h", retries=[3600])

    async with consuming(database, reader):
        await landed_and_matched(database, "a")
        await begun.wait()
        await execute(database, "UPDATE projections.group_ranges SET epoch = epoch + 1, owner = NULL")
        async with asyncio.timeout(300):
            await cancelled.wait()
        await until_handled(database)

    assert seen.batches == [[("a", 1)], [("a", 1)]]
    async with database.session() as session:
        assert await DeadLetters(session).list("g", waiting=True) == []


async def test_a_failure_that_comes_after_the_range_was_lost_is_not_kept(database: Database) -> None:
    begun, fail = asyncio.Event(), asyncio.Event()

    async def fail_late(batch: Sequence[MatchedEvent]) -> None:
        if len(seen.batches) == 1:
            begun.set()
            await fail.wait()
            raise Failure("late")

    seen = Seen(fail_late)
    # It would not hear of it by a heartbeat.
    settings = quick(heartbeat=timedelta(minutes=1), lease=timedelta(minutes=5))
    reader = Consumer(database, "g", settings=settings)
    reader.handle(seen, name="h", retries=[3600])

    async with consuming(database, reader):
        await landed_and_matched(database, "a")
        await begun.wait()
        await execute(database, "UPDATE projections.group_ranges SET epoch = epoch + 1, owner = NULL")
        fail.set()
        await until_handled(database)

    assert seen.batches == [[("a", 1)], [("a", 1)]]
    async with database.session() as session:
        assert await DeadLetters(session).list("g", waiting=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_connection_that_is_lost_while_reading_loses_nothing(
    dsn: str, database: Database, driver: str
) -> None:
    seen = Seen()
    settings = ConnectionSettings(driver=driver, application_name="reader")
    async with connect(dsn, settings) as own, consuming(database, consumer(own, seen, page_size=3)):
        for _ in range(5):
            await landed_and_matched(database, *SOURCES)
            await execute(
                database,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'reader' AND datname = current_database()",
            )
        await until_handled(database)

    assert set(seen.events) == {(source, n) for source in SOURCES for n in range(1, 6)}


@pytest.mark.slow
async def test_a_consumer_that_is_cut_off_drops_its_ranges_when_its_lease_ends(
    dsn: str, database: Database
) -> None:
    cancelled, begun = asyncio.Event(), asyncio.Event()

    async def hang(batch: Sequence[MatchedEvent]) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    other = Seen()
    lease = timedelta(milliseconds=500)
    async with proxy_to(dsn) as proxy, connect(proxy.dsn) as far:
        cut_off = consumer(far, Seen(hang), lease=lease, grace=timedelta(milliseconds=10))
        async with consuming(database, cut_off):
            await landed_and_matched(database, "a")
            await begun.wait()
            proxy.stop_forwarding()
            async with consuming(database, consumer(database, other)):
                async with asyncio.timeout(300):
                    await cancelled.wait()
                await other.until_events(1)
            proxy.go_on()

    assert other.events == [("a", 1)]


@pytest.mark.slow
async def test_what_a_killed_consumer_had_in_hand_goes_to_the_next(dsn: str, database: Database) -> None:
    async with consuming_process(dsn, "h") as process:
        await until(database, "SELECT EXISTS (SELECT FROM projections.group_ranges WHERE owner IS NOT NULL)")
        await landed_and_matched(database, "a", "b")
        assert process.stdout is not None
        assert int(await process.stdout.readline()) == 2
    await end_leases(database)
    seen = Seen()

    async with consuming(database, consumer(database, seen)):
        await seen.until_events(2)

    assert seen.events == [("a", 1), ("b", 1)]


@pytest.mark.slow
async def test_a_consumer_that_was_stopped_and_goes_on_moves_no_cursor_of_the_next(
    dsn: str, database: Database
) -> None:
    await group(database, 1)
    async with consuming_process(dsn, "h", seconds=0, lease=1) as process:
        await until(database, "SELECT EXISTS (SELECT FROM projections.group_ranges WHERE owner IS NOT NULL)")
        owner = await fetchval(database, "SELECT owner FROM projections.group_ranges")
        process.send_signal(signal.SIGSTOP)
        release = asyncio.Event()

        async def hold(batch: Sequence[MatchedEvent]) -> None:
            await release.wait()

        seen = Seen(hold)
        async with consuming(database, consumer(database, seen)):
            await landed_and_matched(database, "a")
            await seen.until_events(1)
            epoch = await fetchval(database, "SELECT epoch FROM projections.group_ranges")
            process.send_signal(signal.SIGCONT)
            # It is back among the readers, by another name where its own was forgotten, and knows that the range is
            # another's.
            await until(
                database,
                "SELECT EXISTS (SELECT FROM projections.workers"
                " WHERE (owner = $1 OR starts_with(owner, $1 || '.')) AND lease_until > clock_timestamp())",
                owner,
            )
            assert await fetchval(database, "SELECT cursor FROM projections.group_ranges") == 0
            assert await fetchval(database, "SELECT epoch FROM projections.group_ranges") == epoch
            release.set()
            await until_handled(database)
    assert seen.events == [("a", 1)]


@pytest.mark.slow
async def test_consumers_work_through_a_pooler_in_transaction_mode(dsn: str, database: Database) -> None:
    await group(database, 2)
    seen = [Seen(), Seen()]
    async with AsyncExitStack() as stack:
        pooled = await stack.enter_async_context(connect(await stack.enter_async_context(pooler(dsn))))
        await stack.enter_async_context(
            consuming(database, *(consumer(pooled, one, page_size=3) for one in seen))
        )
        for _ in range(5):
            await landed_and_matched(database, *SOURCES)
        await until_handled(database)

    assert sum(len(one.events) for one in seen) == 5 * len(SOURCES)
    each_once(*seen)


async def test_a_range_stays_where_it_is_when_one_joins_whom_none_is_left_for(database: Database) -> None:
    await group(database, 1)
    async with database.session() as session:
        first = await poll_group(session, "g", "z", LEASE)
        assert await poll_group(session, "g", "a", LEASE) == []
        again = await poll_group(session, "g", "z", LEASE)

    assert [(one.epoch, one.kept) for one in again] == [(one.epoch, True) for one in first]
    assert len(first) == 1


async def test_readers_have_neighbours_and_only_what_one_has_too_many_moves(database: Database) -> None:
    await group(database, 8)
    async with database.session() as session:

        async def keeps(owner: str) -> list[int]:
            held = await poll_group(session, "g", owner, LEASE)
            for one in held:
                if not one.kept:
                    await release_range(session, "g", one)
            return [one.slices.min_slice // 128 for one in held if one.kept]

        alone = await keeps("a")
        joining = await keeps("b")
        halves = [await keeps("a"), await keeps("b")]
        await offsets.leave(session, "a")
        left = await keeps("b")

    assert (alone, joining, left) == ([*range(8)], [], [*range(8)])
    assert halves == [[0, 1, 2, 3], [4, 5, 6, 7]]


async def test_a_range_whose_row_somebody_keeps_locked_keeps_no_reader_waiting_for_another(
    database: Database,
) -> None:
    """A dead reader that moves its cursor in a transaction of its own may leave one open."""
    await group(database, 2)
    async with database.session() as session, database.session() as dead:
        await poll_group(session, "g", "dead", timedelta(microseconds=1))
        await dead.begin()
        await dead.execute("SELECT FROM projections.group_ranges WHERE min_slice = 0 FOR UPDATE")
        others = await poll_group(session, "g", "me", LEASE)
        await dead.rollback()
        both = await poll_group(session, "g", "me", LEASE)

    assert [one.slices.min_slice for one in others] == [512]
    assert [one.slices.min_slice for one in both] == [0, 512]


async def test_joining_reads_each_range_a_few_times_whatever_is_known_of_the_table(
    database: Database,
) -> None:
    """The first reader takes all: nothing has been analyzed yet."""
    await group(database, 1024)
    read = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'group_ranges'"
    async with database.session() as session:
        await session.begin()
        assert len(await poll_group(session, "g", "me", LEASE)) == 1024
        rows = await session.fetchval(read)
        await session.rollback()

    assert rows < 20 * 1024
