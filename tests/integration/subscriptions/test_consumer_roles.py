"""What consumers and publishers may be: the roles that their logins need, and no more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from journal import Database, MissingPrivilege, connect
from projections.subscriptions import (
    Consumer,
    DeadLetters,
    Publisher,
    PublishFailed,
    publish,
    rescale_group,
    subscribe,
)
from tests.fixtures.projections import Failure, until
from tests.fixtures.subscriptions import Seen, consuming, landed_and_matched, peek, quick, until_handled

DEAD = "SELECT EXISTS (SELECT FROM projections.group_retries WHERE due_at IS NULL)"


async def test_a_worker_may_subscribe_consume_fail_and_decide(
    database: Database, login: Callable[[str | None], str]
) -> None:
    async def fail(batch: object) -> None:
        raise Failure("no")

    seen = Seen()
    async with connect(login("projections_worker")) as own:
        reader = Consumer(own, "g", settings=quick())
        reader.handle(seen, name="h", condition="e.seq_nr > 0", expires_after=timedelta(hours=1))
        reader.handle(Seen(fail), name="failing", retries=[0])
        async with consuming(database, reader):
            await landed_and_matched(database, "a")
            await until(database, DEAD)
            await until_handled(database)
        async with own.session() as session:
            (dead,) = await DeadLetters(session).list("g")
            assert await DeadLetters(session).retry("g", dead.retry_id) == 1
            assert await DeadLetters(session).drop("g", dead.retry_id, waiting=True) == 1
            await rescale_group(session, "g", 2)
            assert len(await peek(session, "g")) == 0

    assert seen.events == [("a", 1)]


async def test_a_writer_may_publish_and_not_subscribe(
    database: Database, login: Callable[[str | None], str]
) -> None:
    async with database.session() as session:
        to = await subscribe(session, "g")

    async with connect(login("projections_writer")) as own:
        async with Publisher(own, "p") as publisher:
            await publisher.publish("t", 1)
        async with own.session() as session:
            await publish(session, "t", 2, publisher="p", subscription_id=to)
            with pytest.raises(MissingPrivilege):
                await subscribe(session, "g")


async def test_a_reader_may_look_and_not_publish(
    database: Database, login: Callable[[str | None], str]
) -> None:
    async with database.session() as session:
        await subscribe(session, "g")
    await landed_and_matched(database, "a")

    async with connect(login("projections_reader")) as own:
        async with own.session() as session:
            assert [match.match_id for match in await peek(session, "g")] == [1]
            assert await DeadLetters(session).list("g") == []
        publisher = Publisher(own, "p")
        accepted = await publisher.publish("t", 1)
        with pytest.raises(MissingPrivilege):
            await accepted
        with pytest.raises(PublishFailed, match="1 of what it had accepted"):
            await publisher.close()
