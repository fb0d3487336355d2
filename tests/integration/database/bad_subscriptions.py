"""Bad input, continued from bad_input.py: subscriptions, groups, handlers of consumers, and publishing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, cast

from journal import Database, Session, SliceRange
from projections.subscriptions import Consumer, MatchedEvent, create_group, publish, subscribe
from projections.subscriptions.groups import move_cursor, poll_group
from tests.fixtures.subscriptions import cursors_of, landed_and_matched, quick, read_next
from tests.integration.database.bad_input import Bench, case, told

_KEPT = (
    "SELECT (SELECT count(*) FROM projections.subscriptions) + (SELECT count(*) FROM projections.conditions)"
    " + (SELECT count(*) FROM projections.events)"
)


def refused(what: str, work: Callable[[Session], Awaitable[Any]]) -> None:
    """A case that the database, or what is before it, refuses: nothing comes of it."""

    @case(what)
    async def attempt(bench: Bench) -> str:
        async def alone(database: Database) -> None:
            async with database.transaction() as session:
                await work(session)

        async with bench.connect() as database:
            message = await told(alone(database))
            async with database.session() as session:
                assert await session.fetchval(_KEPT) == 0
        return message


def refused_subscription(what: str, group: str = "g", **options: Any) -> None:
    refused(what, lambda session: subscribe(session, group, **options))


refused_subscription("a condition that is not SQL", condition="e.topic = = 'a'")
refused_subscription("a condition on a column that is not there", condition="e.colour = 'red'")
refused_subscription("a condition that is not boolean", condition="e.seq_nr + 1")
refused_subscription("an empty condition", condition=" ")
refused_subscription("a condition of two statements", condition="true; DROP TABLE x")
refused_subscription("a condition that reads a table", condition="EXISTS (SELECT FROM projections.sources)")
refused_subscription("a condition that calls what may do harm", condition="pg_sleep(1) IS NULL")
refused_subscription("params that are not an object", params=["a"])
refused_subscription("contents with an operator", contains={"amount": [{"$gte": 100}]})
refused_subscription("params of 1 MB", params={"a": "x" * 1_000_000})
refused_subscription("an empty list of topics", topics=[])
refused_subscription("topics with two stars within a segment", topics=["user**"])
refused_subscription("topics that are one string", topics="a")
refused_subscription("two entity types in one text", entity_types=["k,r"])
refused_subscription("the past for a group that only listens", "l", reliable=False, start="beginning")
refused_subscription("a time to expire that is none", expires_after=60)
refused_subscription("an empty group name", "")
refused_subscription("a group name of 256 characters", "x" * 256)
refused("a group that is not there", lambda session: poll_group(session, "g", "me", timedelta(seconds=9)))
refused(
    "a page of -1 matches",
    lambda session: read_next(session, "g", SliceRange(0, 1023), after=0, until=9, limit=-1),
)
refused(
    "an event for a subscription that is not there",
    lambda session: publish(session, "t", 1, subscription_id=7),
)


async def _other_start(session: Session) -> None:
    await create_group(session, "g")
    await create_group(session, "g", start="beginning")


refused("another start for a group that is there", _other_start)
refused("a topic that is a pattern", lambda session: publish(session, "order.*", 1))
refused("an empty topic", lambda session: publish(session, "", 1))


@case("a reader by the name of one of another group")
async def _(bench: Bench) -> str:
    async with bench.connect() as database, database.session() as session:
        for group in ("g", "h"):
            await subscribe(session, group)
        await poll_group(session, "g", "me", timedelta(seconds=9))
        return await told(poll_group(session, "h", "me", timedelta(seconds=9)))


@case("a cursor of another group")
async def _(bench: Bench) -> str:
    async with bench.connect() as database, database.session() as session:
        for group in ("g", "h"):
            await subscribe(session, group)
        await landed_and_matched(database, "a")
        (held,) = await poll_group(session, "g", "me", timedelta(seconds=9))
        (others,) = await read_next(session, "h", held.slices, after=0, until=9, limit=9)
        message = await told(move_cursor(session, "g", held, others.match_id))
        assert await cursors_of(database) == [0]
    return message


async def _nothing(batch: Sequence[MatchedEvent]) -> None:
    """A handler."""


def refused_handler(what: str, *names: str, **options: Any) -> None:
    @case(what)
    async def attempt(bench: Bench) -> str:
        consumer = Consumer(cast("Database", None), "g")

        async def register() -> None:
            for name in names:
                consumer.handle(_nothing, name=name, **options)

        return await told(register())


refused_handler("an empty list of retries", "h", retries=[])
refused_handler("a negative pause of a retry", "h", retries=[60, -1])
refused_handler("a timeout that is not a time", "h", timeout="soon")
refused_handler("a handler registered twice", "h", "h")


@case("a handler of a consumer that raises")
async def _(bench: Bench) -> str:
    stop, came = asyncio.Event(), []
    async with bench.connect() as database:
        consumer = Consumer(database, "g", settings=quick())

        @consumer.handle(name="mails")
        async def mails(batch: Sequence[MatchedEvent]) -> None:
            came.append(batch)
            if len(came) == 1:
                raise LookupError("no such mail")
            stop.set()

        async with database.transaction() as session:
            await subscribe(session, "g")
        await landed_and_matched(database, "a")
        await consumer.run(stop)
        assert await cursors_of(database) == [1]
    return bench.logged("failed")
