"""What comes for conditions that are stopped is kept once for all of them, and each catches up from its own place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from journal import Database, Event, append
from projections.subscriptions.matching import Matching
from tests.fixtures.matching import (
    QUARANTINED,
    execute,
    fetchval,
    happened,
    match,
    matched,
    matches,
    publish,
    subscribe,
    tend,
)

STOP = "SELECT projections._quarantine_condition_v1($1, 'why')"
RELEASE = "SELECT projections._release_condition_v1($1)"
PAGES = "SELECT count(*) FROM projections.unasked"
FAILED = "SELECT count(*) FROM projections.unanswered"
CUT = """
SELECT projections._set_ranges_v1(p.projection_id, $1) FROM projections.projections AS p WHERE p.name = 'matching'
"""
APART = "SELECT count(*) FROM projections._conditions_apart_v1()"


async def happen(database: Database, number: int, source: str = "a", topic: str = "t") -> None:
    """Append so many events at once."""
    async with database.transaction() as session:
        await append(session, [Event(source, {}, "plane", event_type=topic) for _ in range(number)])


async def stopped(database: Database, number: int = 1, **values: object) -> None:
    """Subscribe with so many conditions, each in a group of its own, and stop them all."""
    for n in range(number):
        await subscribe(database, f"e.seq_nr > {n} - {n}", group=f"stopped {n}", **values)
    await execute(
        database,
        "SELECT projections._quarantine_condition_v1(c.condition_id, 'why') FROM projections.conditions AS c",
    )


async def of_group(database: Database, name: str) -> list[tuple[str, int]]:
    """The events that matched for a group, in their order."""
    return [(source, n) for group, source, n, _ in await matches(database) if group == name]


@pytest.mark.slow
async def test_many_stopped_conditions_leave_one_row_for_each_batch(database: Database) -> None:
    """And all of them catch up, each once."""
    await stopped(database, 6)
    await subscribe(database, "e.seq_nr > -1", group="other")
    await happen(database, 2000)
    await match(database)
    await happen(database, 5)
    await match(database)

    assert [n for _, n in await of_group(database, "other")] == list(range(1, 2006))
    assert await fetchval(database, PAGES) == 2
    assert await fetchval(database, FAILED) == 0

    await execute(database, "SELECT projections._release_condition_v1(n) FROM generate_series(1, 6) AS n")
    async with database.session() as session:
        while await session.fetchval(APART):
            await Matching().tend(session)
        await Matching().tend(session)

    for n in range(6):
        assert await of_group(database, f"stopped {n}") == [("a", place) for place in range(1, 2006)]
    assert await fetchval(database, PAGES) == 0


@pytest.mark.slow
async def test_each_catches_up_from_where_it_was_stopped_and_pages_stay_for_the_last(
    database: Database,
) -> None:
    await subscribe(database, "e.seq_nr > 0", group="early")
    await subscribe(database, "e.seq_nr > -1", group="late")
    await execute(database, STOP, 1)
    await happened(database)
    await match(database)
    await execute(database, STOP, 2)
    await happened(database)
    await match(database)

    await execute(database, RELEASE, 2)
    await tend(database)
    await happened(database)
    await match(database)
    await tend(database)

    assert await of_group(database, "late") == [("a", 1), ("a", 2), ("a", 3)]
    assert await of_group(database, "early") == []
    assert await fetchval(
        database, "SELECT array_agg(c::text) FROM projections._conditions_apart_v1() AS c"
    ) == ["1"]
    assert await fetchval(database, PAGES) == 3

    await execute(database, RELEASE, 1)
    await tend(database)
    assert await of_group(database, "early") == [("a", 1), ("a", 2), ("a", 3)]
    await tend(database)
    assert await fetchval(database, PAGES) == 0


async def test_what_a_batch_in_flight_keeps_is_asked_after_the_condition_had_caught_up(
    database: Database,
) -> None:
    """It has seen the condition stopped, and commits when nothing of it seemed to wait any more."""
    await stopped(database)
    await happen(database, 1, "a")
    await happen(database, 1, "b")
    batch = (
        "SELECT projections._match_log_v1('{plane}', ARRAY[e.source_id], ARRAY[e.seq_nr], ARRAY[e.db_timestamp], "
        "ARRAY[e.slice], ARRAY[e.event_type]) FROM projections.events AS e WHERE e.source_id = $1"
    )
    await fetchval(database, batch, "a")
    async with database.session() as late:
        await late.begin()
        await late.fetchval(batch, "b")
        await execute(database, RELEASE, 1)
        await tend(database)
        await tend(database)
        assert await matched(database) == [("a", 1)]
        assert await fetchval(database, APART) == 0
        await late.commit()

    assert await fetchval(database, APART) == 1
    await tend(database)
    await tend(database)

    assert await matched(database) == [("a", 1), ("b", 1)]
    assert await fetchval(database, PAGES) == 0
    assert await fetchval(database, APART) == 0


@pytest.mark.slow
async def test_two_at_once_ask_about_each_event_once(database: Database) -> None:
    await stopped(database)
    await happen(database, 3)
    await match(database)
    await execute(database, RELEASE, 1)
    ask = (
        "SELECT projections._match_unasked_v1(1, min(n.page_id), min(n.place), count(*)::integer) "
        "FROM projections._next_unasked_v1(1, 2) AS n"
    )
    async with database.session() as first:
        await first.begin()
        assert await first.fetchval(ask) == 2
        assert await fetchval(database, ask) == 0  # the first is at it
        # Begun before the first has committed, with what it had read.
        page = await fetchval(database, "SELECT min(page_id) FROM projections.unasked")
        await first.commit()
    assert await fetchval(database, "SELECT projections._match_unasked_v1(1, $1, 1, 2)", page) == 0

    await tend(database)

    assert await matched(database) == [("a", 1), ("a", 2), ("a", 3)]


@pytest.mark.slow
async def test_one_that_is_stopped_again_while_it_catches_up_goes_on_from_there(database: Database) -> None:
    await execute(
        database,
        "CREATE FUNCTION public.helped(n bigint) RETURNS boolean LANGUAGE sql STABLE AS "
        "'SELECT 1 / greatest(0, 6 - n) >= 0'",
    )
    await execute(database, "GRANT EXECUTE ON FUNCTION public.helped TO projections_matcher")
    await subscribe(database, "public.helped(e.seq_nr)")
    await execute(database, STOP, 1)
    await happen(database, 40)
    await match(database)
    await execute(database, RELEASE, 1)
    matching = Matching()
    matching._unanswered._widths[1] = 20
    async with database.session() as session:
        await matching.tend(session)
        assert await matched(database) == [("a", n) for n in range(1, 6)]
        assert await fetchval(database, QUARANTINED) == 1
        assert await fetchval(database, FAILED) == 15
    await happen(database, 1)
    await match(database)
    await execute(
        database,
        "CREATE OR REPLACE FUNCTION public.helped(n bigint) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT TRUE'",
    )

    await execute(database, RELEASE, 1)
    await tend(database)

    assert await matched(database) == [("a", n) for n in range(1, 42)]
    assert await fetchval(database, FAILED) == 0


@pytest.mark.slow
async def test_it_is_asked_about_what_it_wants_alone_for_the_subscriptions_of_that_time(
    database: Database,
) -> None:
    """Beside one that wants all, so that all is in the page."""
    narrow = await subscribe(database, "e.seq_nr > 0", group="narrow", topics=["wanted"])
    await subscribe(database, "e.seq_nr > -1", group="open")
    for number in (1, 2):
        await execute(database, STOP, number)
    for topic in ("wanted", "other", "wanted"):
        await happened(database, topic)
    await match(database)
    await execute(database, "UPDATE projections.subscriptions SET since = since - interval '1 hour'")
    late = await subscribe(database, "e.seq_nr > 0", group="narrow", topics=["wanted", "more"])
    await execute(
        database, "UPDATE projections.subscriptions SET since = now() WHERE subscription_id = $1", late
    )
    await happened(database, "wanted")
    await match(database)

    for number in (1, 2):
        await execute(database, RELEASE, number)
    await tend(database)

    assert [(n, ids) for group, _, n, ids in await matches(database) if group == "narrow"] == [
        (1, [narrow]), (3, [narrow]), (4, [narrow, late]),
    ]  # fmt: skip
    assert [n for _, n in await of_group(database, "open")] == [1, 2, 3, 4]


async def test_what_was_due_is_for_the_subscriptions_of_its_time(database: Database) -> None:
    await stopped(database)
    await publish(database, "t", "t", not_before=[datetime(2020, 1, 1, tzinfo=UTC)] * 2)
    await tend(database)
    assert await fetchval(database, PAGES) == 1

    await execute(database, RELEASE, 1)
    await tend(database)

    assert await matched(database) == [("publisher/p", 1), ("publisher/p", 2)]


async def test_pages_of_a_condition_that_nobody_has_any_more_are_deleted(database: Database) -> None:
    await stopped(database)
    await happen(database, 3)
    await match(database)
    await tend(database)
    assert await fetchval(database, PAGES) == 1

    await execute(database, "SELECT projections.unsubscribe_v1(1)")
    await execute(database, "SELECT projections._forget_conditions_v1()")
    await tend(database)

    assert await fetchval(database, PAGES) == 0


@pytest.mark.slow
async def test_events_that_were_dropped_with_their_partition_are_passed_over(database: Database) -> None:
    await stopped(database)
    await happen(database, 3)
    await match(database)
    await execute(database, "DELETE FROM projections.events WHERE seq_nr <> 2")
    await execute(database, RELEASE, 1)

    await tend(database)

    assert await matched(database) == [("a", 2)]
    assert await fetchval(database, APART) == 0


@pytest.mark.slow
async def test_one_that_looks_at_types_alone_catches_up_too(database: Database) -> None:
    await subscribe(database, "e.topic = 'wanted'")
    await execute(database, STOP, 1)
    for topic in ("wanted", "other", "wanted"):
        await happened(database, topic)
    await match(database)
    await execute(database, RELEASE, 1)
    await happened(database, "wanted")
    await match(database)

    await tend(database)
    await happened(database, "wanted")
    await match(database)

    assert [n for _, n in await matched(database)] == [1, 3, 4, 5]


@pytest.mark.slow
@pytest.mark.parametrize("ranges", [1, 4])
async def test_events_of_a_source_keep_their_order_while_a_condition_catches_up(
    database: Database, ranges: int
) -> None:
    """Whatever comes in between, and into whatever ranges the slices are cut."""
    await stopped(database)
    sources = [f"s{n}" for n in range(8)]
    for source in sources:
        await happen(database, 4, source)
    await match(database)
    await execute(database, RELEASE, 1)
    for step in range(3):
        await execute(database, CUT, [0, 256, 512, 768][:ranges])
        for source in sources:
            await happen(database, 1, source)
        await match(database)
        if step == 1:
            matching = Matching(condition_timeout=timedelta(milliseconds=200))
            async with database.session() as session:
                await matching.tend(session)
    while await fetchval(database, APART):
        await tend(database)

    for source in sources:
        assert [n for name, n in await matched(database) if name == source] == list(range(1, 8))
