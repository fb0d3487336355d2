"""Retries: a batch that failed comes again to the handler that failed on it, until it succeeds or is a dead letter."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import groupby

import pytest

from journal import Database, DatabaseError, connect
from offsets import RangeLost
from projections.failing import ALIKE
from projections.subscriptions import (
    Consumer,
    DeadLetters,
    InvalidSubscription,
    MatchedEvent,
    NotFound,
    rescale_group,
    subscribe,
)
from projections.subscriptions.dead_letters import encode_batch, fail_batch, take_retries
from projections.subscriptions.groups import poll_group
from tests.fixtures.poison import ExitsForAText, NoText
from tests.fixtures.projections import Failure, execute, fetchval, until
from tests.fixtures.subscriptions import (
    Seen,
    consuming,
    cursors_of,
    landed,
    landed_and_matched,
    match_all,
    quick,
    until_handled,
)

SOON = timedelta(milliseconds=1)
DEAD = "SELECT count(*) >= $1 FROM projections.group_retries WHERE due_at IS NULL"
NONE_KEPT = "SELECT NOT EXISTS (SELECT FROM projections.group_retries)"


def consumer(database: Database, **settings: object) -> Consumer:
    return Consumer(database, "g", settings=quick(**settings))


def failing(times: int, *, on: str = "") -> Seen:
    """Fails so many times on batches that have a source."""
    failed = 0

    async def fail(batch: Sequence[MatchedEvent]) -> None:
        nonlocal failed
        if failed < times and (not on or any(event.envelope.source_id == on for event in batch)):
            failed += 1
            raise Failure("no")

    return Seen(fail)


@pytest.mark.slow
async def test_a_failed_batch_comes_again_whole_and_to_its_handler_alone(database: Database) -> None:
    failed, other = failing(2, on="b"), Seen()
    reader = consumer(database, page_size=2)
    reader.handle(failed, name="failed", retries=[SOON, SOON])
    reader.handle(other, name="other", retries=[SOON])

    async with consuming(database, reader):
        await landed_and_matched(database, "a", "b", "c")
        await failed.until_calls(4)
        await until(database, NONE_KEPT)

    batch = [("a", 1), ("b", 1)]
    assert sorted(failed.batches) == sorted([batch, batch, batch, [("c", 1)]])
    assert other.batches == [batch, [("c", 1)]]


def cancelled(asked: Database, times: int) -> Seen:
    """So many times, a statement that it sends to a database is cancelled."""
    left = times

    async def ask(batch: Sequence[MatchedEvent]) -> None:
        nonlocal left
        if left:
            left -= 1
            try:
                await execute(asked, "DO $$ BEGIN RAISE 'cancelled' USING ERRCODE = '57014'; END $$")
            except DatabaseError as error:
                raise Failure("no") from error

    return Seen(ask)


async def test_what_is_not_the_fault_of_a_batch_uses_up_no_retry(database: Database) -> None:
    """Such as a statement of the handler that was cancelled: more often than there are retries."""
    seen, reader = cancelled(database, 4), consumer(database)
    reader.handle(seen, name="mails", retries=[SOON, SOON])

    async with consuming(database, reader):
        await landed_and_matched(database, "a")
        await seen.until_calls(5)
        await until(database, NONE_KEPT)


async def test_what_another_database_says_uses_up_retries(database: Database, empty_dsn: str) -> None:
    reader = consumer(database)
    async with connect(empty_dsn) as other:
        reader.handle(cancelled(other, 4), name="mails", retries=[SOON, SOON])

        async with consuming(database, reader):
            await landed_and_matched(database, "a")
            await until(database, DEAD, 1)


async def test_of_a_batch_only_the_event_at_fault_is_a_dead_letter(database: Database) -> None:
    sources = [f"s{number}" for number in range(9)]
    failed, reader = failing(999, on="s5"), consumer(database)
    reader.handle(failed, name="failed", retries=[SOON])

    async with consuming(database, reader):
        await landed_and_matched(database, *sources)
        await until(database, DEAD, 1)
        await until(database, "SELECT count(*) = 1 FROM projections.group_retries")

    async with database.session() as session:
        (dead,) = await DeadLetters(session).list("g")
        _, events = await DeadLetters(session).show("g", dead.retry_id)
    assert [event.envelope.source_id for event in events] == ["s5"]
    handled = {source for batch in failed.batches for source, _ in batch if ("s5", 1) not in batch}
    assert handled == {*sources} - {"s5"}


async def test_where_all_fail_few_dead_letters_are_made(database: Database) -> None:
    sources = [f"s{number}" for number in range(100)]
    reader = consumer(database)
    reader.handle(failing(999), name="failed", retries=[SOON])

    async with consuming(database, reader):
        await landed_and_matched(database, *sources)
        await until(database, DEAD, 1)
        await until(database, "SELECT bool_and(due_at IS NULL) FROM projections.group_retries")

    async with database.session() as session:
        dead = await DeadLetters(session).list("g")
    assert len(dead) <= 2 * ALIKE + 1
    assert sum(one.events for one in dead) == 100


@pytest.mark.parametrize(
    "error", [NoText, ExitsForAText, GeneratorExit, SystemExit], ids=lambda e: e.__name__
)
@pytest.mark.parametrize("where", ["call", "split_by"])
async def test_whatever_a_handler_raises_the_range_starts_again(
    database: Database, error: Callable[[], BaseException], where: str
) -> None:
    left, reader = 2, consumer(database)

    def fail() -> None:
        nonlocal left
        if left:
            left -= 1
            raise error()

    async def call(batch: Sequence[MatchedEvent]) -> None:
        if where == "call":
            fail()

    def split(batch: Sequence[MatchedEvent]) -> list[Sequence[MatchedEvent]]:
        if where == "split_by":
            fail()
        return [batch]

    seen = Seen(call)
    reader.handle(seen, name="mails", split_by=split)

    async with consuming(database, reader):
        await landed_and_matched(database, "a")
        await until_handled(database)

    assert left == 0
    assert seen.batches[-1] == [("a", 1)]


async def test_the_cursor_passes_a_batch_that_is_kept_for_later(database: Database) -> None:
    reader = consumer(database)
    reader.handle(failing(9), name="failed", retries=[3600])

    async with consuming(database, reader):
        await landed_and_matched(database, "a", "b")
        await until_handled(database)

        assert await cursors_of(database) == [2]
        async with database.session() as session:
            (kept,) = await DeadLetters(session).list("g", waiting=True)
            assert await DeadLetters(session).list("g") == []
    assert (kept.handler, kept.first_match_id, kept.last_match_id, kept.attempts, kept.events) == (
        "failed", 1, 2, 1, 2,
    )  # fmt: skip
    assert kept.due_at is not None
    assert kept.due_at - kept.failed_at > timedelta(minutes=47)
    assert kept.error == "Failure('no')"


async def test_a_batch_whose_retries_are_used_up_is_a_dead_letter(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    failed = failing(99)
    reader = consumer(database)
    reader.handle(failed, name="failed", retries=[SOON, SOON])

    with caplog.at_level(logging.WARNING, "projections"):
        async with consuming(database, reader):
            await landed_and_matched(database, "a")
            await until(database, DEAD, 1)

    async with database.session() as session:
        (dead,) = await DeadLetters(session).list("g")
        assert await DeadLetters(session).list("g", waiting=True) == []
        shown, events = await DeadLetters(session).show("g", dead.retry_id)
        assert (shown, [event.envelope.source_id for event in events]) == (dead, ["a"])
    assert (dead.attempts, dead.due_at) == (3, None)
    assert len(failed.batches) == 3
    assert "no retry is left: it is a dead letter now" in caplog.text


async def test_a_dead_letter_that_is_retried_is_handled_again_and_gone(database: Database) -> None:
    failed = failing(2)
    reader = consumer(database)
    reader.handle(failed, name="failed", retries=[SOON])

    async with consuming(database, reader):
        await landed_and_matched(database, "a")
        await until(database, DEAD, 1)
        async with database.session() as session:
            (dead,) = await DeadLetters(session).list("g")
            assert await DeadLetters(session).retry("g", dead.retry_id) == 1
        await until(database, NONE_KEPT)

    assert failed.batches == [[("a", 1)]] * 3
    async with database.session() as session:
        with pytest.raises(NotFound, match="is not a dead letter"):
            await DeadLetters(session).retry("g", dead.retry_id)


@pytest.mark.slow
async def test_a_dead_letter_that_is_retried_has_all_of_its_retries_before_it_is_dead_again(
    database: Database,
) -> None:
    failed = failing(99)
    reader = consumer(database)
    reader.handle(failed, name="failed", retries=[SOON])

    async with consuming(database, reader):
        await landed_and_matched(database, "a")
        await until(database, DEAD, 1)
        async with database.session() as session:
            (dead,) = await DeadLetters(session).list("g")
            await DeadLetters(session).retry("g", dead.retry_id)
        await failed.until_calls(4)
        await until(database, DEAD, 1)


async def test_a_dead_letter_that_is_dropped_is_gone(database: Database) -> None:
    reader = consumer(database)
    reader.handle(failing(99), name="failed", retries=[0])

    async with consuming(database, reader):
        await landed_and_matched(database, "a")
        await until(database, DEAD, 1)

    async with database.session() as session:
        (dead,) = await DeadLetters(session).list("g")
        assert await DeadLetters(session).drop("g", dead.retry_id) == 1
        for decide in (DeadLetters(session).drop, DeadLetters(session).show):
            with pytest.raises(NotFound, match="is not a dead letter"):
                await decide("g", dead.retry_id)
        assert await DeadLetters(session).list("g") == []


@pytest.mark.slow
async def test_a_retry_has_its_events_when_the_journal_has_dropped_them(database: Database) -> None:
    release = asyncio.Event()

    async def fail_first(batch: Sequence[MatchedEvent]) -> None:
        if len(seen.batches) == 1:
            raise Failure("no")
        assert batch[0].payload == {"delay": 3}
        release.set()

    seen = Seen(fail_first)
    reader = consumer(database)
    reader.handle(seen, name="h", retries=[3600])

    async with consuming(database, reader):
        await landed_and_matched(database, "a", delay=3)
        await until_handled(database)
        await execute(database, "DELETE FROM projections.events")
        async with database.session() as session:
            (kept,) = await DeadLetters(session).list("g", waiting=True)
            with pytest.raises(NotFound, match="is not a dead letter"):
                await DeadLetters(session).retry("g", kept.retry_id)
            assert await DeadLetters(session).retry("g", kept.retry_id, waiting=True) == 1
        async with asyncio.timeout(300):
            await release.wait()


async def test_only_the_part_that_failed_comes_again(database: Database) -> None:
    def by_source(batch: Sequence[MatchedEvent]) -> list[list[MatchedEvent]]:
        return [list(part) for _, part in groupby(batch, key=lambda event: event.envelope.source_id)]

    seen = failing(1, on="b")
    reader = consumer(database)
    reader.handle(seen, name="h", retries=[SOON], split_by=by_source)

    async with consuming(database, reader):
        await landed_and_matched(database, "a", "a", "b", "c")
        await seen.until_calls(4)
        await until(database, NONE_KEPT)

    parts = [[("a", 1), ("a", 2)], [("b", 1)], [("c", 1)]]
    assert [batch for batch in seen.batches if batch != [("b", 1)]] == [parts[0], parts[2]]
    assert seen.batches.count([("b", 1)]) == 2


@pytest.mark.slow
async def test_parts_are_handled_one_after_another(database: Database) -> None:
    running, most = 0, 0

    async def count(batch: Sequence[MatchedEvent]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await fetchval(database, "SELECT 1")
        running -= 1

    seen = Seen(count)
    reader = consumer(database)
    reader.handle(seen, name="h", split_by=lambda batch: [[event] for event in batch])

    async with consuming(database, reader):
        await landed_and_matched(database, *"abcd")
        await until_handled(database)

    assert seen.batches == [[(source, 1)] for source in "abcd"]
    assert most == 1


@pytest.mark.slow
@pytest.mark.parametrize("retries", [None, [SOON]])
async def test_a_split_that_loses_events_is_a_failure_and_loses_none(
    database: Database, retries: list[timedelta] | None
) -> None:
    splits = 0

    def lose_once(batch: Sequence[MatchedEvent]) -> list[Sequence[MatchedEvent]]:
        nonlocal splits
        splits += 1
        return [batch[:1]] if splits == 1 else [batch]

    seen = Seen()
    reader = consumer(database)
    reader.handle(seen, name="h", retries=retries, split_by=lose_once)

    async with consuming(database, reader):
        await landed_and_matched(database, "a", "b")
        await seen.until_calls(1)
        await until_handled(database)
        await until(database, NONE_KEPT)

    assert seen.batches == [[("a", 1), ("b", 1)]]


@pytest.mark.slow
async def test_a_retry_that_takes_too_long_has_failed(database: Database) -> None:
    async def hang(batch: Sequence[MatchedEvent]) -> None:
        await asyncio.Event().wait()

    reader = consumer(database)
    reader.handle(Seen(hang), name="h", retries=[SOON], timeout=0.02)

    async with consuming(database, reader):
        await landed_and_matched(database, "a")
        await until(database, DEAD, 1)

    async with database.session() as session:
        (dead,) = await DeadLetters(session).list("g")
    assert "no end after 0.02 s" in dead.error


@pytest.mark.slow
async def test_a_batch_whose_handler_has_lost_its_retries_since_is_still_handled(database: Database) -> None:
    first = consumer(database)
    first.handle(failing(1), name="h", retries=[SOON])
    async with consuming(database, first):
        await landed_and_matched(database, "a")
        await until(database, "SELECT EXISTS (SELECT FROM projections.group_retries)")
    seen = Seen()
    second = consumer(database)
    second.handle(seen, name="h")

    async with consuming(database, second):
        await until(database, NONE_KEPT)


@pytest.mark.slow
async def test_an_error_that_can_not_be_stored_as_it_is_does_not_lose_the_batch(database: Database) -> None:
    async def fail(batch: Sequence[MatchedEvent]) -> None:
        raise Failure("\0 \ud800 " + "x" * 5000)

    reader = consumer(database)
    reader.handle(Seen(fail), name="h", retries=[0])

    async with consuming(database, reader):
        await landed_and_matched(database, "a")
        await until(database, DEAD, 1)


async def test_no_batch_that_is_kept_is_empty(database: Database) -> None:
    async with database.session() as session:
        await subscribe(session, "g")

        with pytest.raises(InvalidSubscription, match="a batch has matches"):
            await fail_batch(session, "g", "h", encode_batch([]), attempts=1, error="e", delay=SOON)


async def test_a_batch_of_a_group_that_is_not_there_is_refused(database: Database) -> None:
    async with database.session() as session:
        with pytest.raises(NotFound, match="there is no group 'nobody'"):
            await fail_batch(session, "nobody", "h", "[]", attempts=1, error="e", delay=SOON)


async def test_what_a_reader_failed_on_after_it_lost_its_range_is_not_kept(database: Database) -> None:
    async with database.session() as session:
        await subscribe(session, "g")
        (held,) = await poll_group(session, "g", "late", timedelta(seconds=10))
        await rescale_group(session, "g", 2)

        with pytest.raises(RangeLost):
            await fail_batch(
                session, "g", "h", '[{"match_id": 1}]', attempts=1, error="e", delay=SOON, held=held
            )

        assert await DeadLetters(session).list("g", waiting=True) == []


async def test_a_batch_is_kept_once_and_another_between_the_same_two_matches_beside_it(
    database: Database,
) -> None:
    batch, longer = (
        '[{"match_id": 1}, {"match_id": 9}]',
        '[{"match_id": 1}, {"match_id": 5}, {"match_id": 9}]',
    )
    async with database.session() as session:
        await subscribe(session, "g")
        for matches in (batch, batch, longer):
            await fail_batch(session, "g", "h", matches, attempts=1, error="e", delay=timedelta(hours=1))

        assert [kept.events for kept in await DeadLetters(session).list("g", waiting=True)] == [2, 3]


async def test_a_batch_that_was_taken_is_not_taken_by_another_until_its_lease_ends(
    database: Database,
) -> None:
    hour = timedelta(hours=1)
    async with database.session() as session:
        await subscribe(session, "g")
        await fail_batch(session, "g", "h", '[{"match_id": 1}]', attempts=1, error="e", delay=timedelta(0))

        (taken,) = await take_retries(session, "g", ["h"], timedelta(microseconds=1), 9)
        (again,) = await take_retries(session, "g", ["h"], hour, 9)

        assert again._replace(taken_until=taken.taken_until) == taken
        assert await take_retries(session, "g", ["h"], hour, 9) == []


@pytest.mark.slow
async def test_many_failures_at_once_are_all_kept_and_all_come_again(database: Database) -> None:
    async def fail_first(batch: Sequence[MatchedEvent]) -> None:
        if failed.events.count(failed.events[-1]) == 1:
            raise Failure("no")

    failed = Seen(fail_first)
    reader = consumer(database, page_size=10)
    reader.handle(failed, name="h", batch=1, retries=[SOON])

    async with consuming(database, reader):
        for _ in range(5):
            await landed(database, *"abcdefghij")
        await match_all(database)
        await until_handled(database)
        await until(database, NONE_KEPT)

    assert len(failed.events) == 100
    assert len(set(failed.events)) == 50
