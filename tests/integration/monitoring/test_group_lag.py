"""How far groups of consumers are behind is what they have not read, however it is cut and whoever reads."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

import offsets
from journal import Database, Session, SliceRange, slice_of
from projections.monitoring import snapshot
from projections.subscriptions import NotFound, create_group, rescale_group, rewind_group, subscribe
from projections.subscriptions.group_lag import GroupLag, GroupState, group_lag
from projections.subscriptions.groups import GroupRange, move_cursor, poll_group
from projections.subscriptions.reading import settled_matches
from projections.subscriptions.stopped_conditions import quarantined_conditions
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.subscriptions import landed, landed_and_matched, read_next

LEASE = timedelta(hours=1)
LOW, HIGH = "a", "yz"  # slices 97 and 801
UNREAD = """
SELECT count(*) FROM projections.matches AS m
INNER JOIN projections.subscription_groups AS g ON m.group_id = g.group_id
INNER JOIN projections.group_ranges AS r ON m.group_id = r.group_id AND m.slice BETWEEN r.min_slice AND r.max_slice
WHERE g.name = $1 AND r.min_slice = $2 AND m.match_id > r.cursor
"""


@pytest.fixture
async def group(database: Database) -> Database:
    """Group g in two ranges, which gets everything."""
    async with database.transaction() as session:
        await create_group(session, "g", ranges=2)
        await subscribe(session, "g", topics=["Landed"])
    return database


async def lag_of(database: Database, name: str = "g") -> GroupLag:
    async with database.session() as session:
        (found,) = await group_lag(session, name)
    return found


async def held(database: Database, owner: str = "reader") -> list[GroupRange]:
    async with database.session() as session:
        return await poll_group(session, "g", owner, LEASE)


async def read(database: Database, part: GroupRange, limit: int) -> GroupRange:
    """Read a page of a range, and move its cursor."""
    async with database.session() as session:
        until = await settled_matches(session)
        found = await read_next(session, "g", part.slices, after=part.cursor, until=until, limit=limit)
        if not found:
            return part
        await move_cursor(session, "g", part, found[-1].match_id)
    return part._replace(cursor=found[-1].match_id)


async def test_what_is_not_read_is_counted_in_its_range(group: Database) -> None:
    await landed_and_matched(group, LOW, LOW, HIGH)

    found = await lag_of(group)

    assert [part.slices for part in found.ranges] == [SliceRange(0, 511), SliceRange(512, 1023)]
    assert [part.backlog for part in found.ranges] == [2, 1]
    assert all(part.lag > 0 for part in found.ranges)
    assert (found.backlog, found.head) == (3, 3)


async def test_where_nobody_catches_up_nothing_is_asked_for_it(group: Database) -> None:
    asked: list[str] = []

    class Asked:
        def __init__(self, session: Session) -> None:
            self._session = session

        async def fetch(self, sql: str, *args: object) -> object:
            asked.append(sql)
            return await self._session.fetch(sql, *args)

    async with group.session() as session:
        await group_lag(Asked(session))  # type: ignore[arg-type]
        assert len(asked) == 1
        await rewind_group(session, "g", "beginning")
        (found,) = await group_lag(Asked(session))  # type: ignore[arg-type]

    assert len(asked) == 3
    assert (found.state, found.caught_up_to, found.remaining) == (GroupState.CATCHING_UP, None, None)


async def test_a_group_that_catches_up_lags_by_what_it_has_not_had(group: Database) -> None:
    await landed_and_matched(group, LOW, HIGH)
    old = (
        "UPDATE projections.events SET db_timestamp = now() - make_interval(hours => $2) WHERE source_id = $1"
    )
    await execute(group, old, LOW, 3)
    await execute(group, old, HIGH, 1)
    await execute(group, "DELETE FROM projections.matches")
    async with group.session() as session:
        await rewind_group(session, "g", "beginning")
        number = await session.fetchval("SELECT subscription_id FROM projections._begin_history_v1()")
    hours, reached = [], []
    for source in (LOW, HIGH, None):
        found = await lag_of(group)
        assert found.state is GroupState.CATCHING_UP
        assert [int(part.lag / 3600) for part in found.ranges] == [int(found.lag / 3600)] * 2
        hours.append(int(found.lag / 3600))
        reached.append(found.caught_up_to)
        if source is not None:
            page = "SELECT projections._match_history_v1($1, $2, 1, 1)"
            assert await fetchval(group, page, number, source) == 1
        await execute(group, "DELETE FROM projections.matches")

    assert hours == [3, 1, 0]
    assert reached[0] is None
    assert reached[1] < reached[2]
    assert found.remaining is not None


async def test_a_group_with_one_range_is_counted_likewise(database: Database) -> None:
    async with database.transaction() as session:
        await subscribe(session, "g", topics=["Landed"])
    await landed_and_matched(database, LOW, HIGH)

    (part,) = (await lag_of(database)).ranges

    assert (part.backlog, part.state) == (2, GroupState.UNREAD)
    assert part.lag > 0


async def test_what_was_read_is_not_behind(group: Database) -> None:
    await landed_and_matched(group, LOW, LOW, HIGH)
    low, _ = await held(group)

    await read(group, low, 1)
    found = await lag_of(group)

    assert [part.backlog for part in found.ranges] == [1, 1]
    assert found.ranges[0].cursor == 1
    assert found.ranges[0].moved_at is not None
    assert found.ranges[1].moved_at is None


async def test_lag_is_the_age_of_the_oldest_match_that_is_not_read(group: Database) -> None:
    await landed_and_matched(group, LOW, HIGH)
    await execute(
        group,
        "UPDATE projections.matches SET db_timestamp = clock_timestamp() - interval '1 hour' WHERE slice < 512",
    )

    found = await lag_of(group)

    assert 3600 <= found.ranges[0].lag < 3660
    assert found.ranges[1].lag < 60
    assert found.lag == found.ranges[0].lag


async def test_a_match_of_the_future_has_no_negative_lag(group: Database) -> None:
    await landed_and_matched(group, LOW)
    await execute(
        group, "UPDATE projections.matches SET db_timestamp = clock_timestamp() + interval '1 hour'"
    )

    assert (await lag_of(group)).lag == 0


async def test_an_event_that_nobody_has_matched_is_behind_in_its_range(group: Database) -> None:
    await landed(group, LOW, LOW)

    found = await lag_of(group)

    assert found.backlog == 0
    assert [part.unmatched for part in found.ranges] == [2, 0]
    assert [part.lag > 0 for part in found.ranges] == [True, False]


async def test_an_event_that_matching_has_not_come_to_is_behind(group: Database) -> None:
    await landed_and_matched(group, LOW)
    await landed(group, HIGH)

    found = await lag_of(group)

    assert [(part.backlog, part.unmatched) for part in found.ranges] == [(1, 0), (0, 1)]
    assert all(part.lag > 0 for part in found.ranges)


async def test_only_unmatched_events_of_the_types_that_a_group_asks_for_are_behind(
    group: Database,
) -> None:
    async with group.transaction() as session:
        await subscribe(session, "other", topics=["Landed"], entity_types=["ship"])
        await create_group(session, "without subscriptions")
        await create_group(session, "listening", reliable=False)
        await subscribe(session, "listening", topics=["Landed"], reliable=False)
    await landed(group, LOW)

    for name in ("other", "without subscriptions", "listening"):
        assert ((await lag_of(group, name)).unmatched, (await lag_of(group, name)).lag) == (0, 0), name


async def test_an_unmatched_event_is_no_older_than_the_subscription(group: Database) -> None:
    await landed(group, LOW)
    await execute(group, "UPDATE projections.events SET db_timestamp = db_timestamp - interval '1 hour'")
    await execute(group, "UPDATE projections.subscriptions SET since = since - interval '1 minute'")
    async with group.transaction() as session:
        await subscribe(session, "old", topics=["Landed"])
    await execute(group, "UPDATE projections.subscriptions SET since = '1970-01-02Z' WHERE group_id = 2")

    assert (await lag_of(group)).lag < 600 < (await lag_of(group, "old")).lag


async def test_what_was_published_counts_from_when_it_matched(group: Database) -> None:
    await landed_and_matched(group, LOW)
    await execute(
        group,
        "UPDATE projections.matches SET source_id = 'publisher/p', db_timestamp = db_timestamp - interval '1 hour'",
    )

    assert 0 < (await lag_of(group)).lag < 600


@pytest.mark.slow
async def test_random_reading_and_cutting_leaves_what_a_plain_count_says(group: Database) -> None:
    chosen = random.Random(5)
    for _ in range(12):
        await landed_and_matched(group, *(f"s{chosen.randrange(50)}" for _ in range(chosen.randrange(1, 40))))
        for part in await held(group):
            await read(group, part, chosen.randrange(1, 20))
        async with group.transaction() as session:
            await rescale_group(session, "g", chosen.choice([1, 2, 3, 7, 64]))

        found = await lag_of(group)

        for part in found.ranges:
            assert part.backlog == await fetchval(group, UNREAD, "g", part.slices.min_slice), part
            assert (part.lag > 0) == (part.backlog > 0)


async def test_states_tell_who_reads_and_whether_matches_wait(group: Database) -> None:
    await landed_and_matched(group, LOW)

    before = await lag_of(group)
    await held(group)
    during = await lag_of(group)
    async with group.session() as session:
        await offsets.leave(session, "reader")
    after = await lag_of(group)

    assert [part.state for part in before.ranges] == [GroupState.UNREAD, GroupState.IDLE]
    assert [part.state for part in during.ranges] == [GroupState.READ] * 2
    assert (before.state, during.state, after.state) == ("unread", "read", "unread")
    assert (before.without_reader, during.without_reader, after.without_reader) == (2, 0, 2)
    assert (before.readers, during.readers) == ([], ["reader"])


async def test_a_reader_whose_lease_has_ended_reads_no_more(group: Database) -> None:
    await held(group)
    await execute(group, "UPDATE projections.workers SET lease_until = clock_timestamp()")

    (low, _) = (await lag_of(group)).ranges

    assert (low.owner, low.alive, low.state, low.epoch) == ("reader", False, "idle", 1)


async def test_a_group_of_listeners_is_never_behind(database: Database) -> None:
    async with database.transaction() as session:
        await subscribe(session, "g", topics=["Landed"], reliable=False)
    await landed_and_matched(database, LOW)

    found = await lag_of(database)

    assert (found.state, found.backlog, found.lag, found.without_reader) == ("listening", 0, 0, 0)


async def test_retries_and_dead_letters_are_counted_apart(group: Database) -> None:
    for match_id, delay in ((1, "1 hour"), (2, "1 hour"), (3, None)):
        await execute(
            group,
            "SELECT projections.fail_batch_v1('g', 'h', 1, 'why', $1::text::interval, $2)",
            delay,
            f'[{{"match_id": {match_id}}}]',
        )

    found = await lag_of(group)

    assert (found.retries, found.dead) == (2, 1)


async def test_groups_are_told_by_name_each_with_its_own_matches(group: Database) -> None:
    async with group.transaction() as session:
        await subscribe(session, "a", topics=["Nothing"])
    await landed_and_matched(group, LOW)

    async with group.session() as session:
        found = await group_lag(session)

    assert [(one.name, one.backlog) for one in found] == [("a", 0), ("g", 1)]


async def test_a_group_that_there_is_not_is_an_error_that_lists_those_that_there_are(group: Database) -> None:
    async with group.session() as session:
        with pytest.raises(
            NotFound,
            match="there is no group 'x': subscribe for it, or create it first; those that there are: 'g'",
        ):
            await group_lag(session, "x")


async def test_the_head_waits_for_matches_that_may_still_appear(group: Database) -> None:
    await landed_and_matched(group, LOW)
    async with group.transaction() as matching:
        await matching.execute("SELECT projections._lock_matching_v1()")
        await matching.execute("SELECT nextval('projections.match_ids')")

        assert (await lag_of(group)).head == 1

    assert (await lag_of(group)).head == 2


async def test_a_transaction_that_keeps_its_snapshot_is_told_all_but_the_head(group: Database) -> None:
    await landed_and_matched(group, LOW)
    async with group.transaction() as session:
        await session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        (found,) = await group_lag(session)

    assert (found.backlog, found.head) == (1, None)


async def test_a_snapshot_has_groups_only_where_they_are_asked_for(group: Database) -> None:
    async with group.session() as session:
        without, found = await snapshot(session), await snapshot(session, everything=True)

    assert [*without.others] == []
    assert [one.name for one in found.others[0].groups] == ["g"]


async def test_conditions_that_are_set_apart_are_told_with_whose_they_are(group: Database) -> None:
    async with group.transaction() as session:
        for name in ("g", "h"):
            await subscribe(session, name, condition="e.seq_nr > 1")
        await subscribe(session, "g", condition="e.seq_nr > 1", params={"a": 1})
        await subscribe(session, "g", condition="e.seq_nr > 2")
    await execute(
        group,
        "SELECT projections._quarantine_condition_v1(c.condition_id, 'why') "
        "FROM projections.conditions AS c WHERE c.sql = 'e.seq_nr > 1'",
    )

    async with group.session() as session:
        (found,) = await quarantined_conditions(session)

    assert (found.sql, found.error, found.subscriptions, found.groups) == (
        "e.seq_nr > 1",
        "why",
        3,
        ["g", "h"],
    )


def test_sources_of_these_tests_are_in_different_ranges() -> None:
    assert (slice_of(LOW), slice_of(HIGH)) == (97, 801)
