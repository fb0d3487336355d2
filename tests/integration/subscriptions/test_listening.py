"""Listening: who gets what, from when on, until when."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from journal import (
    ConnectionSettings,
    Database,
    EntityTypes,
    Event,
    OwnedSession,
    PollPacing,
    append,
    connect,
)
from journal.polling import Polled, WritersPoller, shared_poller
from journal.tasks import running
from projections import run
from projections.subscriptions import (
    InvalidSubscription,
    Listener,
    ListenerSettings,
    MatchedEvent,
    Matching,
    SubscriptionLost,
    live_reader,
    subscribe,
)
from projections.subscriptions.errors import InvalidCondition, ListenerClosed, ListenerTooSlow
from projections.subscriptions.listening import Listening
from projections.subscriptions.reading import SettledMatches, settled_matches
from projections.subscriptions.settled_matches import Settled
from tests.fixtures.projections import each_once, execute, fetchval, until
from tests.fixtures.proxy import proxy_to
from tests.fixtures.subscriptions import landed, landed_and_matched, match_all

QUICK = ListenerSettings(pacing=PollPacing(timedelta(milliseconds=1), timedelta(milliseconds=5)))


@pytest.fixture
async def listener(database: Database) -> AsyncIterator[Listener]:
    async with Listener(database, "feed", settings=QUICK) as listener:
        yield listener


async def take(listening: Listening, number: int) -> list[tuple[str, int]]:
    """The next matches, as (source, number)."""
    async with asyncio.timeout(300):
        return [place(await anext(listening)) for _ in range(number)]


def place(match: MatchedEvent) -> tuple[str, int]:
    return match.envelope.source_id, match.envelope.seq_nr


async def becomes(true: Callable[[], bool]) -> None:
    """Let everything else go on until something is so."""
    async with asyncio.timeout(300):
        while not true():
            await asyncio.sleep(0.001)


async def last_match(database: Database) -> int:
    async with database.session() as session:
        return await settled_matches(session)


async def test_a_loop_gets_what_is_committed_after_it_was_entered(
    database: Database, listener: Listener
) -> None:
    await landed_and_matched(database, "before")

    async with listener.listen(topics=["Landed"]) as matches:
        await landed_and_matched(database, "a", "b", "a", n=7)

        found = [await anext(matches) for _ in range(3)]

    assert [place(match) for match in found] == [("a", 1), ("a", 2), ("b", 1)]
    assert found[0].payload == {"n": 7}


@pytest.mark.slow
async def test_many_listen_over_one_connection_and_each_gets_its_own(
    database: Database, listener: Listener
) -> None:
    await landed(database, "warm")
    listenings = [listener.listen(contains={"n": number}) for number in range(150)]
    for listening in listenings:
        await listening.join()

    for number in range(150):
        await landed(database, f"plane-{number}", n=number)
    await match_all(database)

    found = [await take(listening, 1) for listening in listenings]
    assert found == [[(f"plane-{number}", 1)] for number in range(150)]
    assert await fetchval(database, "SELECT count(*) FROM projections.conditions") == 1
    assert (
        await fetchval(database, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        <= 3
    )


async def test_two_who_ask_for_the_same_share_a_subscription_and_get_all_of_it(
    database: Database, listener: Listener
) -> None:
    async with listener.listen(topics=["Landed"]) as one, listener.listen(topics=["Landed"]) as other:
        await landed_and_matched(database, "a", "a")

        assert await take(one, 2) == await take(other, 2) == [("a", 1), ("a", 2)]
        assert one.subscription_id == other.subscription_id


async def test_two_processes_that_share_a_group_both_get_all(database: Database, listener: Listener) -> None:
    async with (
        Listener(database, "feed", settings=QUICK) as elsewhere,
        listener.listen() as one,
        elsewhere.listen() as other,
    ):
        await landed_and_matched(database, "a", "b")

        assert await take(one, 2) == await take(other, 2) == [("a", 1), ("b", 1)]


@pytest.mark.slow
async def test_events_of_a_source_come_in_order_over_many_pages(dsn: str) -> None:
    settings = QUICK.model_copy(update={"page": 7})
    async with (
        connect(dsn) as database,
        Listener(database, "feed", settings=settings) as listener,
        listener.listen() as matches,
    ):
        for _ in range(10):
            await landed_and_matched(database, *"abcabcabc")

        found = await take(matches, 90)

    each_once(found, a=30, b=30, c=30)


@pytest.mark.slow
async def test_uncommitted_events_are_not_heard(database: Database, listener: Listener) -> None:
    async with listener.listen() as matches:
        async with database.transaction() as writing:
            await append(writing, [Event("open", {}, "plane", event_type="Landed")])
            await landed_and_matched(database, "a")
            first = await take(matches, 1)
        await execute(database, "DELETE FROM test_matched")
        await execute(
            database,
            "SELECT projections._match_log_v1('{plane}', ARRAY[e.source_id], ARRAY[e.seq_nr], ARRAY[e.db_timestamp], "
            "ARRAY[e.slice], ARRAY[e.event_type]) FROM projections.events AS e WHERE e.source_id = 'open'",
        )

        assert (first, await take(matches, 1)) == ([("a", 1)], [("open", 1)])


async def test_matching_that_commits_late_is_waited_for_and_not_jumped_over(
    database: Database, listener: Listener
) -> None:
    async with listener.listen() as matches, database.session() as late:
        await landed(database, "late")
        before = await last_match(database)
        await late.begin()
        await late.execute(
            "SELECT projections._match_log_v1('{plane}', ARRAY[e.source_id], ARRAY[e.seq_nr], ARRAY[e.db_timestamp], "
            "ARRAY[e.slice], ARRAY[e.event_type]) FROM projections.events AS e"
        )
        await execute(database, "CREATE TABLE test_matched (db_timestamp timestamptz)")
        await execute(database, "INSERT INTO test_matched SELECT now()")
        await landed_and_matched(database, "early")
        assert await last_match(database) == before
        assert await matches.take(1, 0.1) == []
        await late.commit()

        assert await take(matches, 2) == [("late", 1), ("early", 1)]


async def test_leaving_the_loop_forgets_the_listener(database: Database, listener: Listener) -> None:
    reader = listener._reader

    async def one_match() -> None:
        async for _ in listener.listen(topics=["Landed"]):
            break

    task = asyncio.create_task(one_match())
    await until(database, "SELECT count(*) = 1 FROM projections.subscriptions")
    await becomes(lambda: listener.position >= 0)
    await landed_and_matched(database, "a")
    await task

    await becomes(lambda: reader._task is None)
    assert not reader._known


async def test_an_exception_or_a_cancellation_in_the_loop_forgets_the_listener(
    database: Database, listener: Listener
) -> None:
    async def fail() -> None:
        async with listener.listen() as matches:
            entered.set()
            async for _ in matches:
                raise ZeroDivisionError

    entered = asyncio.Event()
    cancelled = asyncio.create_task(fail())
    await entered.wait()
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    assert not listener._reader._known

    entered = asyncio.Event()
    failing = asyncio.create_task(fail())
    await entered.wait()
    await landed_and_matched(database, "a")

    with pytest.raises(ZeroDivisionError):
        await failing
    assert not listener._reader._known


@pytest.mark.slow
async def test_one_that_nobody_refers_to_any_more_is_forgotten(listener: Listener) -> None:
    listening = listener.listen()
    await listening.join()
    assert len(listener._reader._known) == 1

    del listening
    gc.collect()

    await becomes(lambda: listener._reader._task is None)
    assert not listener._reader._known


async def test_an_iterator_goes_on_after_waiting_for_it_was_given_up(
    database: Database, listener: Listener
) -> None:
    async with listener.listen() as matches:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(matches), 0.02)
        await landed_and_matched(database, "a")

        assert await take(matches, 1) == [("a", 1)]


@pytest.mark.slow
async def test_who_is_too_slow_is_ended_and_the_others_go_on(database: Database, listener: Listener) -> None:
    async with listener.listen(buffer=10) as slow, listener.listen() as other:
        for _ in range(3):
            await landed_and_matched(database, *"abcde")

        assert len(await take(other, 15)) == 15
        with pytest.raises(ListenerTooSlow, match="10 matches of group 'feed' waited"):
            await anext(slow)
        assert slow.ended.is_set()
        await landed_and_matched(database, "f")
        assert await take(other, 1) == [("f", 1)]


async def test_a_burst_larger_than_the_buffer_reaches_one_who_takes_at_once(
    database: Database, listener: Listener
) -> None:
    async with listener.listen(buffer=4) as matches:
        reading = asyncio.create_task(take(matches, 300))
        await landed_and_matched(database, *"abc" * 100)

        each_once(await reading, a=100, b=100, c=100)


@pytest.mark.slow
async def test_a_lost_connection_loses_no_match(dsn: str, database: Database) -> None:
    async with (
        proxy_to(dsn) as proxy,
        connect(proxy.dsn) as behind,
        Listener(behind, "feed", settings=QUICK) as listener,
        listener.listen() as matches,
    ):
        await landed_and_matched(database, "a")
        before = await take(matches, 1)

        await execute(
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        await landed_and_matched(database, "a", "b")
        after = await take(matches, 2)

    assert before + after == [("a", 1), ("a", 2), ("b", 1)]


@pytest.mark.slow
async def test_a_connection_that_says_nothing_any_more_is_given_up_for_another(
    dsn: str, database: Database
) -> None:
    settings = QUICK.model_copy(update={"patience": timedelta(milliseconds=200)})
    async with (
        proxy_to(dsn) as proxy,
        connect(proxy.dsn) as behind,
        Listener(behind, "feed", settings=settings) as listener,
        listener.listen() as matches,
    ):
        proxy.forget_connections()
        await landed_and_matched(database, "a", "b")

        assert await take(matches, 2) == [("a", 1), ("b", 1)]


async def test_a_subscription_in_use_is_kept_and_expires_when_nobody_uses_it(database: Database) -> None:
    settings = QUICK.model_copy(
        update={"expires_after": timedelta(seconds=2), "keep_every": timedelta(milliseconds=10)}
    )
    old = "UPDATE projections.subscriptions SET active_at = now() - interval '1 hour'"
    kept = "SELECT count(*) = 1 FROM projections.subscriptions WHERE active_at > now() - interval '1 minute'"
    async with Listener(database, "feed", settings=settings) as listener, listener.listen():
        await execute(database, old)
        await until(database, kept)
    await execute(database, old)

    assert await fetchval(database, "SELECT projections._expire_subscriptions_v1()") == 1


async def test_whoever_matches_removes_what_nobody_uses(database: Database) -> None:
    """With what the guides run, and no maintenance."""
    async with Listener(database, "feed", settings=QUICK) as listener, listener.listen():
        kept = await subscribe_to(database, "kept")
    await execute(database, "UPDATE projections.subscriptions SET active_at = now() - interval '1 hour'")

    async with running(run(database, discovery=Matching())):
        await until(database, "SELECT array_agg(subscription_id) = $1 FROM projections.subscriptions", [kept])
        taken = "SELECT count(*) = 1 FROM projections.turns WHERE chore = 'subscriptions'"
        assert await fetchval(database, taken)


async def subscribe_to(database: Database, group: str) -> int:
    """A subscription that does not expire."""
    async with database.transaction() as session:
        return await subscribe(session, group, topics=["t"])


async def test_a_subscription_that_somebody_removed_ends_those_who_listen_to_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.subscriptions.live_reader._LOOK_EVERY", 0.01)
    async with (
        Listener(database, "feed", settings=QUICK) as listener,
        listener.listen(topics=["Landed"]) as matches,
        listener.listen(topics=["Started"]) as others,
    ):
        await execute(database, "SELECT projections.unsubscribe_v1($1)", matches.subscription_id)

        with pytest.raises(SubscriptionLost, match=f"subscription {matches.subscription_id} of group 'feed'"):
            await anext(matches)
        assert not others.ended.is_set()


@pytest.mark.slow
async def test_closing_lets_take_what_has_come_and_ends_the_loop(
    database: Database, listener: Listener
) -> None:
    async with listener.listen() as matches:
        await landed_and_matched(database, "a", "b")
        last = await last_match(database)
        await becomes(lambda: listener.position == last)
        await listener.close()

        assert [place(match) async for match in matches] == [("a", 1), ("b", 1)]
    with pytest.raises(ListenerClosed, match="'feed'"):
        await anext(listener.listen())


@pytest.mark.slow
async def test_a_reader_rests_while_nobody_listens_and_begins_anew(
    database: Database, listener: Listener
) -> None:
    async with listener.listen():
        pass
    await becomes(lambda: listener._reader._task is None)
    assert listener.position == -1
    await landed_and_matched(database, "unheard")

    async with listener.listen() as matches:
        await landed_and_matched(database, "heard")

        assert await take(matches, 1) == [("heard", 1)]


@pytest.mark.slow
async def test_a_listener_asks_nothing_while_others_of_its_process_poll_and_see_nothing_new(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    seldom = ListenerSettings(pacing=PollPacing(longest=timedelta(minutes=1)))
    counts: Counter[str] = Counter()
    hear, look = Settled._heard, live_reader.look

    def heard(self: Settled, polled: Polled) -> None:
        counts["polls"] += 1
        hear(self, polled)

    async def looked(session: OwnedSession) -> SettledMatches:
        counts["looks"] += 1
        return await look(session)

    async def poll(poller: WritersPoller) -> None:
        number = 0
        while True:
            number = (await poller.look("test", EntityTypes.of("plane"), datetime.now(UTC), number, 0)).number

    monkeypatch.setattr(Settled, "_heard", heard)
    monkeypatch.setattr(live_reader, "look", looked)
    async with AsyncExitStack() as stack:
        poller = await stack.enter_async_context(shared_poller(database, PollPacing(), listen=False))
        await stack.enter_async_context(running(poll(poller)))
        listener = await stack.enter_async_context(Listener(database, "feed", settings=seldom))
        matches = await stack.enter_async_context(listener.listen())
        await becomes(lambda: listener._reader._settled.is_current)
        counts.clear()
        await becomes(lambda: counts["polls"] == 5)
        quiet = counts["looks"]
        await landed_and_matched(database, "heard")

        assert await take(matches, 1) == [("heard", 1)]
    assert quiet == 0


@pytest.mark.slow
async def test_an_idle_listener_asks_the_database_less_than_twenty_times_a_second(database: Database) -> None:
    assert 1 / ListenerSettings().pacing.longest.total_seconds() < 20
    async with Listener(database, "feed") as listener, listener.listen():
        reader = listener._reader
        await becomes(lambda: reader._pace.pause == 0.25)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        ({"topics": []}, InvalidSubscription, "topics"),
        ({"topics": "Landed"}, InvalidSubscription, "list of strings"),
        ({"condition": "e.nothing > 1"}, InvalidCondition, "nothing"),
        ({"condition": "pg_sleep(1) IS NULL"}, InvalidCondition, "pg_sleep"),
        ({"params": [1]}, InvalidSubscription, "mapping"),
        ({"buffer": 0}, InvalidSubscription, "buffer"),
    ],
)
async def test_what_can_not_be_listened_to_is_refused(
    listener: Listener, asked: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        await anext(listener.listen(**asked))


async def test_a_group_that_consumers_read_for_is_refused_and_not_subscribed(database: Database) -> None:
    async with database.session() as session:
        await subscribe(session, "orders", topics=["Ordered"])

    async with Listener(database, "orders", settings=QUICK) as listener:
        with pytest.raises(InvalidSubscription, match="'orders' is one that consumers read for"):
            await anext(listener.listen(topics=["Landed"]))

    assert await fetchval(database, "SELECT count(*) FROM projections.subscriptions") == 1


@pytest.mark.slow
async def test_a_grant_that_goes_ends_those_who_listen_with_an_error(database: Database, login: Any) -> None:
    from journal import MissingPrivilege

    dsn = login("projections_worker")
    async with (
        connect(dsn, ConnectionSettings(max_connections=3)) as pool,
        Listener(pool, "feed", settings=QUICK) as listener,
        listener.listen() as matches,
    ):
        await execute(
            database,
            "REVOKE EXECUTE ON FUNCTION projections.settled_matches_v1 FROM projections_worker, projections_reader",
        )

        with pytest.raises(MissingPrivilege, match="settled_matches_v1"):
            await anext(matches)


def test_settings_under_which_subscriptions_would_expire_in_use_are_refused() -> None:
    with pytest.raises(ValueError, match="expire in use"):
        ListenerSettings(expires_after=timedelta(minutes=1), keep_every=timedelta(minutes=1))
