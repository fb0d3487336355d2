"""Groups whose database goes back in time under their consumers: nothing of the new history is lost, order is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

import offsets
from journal import Database, DatabaseWentBack, Event, append
from offsets import RangeLost
from projections.subscriptions import Consumer, ConsumerSettings, MatchedEvent, subscribe
from projections.subscriptions.dead_letters import (
    DeadLetters,
    encode_batch,
    fail_batch,
    finish_retry,
    take_retries,
)
from projections.subscriptions.groups import GroupRange, move_cursor, poll_group, release_range
from projections.subscriptions.reading import MatchPlace, read_held
from tests.fixtures.going_back import go_back, remember
from tests.fixtures.projections import fetchval, until
from tests.fixtures.subscriptions import (
    Seen,
    consuming,
    cursors_of,
    landed,
    landed_and_matched,
    match_all,
    quick,
    read_next,
    until_handled,
)

LEASE = timedelta(seconds=10)
SOON = timedelta(0)
NO_HEARTBEAT = {"heartbeat": timedelta(hours=1), "lease": timedelta(hours=2)}
"""What is noticed under these is noticed by what is stored and read, not by chance of the heartbeat."""


class Held:
    """A handler that waits with one event until it is let go."""

    def __init__(self, source_id: str, error: Exception | None = None) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.seen = Seen(self._wait)
        self._source_id = source_id
        self._error = error

    async def _wait(self, batch: Sequence[MatchedEvent]) -> None:
        if any(event.envelope.source_id == self._source_id for event in batch) and not self.go_on.is_set():
            self.begun.set()
            await self.go_on.wait()
            if self._error is not None:
                raise self._error


def consumer(database: Database, handler: Any, *, name: str = "h", **options: Any) -> Consumer:
    settings: ConsumerSettings = quick(**NO_HEARTBEAT)
    made = Consumer(database, "g", settings=settings)
    made.handle(handler, name=name, **options)
    return made


async def test_what_is_in_hand_of_a_lost_history_moves_no_cursor_over_the_new_one(database: Database) -> None:
    held = Held("b")
    async with consuming(database, consumer(database, held.seen)):
        await landed_and_matched(database, "a")
        await until_handled(database)
        await remember(database)
        await landed_and_matched(database, "b")
        await held.begun.wait()
        await go_back(database)
        await landed_and_matched(database, "c", "d")  # with the numbers that b had, and more
        held.go_on.set()
        await held.seen.until_events(4)
        await until_handled(database)

    assert held.seen.events == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]


@pytest.mark.slow
async def test_what_was_stored_of_a_lost_history_is_read_again_in_order(database: Database) -> None:
    seen = Seen()
    async with consuming(database, consumer(database, seen)):
        await landed_and_matched(database, "a")
        await until_handled(database)
        await remember(database)
        await landed_and_matched(database, "b")
        await landed_and_matched(database, "b")
        await until_handled(database)
        await go_back(database)
        await landed_and_matched(database, "c")
        await landed_and_matched(database, "c")
        await landed_and_matched(database, "c")  # beyond what was read of the lost history
        await seen.until_events(6)
        await until_handled(database)

    assert seen.events == [("a", 1), ("b", 1), ("b", 2), ("c", 1), ("c", 2), ("c", 3)]


async def test_what_was_read_ahead_of_a_lost_history_is_dropped(database: Database) -> None:
    held, ahead = Held("a"), Seen()
    reader = consumer(database, held.seen)
    reader.handle(ahead, name="ahead")
    async with consuming(database, reader):
        await landed_and_matched(database, "a")
        await held.begun.wait()
        await remember(database)
        await landed_and_matched(database, "b")
        await ahead.until_events(2)
        await go_back(database)
        await landed_and_matched(database, "c")
        held.go_on.set()
        await ahead.until(lambda: ("c", 1) in ahead.events)
        await held.seen.until(lambda: ("c", 1) in held.seen.events)
        await until_handled(database)

    assert await cursors_of(database) == [2]


@pytest.mark.slow
async def test_a_consumer_that_the_database_does_not_know_subscribes_again(database: Database) -> None:
    async with database.session() as session:
        await subscribe(session, "g", topics=["Never"])
    await remember(database)
    seen = Seen()
    made = Consumer(database, "g", settings=quick())
    made.handle(seen, name="h", topics=["Landed"])
    async with consuming(database, made):
        await landed_and_matched(database, "a")
        await until_handled(database)
        await go_back(database)
        async with database.session() as session:  # the number that the handler's subscription had
            await subscribe(session, "g", topics=["Other"])
        await until(database, "SELECT count(*) = 1 FROM projections.subscriptions WHERE topics = '{Landed}'")
        await landed_and_matched(database, "c")
        await seen.until_events(2)

    assert seen.events == [("a", 1), ("c", 1)]


REFUSING = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE 'not now' USING ERRCODE = 'serialization_failure'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON projections.subscriptions
FOR EACH ROW WHEN (NEW.topics = '{Landed}') EXECUTE FUNCTION refuse()
"""


