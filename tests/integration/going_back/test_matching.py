"""Matching, listening and streams whose database goes back in time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from journal import Database, DatabaseWentBack, PollPacing
from projections.subscriptions import Listener, ListenerSettings, Matching, SubscriptionLost, unsubscribe
from projections.subscriptions.matching import _Interests
from tests.fixtures.going_back import go_back, remember
from tests.fixtures.matching import subscribe
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.sse import asked, left_after, quick, streaming
from tests.fixtures.subscriptions import landed, landed_and_matched

QUICK = ListenerSettings(pacing=PollPacing(timedelta(milliseconds=1), timedelta(milliseconds=5)))
SUBSCRIBED = "SELECT subscription_id FROM projections.subscriptions"


async def test_what_subscriptions_want_is_read_again_where_a_number_is_another_subscription(
    database: Database,
) -> None:
    await remember(database)
    first = await subscribe(database, topics=["a"])
    interests = _Interests()
    async with database.session() as session:
        assert await interests.of(session, {("plane", "b")}) == []
        await go_back(database)
        assert await subscribe(database, topics=["b"]) == first

        assert await interests.of(session, {("plane", "b")}) == [f"(,b,1,{{{first}}},plane)"]


async def test_a_condition_that_is_another_changes_the_state_of_subscriptions(database: Database) -> None:
    await remember(database)
    states = set()
    for condition in ("e.seq_nr > 1", "e.seq_nr > 2"):
        await subscribe(database, condition)
        states.add(await fetchval(database, "SELECT projections._subscriptions_state_v1()"))
        await execute(database, "DROP SCHEMA projections_conditions CASCADE")
        await execute(database, "CREATE SCHEMA projections_conditions")
        await execute(database, "GRANT ALL ON SCHEMA projections_conditions TO PUBLIC")
        await go_back(database)

    assert len(states) == 2


async def test_matching_begins_again_where_the_database_does_not_know_it(
    database: Database,
) -> None:
    matching = Matching()
    await remember(database)
    begun = "SELECT name FROM projections.projections"
    for _ in range(2):
        await landed(database, "a")
        async with database.session() as session:
            assert [one.name for one in await matching.tend(session)] == ["matching"]
        assert await fetchval(database, begun) == "matching"
        await go_back(database)
        assert await fetchval(database, begun) is None


@pytest.mark.slow
async def test_one_who_listens_learns_that_what_it_was_given_is_gone(database: Database) -> None:
    async with Listener(database, "l", settings=QUICK) as listener, listener.listen() as events:
        await landed_and_matched(database, "a")
        assert (await anext(events)).envelope.source_id == "a"
        await remember(database)
        await landed_and_matched(database, "b")
        assert (await anext(events)).envelope.source_id == "b"
        await go_back(database)
        await landed_and_matched(database, "c")  # with the number that b had
        await landed_and_matched(database, "d")

        with pytest.raises(DatabaseWentBack, match="the database went back in time: match 2 of group 'l'"):
            await anext(events)
        async with listener.listen() as again:
            await landed_and_matched(database, "e")
            assert (await anext(again)).envelope.source_id == "e"


async def test_one_who_listens_goes_on_where_what_it_was_given_is_there(database: Database) -> None:
    async with Listener(database, "l", settings=QUICK) as listener, listener.listen() as events:
        await landed_and_matched(database, "a")
        assert (await anext(events)).envelope.source_id == "a"
        await remember(database)
        await go_back(database)
        await landed_and_matched(database, "b")

        assert (await anext(events)).envelope.source_id == "b"


async def test_one_who_listens_learns_that_its_subscription_is_another(database: Database) -> None:
    settings = QUICK.model_copy(update={"keep_every": timedelta(milliseconds=20)})
    async with (
        Listener(database, "l", settings=settings) as listener,
        listener.listen(topics=["Never"]) as first,
    ):
        await remember(database)
        async with listener.listen(topics=["Landed"]) as events:
            await go_back(database)
            async with database.transaction() as session:
                number = await session.fetchval(
                    "SELECT projections.subscribe_v1('l', p_topics => '{Other}', p_reliable => FALSE)"
                )
            assert number == events.subscription_id
            with pytest.raises(SubscriptionLost):
                async with asyncio.timeout(300):
                    await anext(events)
        assert not first.ended.is_set()
        assert await fetchval(database, SUBSCRIBED + " WHERE topics = '{Never}'") == first.subscription_id


@pytest.mark.slow
async def test_a_client_whose_last_event_is_gone_is_refused_and_told_why(database: Database) -> None:
    async with streaming(database) as (_, port):
        await left_after(port)
        await remember(database)
        await landed_and_matched(database, "a")
        async with asked(port) as client:
            await client.block()
            await landed_and_matched(database, "b")
            await client.events(1)
            await go_back(database)
            await landed_and_matched(database, *"cdefg")
            assert [block.data for block in await client.rest()] == [None]

        async with asked(port, last_id=client.last_id) as again:
            assert again.status == 409
            assert b"it went back in time, by a fail-over or a restore" in await again.body()


@pytest.mark.slow
async def test_a_client_whose_last_event_is_there_goes_on_after_it(database: Database) -> None:
    async with streaming(database, settings=quick()) as (_, port):
        async with asked(port) as client:
            await client.block()
            await landed_and_matched(database, "a")
            assert await client.places(1) == [("a", 1)]
        await remember(database)
        await landed_and_matched(database, "b")
        await go_back(database)
        await landed_and_matched(database, "c")

        async with asked(port, last_id=client.last_id) as again:
            assert await again.places(1) == [("c", 1)]


async def test_a_subscription_that_was_made_again_with_its_number_is_not_gone_on_with(
    database: Database,
) -> None:
    async with streaming(database) as (stream, port):
        last_id = await left_after(port)
        number = await fetchval(database, SUBSCRIBED)
        async with database.session() as session:
            await unsubscribe(session, number)
        await execute(database, "ALTER TABLE projections.subscriptions ALTER subscription_id RESTART WITH 1")
        await landed_and_matched(database, "missed")

        async with asked(port, last_id=last_id) as client:
            assert client.status == 204
        assert await fetchval(database, SUBSCRIBED) == number
        assert stream.clients == 0
