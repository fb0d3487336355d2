"""Consumers: what handlers get, how far ahead they are read for, and what moves the cursor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import timedelta

import pytest

from journal import ConnectionSettings, Database, DatabaseError, SliceRange, connect, slice_of
from offsets import RangeLost
from projections import InvalidHandler
from projections.subscriptions import (
    Consumer,
    ConsumerSettings,
    InvalidSubscription,
    MatchedEvent,
    NotFound,
    create_group,
    cursors,
    rescale_group,
    subscribe,
    unsubscribe,
)
from projections.subscriptions.errors import InvalidCondition, InvalidCursor
from projections.subscriptions.groups import move_cursor, poll_group
from tests.fixtures.projections import Failure, execute, fetchval, until
from tests.fixtures.subscriptions import (
    Seen,
    consuming,
    cursors_of,
    landed,
    landed_and_matched,
    peek,
    quick,
    read_next,
    until_handled,
)

LEASE = timedelta(seconds=10)


@pytest.fixture(params=["asyncpg", "psycopg"])
async def with_each_driver(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(driver=request.param)) as database:
        yield database


def consumer(database: Database, **settings: object) -> Consumer:
    return Consumer(database, "g", settings=quick(**settings))


@pytest.mark.slow
async def test_a_handler_gets_every_event_of_its_subscription_once_and_in_order(
    with_each_driver: Database,
) -> None:
    database, seen = with_each_driver, Seen()
    reader = consumer(database, page_size=7)
    reader.handle(seen, name="all")

    async with consuming(database, reader):
        for _ in range(10):
            await landed_and_matched(database, "a", "b", "c")
        await seen.until_events(30)
        await until_handled(database)

    assert [event for event in seen.events if event[0] == "b"] == [("b", n) for n in range(1, 11)]
    assert len(seen.events) == 30


async def test_an_event_comes_with_its_payload_and_its_topic(database: Database) -> None:
    got: list[MatchedEvent] = []

    async def keep(batch: Sequence[MatchedEvent]) -> None:
        got.extend(batch)

    seen = Seen(keep)
    reader = consumer(database)
    reader.handle(seen, name="h")
    async with consuming(database, reader):
        await landed_and_matched(database, "a", delay=3)
        await seen.until_events(1)

    assert (got[0].topic, got[0].payload, got[0].envelope.slice) == ("Landed", {"delay": 3}, 97)


@pytest.mark.slow
async def test_each_handler_gets_what_its_own_subscription_asks_for(database: Database) -> None:
    late, everything, nothing = Seen(), Seen(), Seen()
    reader = consumer(database)
    reader.handle(late, name="late", contains={"late": True})
    reader.handle(everything, name="everything", topics=["Land*"])
    reader.handle(nothing, name="nothing", entity_types=["train"])

    async with consuming(database, reader):
        await landed(database, "a", "b", late=False)
        await landed_and_matched(database, "c", late=True)
        await everything.until_events(3)
        await until_handled(database)

    assert late.events == [("c", 1)]
    assert nothing.batches == []


@pytest.mark.slow
async def test_a_call_has_at_most_as_many_events_as_the_handler_wants(database: Database) -> None:
    seen = Seen()
    reader = consumer(database)
    reader.handle(seen, name="h", batch=2)

    async with consuming(database, reader):
        await landed_and_matched(database, *"abcde")
        await seen.until_events(5)

    assert [len(batch) for batch in seen.batches] == [2, 2, 1]


@pytest.mark.slow
async def test_the_cursor_waits_for_a_page_that_is_not_done_and_then_passes_all_that_are(
    database: Database,
) -> None:
    release = asyncio.Event()

    async def hold_first(batch: Sequence[MatchedEvent]) -> None:
        if len(slow.batches) == 1:
            await release.wait()

    quickly, slow = Seen(), Seen(hold_first)
    reader = consumer(database, page_size=1)
    reader.handle(quickly, name="quick")
    reader.handle(slow, name="slow")

    async with consuming(database, reader):
        await landed_and_matched(database, "a", "b", "c")
        await quickly.until_events(3)
        await slow.until_events(1)
        assert await cursors_of(database) == [0]
        release.set()
        await until_handled(database)

    assert len(slow.events) == 3


@pytest.mark.slow
async def test_a_quick_handler_is_read_for_only_so_many_pages_ahead_of_a_slow_one(database: Database) -> None:
    release = asyncio.Event()

    async def hold(batch: Sequence[MatchedEvent]) -> None:
        await release.wait()

    quickly, slow = Seen(), Seen(hold)
    reader = consumer(database, page_size=1, read_ahead=3)
    reader.handle(quickly, name="quick")
    reader.handle(slow, name="slow")

    async with consuming(database, reader):
        await landed_and_matched(database, *"abcdefgh")
        await quickly.until_events(3)
        # Several more turns of the reader: it says so with each heartbeat.
        lease = await fetchval(database, "SELECT max(lease_until) FROM projections.workers")
        await until(
            database,
            "SELECT max(lease_until) > $1::timestamptz + interval '200 ms' FROM projections.workers",
            lease,
        )
        assert len(quickly.events) == 3
        release.set()
        await quickly.until_events(8)


@pytest.mark.slow
async def test_handlers_run_at_the_same_time(database: Database) -> None:
    meeting = asyncio.Barrier(2)

    async def meet(batch: Sequence[MatchedEvent]) -> None:
        await meeting.wait()

    one, other = Seen(meet), Seen(meet)
    reader = consumer(database)
    reader.handle(one, name="one")
    reader.handle(other, name="other")

    async with consuming(database, reader):
        await landed_and_matched(database, "a")
        await until_handled(database)

    assert one.events == other.events == [("a", 1)]


@pytest.mark.slow
async def test_a_stop_finishes_what_was_begun_and_leaves_the_rest_to_others(database: Database) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def hold(batch: Sequence[MatchedEvent]) -> None:
        begun.set()
        await release.wait()

    first, stop = Seen(hold), asyncio.Event()
    reader = consumer(database, page_size=1)
    reader.handle(first, name="h")
    task = asyncio.create_task(reader.run(stop))
    await until(database, "SELECT EXISTS (SELECT FROM projections.workers)")
    await landed_and_matched(database, "a", "b")
    await begun.wait()
    stop.set()
    release.set()
    await task

    assert first.events == [("a", 1)]
    assert (
        await fetchval(database, "SELECT count(*) FROM projections.group_ranges WHERE owner IS NOT NULL") == 0
    )
    assert await fetchval(database, "SELECT count(*) FROM projections.workers") == 0
    second = Seen()
    reader = consumer(database)
    reader.handle(second, name="h")
    async with consuming(database, reader):
        await second.until_events(1)
    assert second.events == [("b", 1)]


@pytest.mark.slow
async def test_a_stop_waits_for_handlers_that_are_behind_so_that_nothing_comes_twice(
    database: Database,
) -> None:
    release = asyncio.Event()

    async def hold(batch: Sequence[MatchedEvent]) -> None:
        await release.wait()

    quickly, slow, stop = Seen(), Seen(hold), asyncio.Event()
    reader = consumer(database, page_size=1)
    reader.handle(quickly, name="quick")
    reader.handle(slow, name="slow")
    task = asyncio.create_task(reader.run(stop))
    await until(database, "SELECT EXISTS (SELECT FROM projections.workers)")
    await landed_and_matched(database, "a", "b", "c")
    await quickly.until_events(3)
    stop.set()
    release.set()
    await task

    assert slow.events == quickly.events
    assert await cursors_of(database) == [3]


@pytest.mark.slow
async def test_a_stop_does_not_wait_for_ever(database: Database) -> None:
    async def hang(batch: Sequence[MatchedEvent]) -> None:
        await asyncio.Event().wait()

    seen = Seen(hang)
    reader = consumer(database, grace=timedelta(milliseconds=50))
    reader.handle(seen, name="h")

    async with consuming(database, reader):
        await landed_and_matched(database, "a")
        await seen.until_calls(1)

    assert await cursors_of(database) == [0]
    assert await fetchval(database, "SELECT count(*) FROM projections.workers") == 0


async def test_a_cancelled_consumer_gives_back_its_ranges(database: Database) -> None:
    reader = consumer(database)
    reader.handle(Seen(), name="h")
    task = asyncio.create_task(reader.run())
    await until(database, "SELECT EXISTS (SELECT FROM projections.group_ranges WHERE owner IS NOT NULL)")

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (
        await fetchval(database, "SELECT count(*) FROM projections.group_ranges WHERE owner IS NOT NULL") == 0
    )


@pytest.mark.slow
async def test_events_that_were_dropped_by_force_are_left_out_and_told(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    async with database.session() as session:
        await subscribe(session, "g")
    await landed_and_matched(database, "a", "b", "c")
    await execute(database, "DELETE FROM projections.events WHERE source_id = 'b'")
    reader = consumer(database)
    reader.handle(seen, name="h")

    with caplog.at_level(logging.WARNING, "projections"):
        async with consuming(database, reader):
            await until_handled(database)

    assert seen.events == [("a", 1), ("c", 1)]
    assert "1 events were dropped from the journal before they were read" in caplog.text


@pytest.mark.slow
async def test_a_subscription_that_somebody_removed_is_made_again(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    reader = consumer(database, keep_every=timedelta(milliseconds=20))
    reader.handle(seen, name="h")

    with caplog.at_level(logging.WARNING, "projections"):
        async with consuming(database, reader):
            async with database.session() as session:
                first = await session.fetchval("SELECT subscription_id FROM projections.subscriptions")
                await unsubscribe(session, first)
            await until(database, "SELECT EXISTS (SELECT FROM projections.subscriptions)")
            await landed_and_matched(database, "a")
            await seen.until_events(1)

    assert "subscribing again" in caplog.text


@pytest.mark.slow
async def test_a_group_that_somebody_removed_is_made_again(database: Database) -> None:
    seen = Seen()
    reader = consumer(database)
    reader.handle(seen, name="h")

    async with consuming(database, reader):
        await execute(database, "DELETE FROM projections.subscription_groups")
        await until(database, "SELECT EXISTS (SELECT FROM projections.workers)")
        await landed_and_matched(database, "a")
        await seen.until_events(1)


async def test_subscriptions_that_expire_are_kept_while_a_consumer_runs(database: Database) -> None:
    reader = consumer(database, keep_every=timedelta(milliseconds=20))
    reader.handle(Seen(), name="h", expires_after=timedelta(minutes=5))

    async with consuming(database, reader):
        before = await fetchval(database, "SELECT active_at FROM projections.subscriptions")
        await until(database, "SELECT active_at > $1 FROM projections.subscriptions", before)


async def test_two_conditions_that_can_not_be_end_the_consumer_before_it_reads(database: Database) -> None:
    for condition in ("e.nothing = 1", "1"):
        reader = consumer(database)
        reader.handle(Seen(), name="good")
        reader.handle(Seen(), name="bad", condition=condition)

        with pytest.raises(InvalidCondition):
            await reader.run()

    assert await fetchval(database, "SELECT count(*) FROM projections.subscriptions") == 0


async def test_the_name_of_a_group_that_can_not_be_ends_the_consumer(database: Database) -> None:
    reader = Consumer(database, "g" * 256)
    reader.handle(Seen(), name="h")

    with pytest.raises(InvalidSubscription, match="1 to 255 characters, not 256"):
        await reader.run()


async def test_a_consumer_runs_once_at_a_time_and_takes_no_handler_meanwhile(database: Database) -> None:
    reader = consumer(database)
    reader.handle(Seen(), name="h")

    async with consuming(database, reader):
        with pytest.raises(InvalidHandler, match="runs already"):
            await reader.run()
        with pytest.raises(InvalidHandler, match="comes too late"):
            reader.handle(Seen(), name="other")


@pytest.mark.slow
async def test_peeking_disturbs_nobody_and_moves_nothing(database: Database) -> None:
    async with database.session() as session:
        await subscribe(session, "g")
        await rescale_group(session, "g", 3)
    await landed_and_matched(database, "a", "b", "c", "d")

    async with database.session() as session:
        seen = [await peek(session, "g", limit=3) for _ in range(2)]

    assert [match.match_id for match in seen[0]] == [1, 2, 3]
    assert seen[0] == seen[1]
    assert await cursors_of(database) == [0, 0, 0]


@pytest.mark.slow
async def test_a_cursor_must_be_a_match_of_the_group_and_may_not_go_back(database: Database) -> None:
    async with database.session() as session:
        for group in ("g", "other"):
            await subscribe(session, group)
        await landed_and_matched(database, "a", "b")
        (held,) = await poll_group(session, "g", "me", LEASE)
        own, others = [
            [match.match_id for match in await read_next(session, g, held.slices, after=0, until=99, limit=9)]
            for g in ("g", "other")
        ]

        await move_cursor(session, "g", held, own[1])

        for cursor, message in (
            (others[1], "is not a match of group 'g'"),
            (own[0], f"is at {own[1]} already"),
        ):
            with pytest.raises(InvalidCursor, match=message):
                await move_cursor(session, "g", held, cursor)
    assert await cursors_of(database) == [own[1]]


async def test_a_reader_whose_lease_has_ended_moves_no_cursor(database: Database) -> None:
    async with database.session() as session:
        await subscribe(session, "g")
        await landed_and_matched(database, "a")
        (frozen,) = await poll_group(session, "g", "frozen", timedelta(microseconds=1))
        assert len(await poll_group(session, "g", "next", LEASE)) == 1

        with pytest.raises(RangeLost):
            await move_cursor(session, "g", frozen, 1)
    assert await cursors_of(database) == [0]


async def test_a_cursor_is_not_moved_without_the_epoch_of_who_holds_the_range(database: Database) -> None:
    async with database.session() as session:
        await subscribe(session, "g")
        await landed_and_matched(database, "a")
        await poll_group(session, "g", "me", LEASE)

        for epoch in ("NULL", "0", "2"):
            with pytest.raises(DatabaseError, match="are no longer held with epoch"):
                await session.execute(f"SELECT projections.move_cursor_v1('g', 0, {epoch}, 1)")
    assert await cursors_of(database) == [0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "lease", "message"),
    [
        ("", LEASE, "a reader has a name"),
        ("me", timedelta(0), "a lease is longer than 0, not 00:00:00"),
        ("me", -LEASE, "a lease is longer than 0"),
    ],
)
async def test_a_reader_has_a_name_and_a_lease(
    database: Database, owner: str, lease: timedelta, message: str
) -> None:
    async with database.session() as session:
        await subscribe(session, "g")

        with pytest.raises(InvalidSubscription, match=message):
            await poll_group(session, "g", owner, lease)


async def test_a_page_has_a_match_or_more(database: Database) -> None:
    async with database.session() as session:
        await subscribe(session, "g")

        for limit in (0, -1):
            with pytest.raises(InvalidSubscription, match=f"1 match or more, not {limit}"):
                await read_next(session, "g", SliceRange(0, 1023), after=0, until=9, limit=limit)


async def test_a_group_that_is_not_there_is_named(database: Database) -> None:
    async with database.session() as session:
        for call in (
            poll_group(session, "nobody", "me", LEASE),
            rescale_group(session, "nobody", 2),
            cursors(session, "nobody"),
            peek(session, "nobody"),
        ):
            with pytest.raises(NotFound, match="there is no group 'nobody'"):
                await call


def test_the_usual_settings_poll_an_idle_group_a_few_times_a_second() -> None:
    settings = ConsumerSettings()

    assert timedelta(seconds=1) / settings.pacing.longest <= 4
    assert settings.heartbeat * 3 <= settings.lease


@pytest.mark.slow
async def test_a_range_that_failed_starts_again_from_its_stored_cursor_with_all_handlers(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail_twice(batch: Sequence[MatchedEvent]) -> None:
        if ("b", 1) in failing.batches[-1] and len(failing.batches) <= 3:
            raise Failure("not yet")

    steady, failing = Seen(), Seen(fail_twice)
    reader = consumer(database, page_size=2)
    reader.handle(steady, name="steady")
    reader.handle(failing, name="failing")

    with caplog.at_level(logging.ERROR, "projections"):
        async with consuming(database, reader):
            await landed_and_matched(database, "x", "y")
            await until_handled(database)
            await landed_and_matched(database, "a", "b", "c")
            await until_handled(database)

    first, batch, last = [("x", 1), ("y", 1)], [("a", 1), ("b", 1)], [("c", 1)]
    assert failing.batches == [first, batch, batch, batch, last]
    assert steady.batches[0] == first
    assert steady.batches.count(batch) == 3
    assert "handler 'failing' failed, starting again after match 2" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("error", [Failure("no"), TimeoutError("own"), asyncio.CancelledError(), KeyError(1)])
async def test_a_consumer_goes_on_whatever_a_handler_raises(database: Database, error: BaseException) -> None:
    async def fail_once(batch: Sequence[MatchedEvent]) -> None:
        if len(seen.batches) == 1:
            raise error

    seen = Seen(fail_once)
    reader = consumer(database)
    reader.handle(seen, name="h")

    async with consuming(database, reader):
        await landed_and_matched(database, "a")
        await until_handled(database)

    assert seen.batches == [[("a", 1)], [("a", 1)]]


@pytest.mark.slow
async def test_a_handler_that_takes_too_long_is_cancelled_and_has_failed(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    cancelled = asyncio.Event()

    async def hang_once(batch: Sequence[MatchedEvent]) -> None:
        if len(seen.batches) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    seen = Seen(hang_once)
    reader = consumer(database)
    reader.handle(seen, name="h", timeout=0.05)

    with caplog.at_level(logging.ERROR, "projections"):
        async with consuming(database, reader):
            await landed_and_matched(database, "a")
            await until_handled(database)

    assert cancelled.is_set()
    assert "no end after 0.05 s" in caplog.text


@pytest.mark.slow
async def test_a_poison_range_holds_up_no_other(database: Database) -> None:
    async def fail(batch: Sequence[MatchedEvent]) -> None:
        if any(event.envelope.slice < 512 for event in batch):
            raise Failure("poison")

    sources = [f"s{number}" for number in range(40)]
    healthy = [(source, 1) for source in sources if slice_of(source) >= 512]
    seen = Seen(fail)
    async with database.session() as session:
        await create_group(session, "g", ranges=2)
    reader = consumer(database)
    reader.handle(seen, name="h")

    async with consuming(database, reader):
        await landed_and_matched(database, *sources)
        await until(database, "SELECT max(cursor) > 0 FROM projections.group_ranges")
        await seen.until(lambda: set(healthy) <= set(seen.events))

    cursors_now = await cursors_of(database)
    assert cursors_now[0] == 0
    assert cursors_now[1] > 0


@pytest.mark.slow
async def test_what_the_database_refuses_for_one_range_holds_up_no_other(database: Database) -> None:
    sources = [f"s{number}" for number in range(40)]
    async with database.session() as session:
        await create_group(session, "g", ranges=2)
    await execute(
        database,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$",
    )
    await execute(
        database,
        "CREATE TRIGGER refuse BEFORE UPDATE OF cursor ON projections.group_ranges "
        "FOR EACH ROW WHEN (new.min_slice = 0) EXECUTE FUNCTION refuse()",
    )
    seen = Seen()
    reader = consumer(database)
    reader.handle(seen, name="h")

    async with consuming(database, reader):
        await landed_and_matched(database, *sources)
        await until(database, "SELECT max(cursor) > 0 FROM projections.group_ranges")
        assert (await cursors_of(database))[0] == 0
        await execute(database, "DROP TRIGGER refuse ON projections.group_ranges")
        await until_handled(database)

    assert set(seen.events) == {(source, 1) for source in sources}


@pytest.mark.slow
async def test_the_cursor_of_a_range_that_gets_nothing_passes_over_what_is_for_others(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.subscriptions.consumer_loop._FAR", 5)
    sources = [source for n in range(60) if slice_of(source := f"s{n}") >= 512]
    async with database.session() as session:
        await create_group(session, "g", ranges=2)
    seen = Seen()
    reader = consumer(database)
    reader.handle(seen, name="h")

    async with consuming(database, reader):
        await landed_and_matched(database, *sources)
        await until(database, "SELECT min(cursor) = $1 FROM projections.group_ranges", len(sources))

    assert len(seen.events) == len(sources)


async def test_a_group_that_only_listens_has_no_consumers(database: Database) -> None:
    async with database.session() as session:
        await create_group(session, "g", reliable=False)
    reader = consumer(database)
    reader.handle(Seen(), name="h")

    with pytest.raises(InvalidSubscription, match="'g' only listens, and nothing is kept for it"):
        await reader.run()


@pytest.mark.slow
async def test_a_handler_that_can_not_be_cancelled_is_reported_and_holds_up_only_its_range(
    database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.subscriptions.range_reader._STUCK", 0.02)
    release = asyncio.Event()

    async def hang(batch: Sequence[MatchedEvent]) -> None:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    async def fail_once(batch: Sequence[MatchedEvent]) -> None:
        if len(failing.batches) == 1:
            await hanging.until_calls(1)
            raise Failure("no")

    hanging, failing = Seen(hang), Seen(fail_once)
    reader = consumer(database)
    reader.handle(hanging, name="hanging")
    reader.handle(failing, name="failing")

    with caplog.at_level(logging.ERROR, "projections"):
        async with consuming(database, reader):
            await landed_and_matched(database, "a")
            async with asyncio.timeout(300):
                while "goes on although it was cancelled" not in caplog.text:
                    await fetchval(database, "SELECT 1")
            release.set()
            await until_handled(database)

    assert failing.batches == [[("a", 1)], [("a", 1)]]