@pytest.mark.slow
async def test_a_consumer_that_starts_over_reads_nothing_before_it_has_subscribed(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async with database.session() as session:
        await subscribe(session, "g", topics=["Never"])
    await remember(database)
    seen = Seen()
    made = Consumer(database, "g", settings=quick())
    made.handle(seen, name="h", topics=["Landed"])
    async with consuming(database, made):
        await landed_and_matched(database, "a")
        await until_handled(database)
        async with database.session() as session:
            await session.execute(REFUSING)
        await go_back(database)
        async with database.session() as session:  # the number that the handler's subscription had
            await subscribe(session, "g", topics=["Other"])
            await append(session, [Event("b", {}, "plane", event_type="Other")])
        await match_all(database)
        async with asyncio.timeout(300):
            while sum("not now" in record.getMessage() for record in caplog.records) < 2:
                await asyncio.sleep(0.01)
        async with database.session() as session:
            await session.execute("DROP TRIGGER refuse ON projections.subscriptions")
        await until(database, "SELECT count(*) = 1 FROM projections.subscriptions WHERE topics = '{Landed}'")
        await landed_and_matched(database, "c")
        await seen.until_events(2)

    assert seen.events == [("a", 1), ("c", 1)]


async def test_a_range_is_stored_only_by_the_reader_that_holds_it_in_this_history(database: Database) -> None:
    async with database.session() as session:
        await subscribe(session, "g")
        await landed_and_matched(database, "a")
        await remember(database)
        (lost,) = await poll_group(session, "g", "me", LEASE)
        await go_back(database)
        (held,) = await poll_group(session, "g", "you", LEASE)
        assert lost.epoch == held.epoch
        (match,) = await read_next(session, "g", after=0, until=9, limit=9)

        with pytest.raises(RangeLost):
            await move_cursor(session, "g", lost, 1, match.matched_at)
        with pytest.raises(RangeLost):
            await read_held(session, "g", lost, after=MatchPlace(0), until=9, limit=9)
        with pytest.raises(RangeLost):
            await fail(session, [MatchedEvent(1, [1], match.envelope)] if match.envelope else [], held=lost)  # type: ignore[list-item]
        await release_range(session, "g", lost)
        with pytest.raises(DatabaseWentBack, match="reader 'me' of group 'g' is not known"):
            await poll_group(session, "g", "me", LEASE, joined=True)
        assert await poll_group(session, "g", "you", LEASE, joined=True) == [held]


async def fail(session: Any, events: list[MatchedEvent], **options: Any) -> None:
    await fail_batch(session, "g", "h", encode_batch(events), attempts=1, error="e", delay=SOON, **options)


async def test_a_cursor_that_somebody_has_moved_is_not_moved_on(database: Database) -> None:
    async with database.session() as session:
        await subscribe(session, "g")
        await landed_and_matched(database, "a", "b", "c")
        (held,) = await poll_group(session, "g", "me", LEASE)
        matches = await read_next(session, "g", after=0, until=9, limit=9)
        await move_cursor(session, "g", held, 2, matches[1].matched_at)
        known = held._replace(cursor=2)
        await session.execute("UPDATE projections.group_ranges SET cursor = 1")

        for call in (
            move_cursor(session, "g", known, 3, matches[2].matched_at),
            read_held(session, "g", known, after=matches[1].place, until=9, limit=9),
        ):
            with pytest.raises(DatabaseWentBack, match="is at 1, and its reader had stored 2"):
                await call
    assert await cursors_of(database) == [1]


async def test_an_answer_that_did_not_arrive_is_no_step_back(database: Database) -> None:
    async with database.session() as session:
        await subscribe(session, "g")
        await landed_and_matched(database, "a", "b", "c")
        (held,) = await poll_group(session, "g", "me", LEASE)
        matches = await read_next(session, "g", after=0, until=9, limit=9)
        await move_cursor(session, "g", held, 2, matches[1].matched_at)

        assert len(await read_held(session, "g", held, after=matches[1].place, until=9, limit=9)) == 1
        await move_cursor(session, "g", held, 2, matches[1].matched_at)
        await move_cursor(session, "g", held, 3, matches[2].matched_at)
    assert await cursors_of(database) == [3]


async def test_a_batch_of_a_lost_history_is_not_kept_and_takes_no_place_of_another(
    database: Database,
) -> None:
    held = Held("b", ValueError("no"))
    reader = consumer(database, held.seen, retries=[timedelta(hours=1)])
    async with consuming(database, reader):
        await landed_and_matched(database, "a")
        await until_handled(database)
        await remember(database)
        await landed_and_matched(database, "b")
        await held.begun.wait()
        await go_back(database)
        await landed_and_matched(database, "c")
        held.go_on.set()
        await held.seen.until_events(3)
        await until_handled(database)

    assert held.seen.events == [("a", 1), ("b", 1), ("c", 1)]
    async with database.session() as session:
        assert await DeadLetters(session).list("g", waiting=True) == []


async def test_batches_of_the_same_numbers_and_other_events_are_kept_beside_each_other(
    database: Database,
) -> None:
    async with database.session() as session:
        await subscribe(session, "g")
        await remember(database)
        for source_id in ("b", "c"):
            await landed_and_matched(database, source_id)
            (match,) = await read_next(session, "g", after=0, until=9, limit=9)
            assert match.envelope is not None
            await fail(session, [MatchedEvent(match.match_id, [1], match.envelope)])
            if source_id == "b":
                await session.execute("CREATE TABLE kept AS SELECT * FROM projections.group_retries")
                await go_back(database)
                await session.execute(
                    "INSERT INTO projections.group_retries OVERRIDING SYSTEM VALUE TABLE kept"
                )
                await session.execute("SELECT setval('projections.group_retries_retry_id_seq', 9)")

        assert len(await DeadLetters(session).list("g", waiting=True)) == 2


async def test_what_came_of_a_batch_is_stored_only_of_the_batch_that_was_taken(database: Database) -> None:
    async with database.session() as session:
        await subscribe(session, "g")
        await remember(database)
        await session.fetchval(FAIL, '[{"match_id": 1}]')
        (lost,) = await take_retries(session, "g", ["h"], LEASE, 1)
        await go_back(database)
        await session.fetchval(FAIL, '[{"match_id": 2}]')
        (taken,) = await take_retries(session, "g", ["h"], LEASE, 1)
        assert lost.retry_id == taken.retry_id

        assert not await finish_retry(session, lost)
        assert not await finish_retry(session, lost, attempts=2, error="no")
        assert [kept.error for kept in await DeadLetters(session).list("g", waiting=True)] == ["e"]
        assert await finish_retry(session, taken)
        assert await DeadLetters(session).list("g", waiting=True) == []


FAIL = "SELECT projections.fail_batch_v1('g', 'h', 1, 'e', '0 s', $1)"


@pytest.mark.slow
async def test_a_handler_gets_a_batch_again_whose_success_the_database_forgot(database: Database) -> None:
    failing = [True]

    async def fail_once(batch: Sequence[MatchedEvent]) -> None:
        if failing.pop() if failing else False:
            raise ValueError("no")

    seen = Seen(fail_once)
    async with consuming(database, consumer(database, seen, retries=[timedelta(milliseconds=300)])):
        await landed_and_matched(database, "a")
        await until(database, "SELECT count(*) = 1 FROM projections.group_retries")
        await until_handled(database)
        await remember(database)
        await seen.until_events(2)
        await until(database, "SELECT count(*) = 0 FROM projections.group_retries")
        await go_back(database)
        await seen.until_events(3)
        await until(database, "SELECT count(*) = 0 FROM projections.group_retries")

    assert seen.events == [("a", 1)] * 3


async def test_a_reader_that_leaves_a_lost_history_frees_nothing_of_the_new_one(database: Database) -> None:
    async with database.session() as session:
        await subscribe(session, "g")
        await remember(database)
        await poll_group(session, "g", "me", LEASE)
        await go_back(database)
        held: list[GroupRange] = await poll_group(session, "g", "you", LEASE)

        await offsets.leave(session, "me")

        assert await poll_group(session, "g", "you", LEASE) == held
    await landed(database, "a")
    assert await match_all(database) == 1
    assert await fetchval(database, "SELECT owner FROM projections.group_ranges") == "you"
