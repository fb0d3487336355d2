"""Each event matches each subscription once, whatever crashes, commits late, moves or comes at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

import offsets
from journal import Database, DatabaseError, Event, append
from journal.database import connect
from journal.partitions import maintain
from tests.fixtures.commands import COMMAND, environment
from tests.fixtures.locks import WAITING
from tests.fixtures.matching import (
    HELD,
    WAITS,
    execute,
    fetchval,
    happened,
    match,
    matched,
    matches,
    matching,
    publish,
    subscribe,
    tend,
)
from tests.fixtures.projections import until

HOLDERS = f"SELECT array_agg(pid) FROM {WAITING} WHERE locktype = 'advisory'"
ALL_MATCHED = "SELECT (SELECT count(*) FROM projections.matches) >= (SELECT count(*) FROM projections.events)"


def each_once(found: list[tuple[str, int]], **last: int) -> None:
    """Of every source each event is there once, in order."""
    for source_id, seq_nr in last.items():
        assert [n for source, n in found if source == source_id] == list(range(1, seq_nr + 1))
    assert max(Counter(found).values()) == 1
    assert len(found) == sum(last.values())


async def test_a_late_commit_is_matched_after_those_before_it(database: Database) -> None:
    await subscribe(database)
    await happened(database, source="first")
    async with matching(database):
        async with database.transaction() as late:
            await append(late, [Event("late", {}, "plane", event_type="t")])
            for _ in range(3):
                await happened(database, source="quick")
            await until(database, "SELECT count(*) = 4 FROM projections.matches")
        await until(database, "SELECT count(*) = 5 FROM projections.matches")

    each_once(await matched(database), first=1, quick=3, late=1)


@pytest.mark.slow
async def test_a_connection_lost_between_match_and_commit_matches_once(database: Database) -> None:
    await execute(database, HELD)
    await subscribe(database)
    await subscribe(database, "e.seq_nr > 0", group="h")
    for source in ("a", "b"):
        await happened(database, source=source)
    async with database.session() as holder:
        await holder.execute("SELECT pg_advisory_lock(7)")
        task = asyncio.create_task(match(database))
        await until(database, WAITS)

        await execute(
            database,
            "SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) AS pid",
            await fetchval(database, HOLDERS),
        )
        await holder.execute("SELECT pg_advisory_unlock(7)")
        await task

    assert sorted((group, source) for group, source, *_ in await matches(database)) == [
        ("g", "a"), ("g", "b"), ("h", "a"), ("h", "b"),
    ]  # fmt: skip


@pytest.mark.slow
async def test_a_worker_that_is_killed_between_match_and_commit_matches_once(
    dsn: str, database: Database, tmp_path: Path
) -> None:
    await execute(database, HELD)
    await subscribe(database)
    await happened(database)
    await publish(database, "t", not_before=[datetime(2020, 1, 1, tzinfo=UTC)])
    async with database.session() as holder:
        await holder.execute("SELECT pg_advisory_lock(7)")
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "worker", "--subscriptions", "--lease", "1s", "--dsn", dsn,
            cwd=tmp_path, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, env=environment(),
        )  # fmt: skip
        try:
            await until(database, WAITS)
        finally:
            process.kill()
            await process.wait()
        await execute(
            database,
            "SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) AS pid",
            await fetchval(database, HOLDERS),
        )
        await holder.execute("SELECT pg_advisory_unlock(7)")

    await match(database)
    await tend(database)

    assert sorted(await matched(database)) == [("a", 1), ("publisher/p", 1)]


async def test_two_that_look_for_what_is_due_at_once_match_each_once(database: Database) -> None:
    await subscribe(database)
    await publish(database, *["t"] * 300, not_before=[datetime(2020, 1, 1, tzinfo=UTC)] * 300)

    await asyncio.gather(*(tend(database) for _ in range(4)))
    await tend(database)
    await match(database)

    assert sorted(n for _, n in await matched(database)) == list(range(1, 301))


@pytest.mark.slow
async def test_workers_that_come_and_go_and_rescales_match_each_once_in_order(database: Database) -> None:
    await subscribe(database)
    await subscribe(database, "e.payload @> '{}'", group="h")
    sources = [f"s{n}" for n in range(12)]
    await happened(database, source="s0")
    done = asyncio.Event()

    async def write() -> None:
        for turn in range(60):
            async with database.transaction() as session:
                await append(session, [Event(s, {}, "plane", event_type="t") for s in sources[turn % 3 :: 3]])
            async with database.session() as session:
                await session.execute("SELECT 1")
        done.set()

    async with matching(database, ranges=2):
        writing = asyncio.create_task(write())
        async with matching(database, ranges=2):
            for ranges in (5, 1, 8, 3):
                async with database.transaction() as session:
                    await offsets.rescale(session, "matching", ranges)
            await done.wait()
        await writing
        await until(database, ALL_MATCHED.replace(">=", ">= 2 *"))

    found = await matches(database)
    last = Counter(source for group, source, *_ in found if group == "g")
    for group in ("g", "h"):
        each_once([(source, n) for name, source, n, _ in found if name == group], **last)


class TestSubscribingWhileEventsFlow:
    @pytest.mark.slow
    async def test_what_commits_after_is_matched_though_it_began_before(self, database: Database) -> None:
        await happened(database, source="first")
        await match(database)
        async with database.transaction() as writer:
            await append(writer, [Event("a", {}, "plane", event_type="t")])
            await subscribe(database)

        await match(database)

        assert ("a", 1) in await matched(database)

    async def test_what_began_long_before_counts_by_its_transaction(self, database: Database) -> None:
        async with database.transaction() as writer:
            began = await writer.fetchval("SELECT now()")
            await append(writer, [Event("a", {}, "plane", event_type="t")])
            await subscribe(database)

        assert await fetchval(database, "SELECT since FROM projections.subscriptions") < began

    @pytest.mark.slow
    async def test_where_the_begin_of_a_writer_is_not_to_be_seen_it_counts_from_the_horizon(
        self, database: Database, login: object
    ) -> None:
        """Of other roles pg_stat_activity shows nothing to those without pg_read_all_stats."""
        await happened(database, source="first")
        await match(database)
        horizon = datetime(2020, 1, 1, tzinfo=UTC)
        await execute(database, "UPDATE projections.projection_ranges SET horizon = $1", horizon)
        async with database.transaction() as writer, connect(login("projections_worker")) as worker:  # type: ignore[operator]
            await append(writer, [Event("a", {}, "plane", event_type="t")])

            await subscribe(worker)

        assert await fetchval(database, "SELECT since FROM projections.subscriptions") < horizon

    @pytest.mark.slow
    async def test_one_that_is_prepared_counts_from_the_horizon(self, dsn: str, database: Database) -> None:
        if not await fetchval(database, "SELECT current_setting('max_prepared_transactions')::int > 0"):
            pytest.skip("this server prepares no transactions")
        await happened(database, source="first")
        await match(database)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT projections.append_event_v1('a', 'plane', 't', '{}')")
            connection.execute("PREPARE TRANSACTION 'matching_races'")
        await subscribe(database)
        since, horizon = [
            await fetchval(database, f"SELECT {what}")
            for what in (
                "since FROM projections.subscriptions",
                "min(horizon) FROM projections.projection_ranges",
            )
        ]
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("COMMIT PREPARED 'matching_races'")

        await match(database)

        assert since < horizon
        assert ("a", 1) in await matched(database)

    async def test_what_was_committed_long_before_is_not_matched(self, database: Database) -> None:
        await happened(database)
        await subscribe(database)
        await execute(database, "UPDATE projections.subscriptions SET since = now() + interval '1 hour'")
        await subscribe(database, "e.seq_nr > 0", group="h")

        await match(database)

        assert [group for group, *_ in await matches(database)] == ["h"]

    @pytest.mark.slow
    async def test_an_event_of_a_new_type_that_commits_after_is_matched(self, database: Database) -> None:
        """The type was found, before anybody subscribed, while the event was in flight."""
        await happened(database)
        async with database.transaction() as writer:
            await append(writer, [Event("b", {}, "plane", event_type="t")])
            await match_nothing_yet(database)
            await subscribe(database)

        await match(database)

        assert ("b", 1) in await matched(database)

    @pytest.mark.slow
    async def test_each_of_many_gets_all_that_is_appended_after_it(self, database: Database) -> None:
        await happened(database, source="first")
        written: list[tuple[str, int]] = []
        begun: dict[int, int] = {}
        stop = asyncio.Event()

        async def write(source: str) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                begun_at = len(written)
                await happened(database, source=source)
                written.append((source, number))
                order[source, number] = begun_at

        order: dict[tuple[str, int], int] = {}
        async with matching(database):
            writing = [asyncio.create_task(write(f"w{n}")) for n in range(3)]
            for number in range(25):
                condition = [None, "e.seq_nr > 0", "e.topic = 't'"][number % 3]
                subscription = await subscribe(database, condition, group=f"g{number}")
                begun[subscription] = len(written)
            await until(database, "SELECT count(*) > 200 FROM projections.events")
            stop.set()
            await asyncio.gather(*writing)
            await until(
                database,
                "SELECT count(*) >= (SELECT count(*) - 1 FROM projections.events) FROM projections.matches "
                "WHERE group_id = (SELECT min(group_id) FROM projections.subscription_groups)",
            )
        await match(database)

        found = Counter((i, (source, n)) for _, source, n, ids in await matches(database) for i in ids)
        assert max(found.values()) == 1
        for subscription, since in begun.items():
            missed = [
                event for event, at in order.items() if at >= since + 3 and (subscription, event) not in found
            ]
            assert not missed


async def match_nothing_yet(database: Database) -> None:
    async with database.session() as session:
        await session.fetchval("SELECT projections._begin_matching_v1()")


@pytest.mark.slow
async def test_nothing_deadlocks(database: Database) -> None:
    """Publish, subscribe, keep, expire, match, look for what is due, read, move and maintain, all at once."""
    rounds = 40
    await subscribe(database)
    await publish(database, "t")
    await match(database)

    async def publishing(number: int) -> None:
        for turn in range(rounds):
            await publish(database, "t", "u", publisher=f"p{(number + turn) % 2}")
            await publish(database, "t", not_before=[datetime(2020, 1, 1, tzinfo=UTC)], subscription_ids=[1])

    async def subscribing(number: int) -> None:
        for turn in range(rounds):
            condition = f"e.seq_nr > {(turn + number) % 5}"
            found = [
                await subscribe_again(
                    database, condition, topics=["t"], expires_after=timedelta(microseconds=1)
                ),
                await subscribe(database, expires_after=None),
            ]
            await execute(database, "SELECT projections.keep_subscriptions_v1($1)", found[:: (-1) ** turn])
            await execute(
                database, "SELECT projections._expire_subscriptions_v1(), projections._forget_conditions_v1()"
            )

    async def maintaining() -> None:
        for minutes in (1, 2, 3):
            await maintain(database, interval=timedelta(minutes=minutes), attempts=1)

    async def reading(number: int) -> None:
        for _ in range(rounds):
            async with database.session() as session:
                ranges = await session.fetch("SELECT * FROM projections.poll_group_v1('g', $1)", f"r{number}")
                settled = await session.fetchval("SELECT projections.settled_matches_v1()")
                for row in ranges:
                    read = await session.fetch(
                        "SELECT match_id FROM projections.read_next_v1('g', $1, $2, $3, $4, 5)",
                        row["min_slice"], row["max_slice"], row["cursor"], settled,
                    )  # fmt: skip
                    if read and row["kept"]:
                        await session.fetchval(
                            "SELECT projections.move_cursor_v1('g', $1, $2, $3)",
                            row["min_slice"], row["epoch"], read[-1]["match_id"],
                        )  # fmt: skip
                await session.fetchval("SELECT projections.leave_v1($1)", f"r{number}")

    async with matching(database):
        await asyncio.gather(
            *(publishing(n) for n in range(2)), *(subscribing(n) for n in range(3)), reading(0), maintaining(),
            *(tend_often(database, rounds) for _ in range(2)),
        )  # fmt: skip
    await tend(database)
    await match(database)

    assert (
        await fetchval(database, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        == 0
    )
    published = await fetchval(database, "SELECT count(*) FROM projections.events")
    assert len(set(await matched(database))) == published


async def subscribe_again(database: Database, condition: str, **values: object) -> int:
    """Over subscriptions that expire while they are asked for."""
    while True:
        try:
            return await subscribe(database, condition, **values)
        except DatabaseError as error:
            assert error.sqlstate == "40001"  # noqa: PT017 - what else is a fault


async def tend_often(database: Database, times: int) -> None:
    for _ in range(times):
        await tend(database)
