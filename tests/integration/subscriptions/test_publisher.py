"""Publishing: in the caller's transaction, and by a publisher that gathers and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import create_async_engine

from journal import (
    ConnectionSettings,
    Database,
    DatabaseUnavailable,
    EventIdConflict,
    InvalidEvent,
    RawJson,
    connect,
)
from projections import Backoff
from projections.subscriptions import (
    Consumer,
    InvalidSubscription,
    Publication,
    Publisher,
    PublisherSettings,
    PublishFailed,
    publish,
    publish_all,
    subscribe,
)
from projections.subscriptions.publisher import AcceptedPayload, new_event_id
from projections.subscriptions.publishing import publish_rows
from tests.fixtures.journal import stored
from tests.fixtures.projections import execute, fetchval, until
from tests.fixtures.proxy import proxy_to
from tests.fixtures.subscriptions import Seen, consuming, match_all, quick

COUNT = "SELECT count(*) FROM projections.events"
QUICK = Backoff(timedelta(milliseconds=5), timedelta(milliseconds=20))


def eager(**values: Any) -> PublisherSettings:
    return PublisherSettings(**{"within": timedelta(0), "restart": QUICK} | values)


@pytest.fixture(params=["asyncpg", "psycopg"])
async def with_each_driver(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(driver=request.param)) as database:
        yield database


async def on_asyncpg(dsn: str, call: Callable[[Any], Awaitable[Any]]) -> None:
    connection = await asyncpg.connect(dsn)
    async with connection.transaction():
        await call(connection)
    await connection.close()


async def on_psycopg(dsn: str, call: Callable[[Any], Awaitable[Any]]) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await call(connection)


async def on_sqlalchemy(dsn: str, call: Callable[[Any], Awaitable[Any]]) -> None:
    engine = create_async_engine(dsn.replace("postgresql://", "postgresql+psycopg://", 1))
    async with engine.begin() as connection:
        await call(connection)
    await engine.dispose()


@pytest.mark.slow
@pytest.mark.parametrize("on", [on_asyncpg, on_psycopg, on_sqlalchemy])
async def test_it_publishes_in_the_transaction_of_any_driver(dsn: str, database: Database, on: Any) -> None:
    later = datetime(2100, 1, 1, tzinfo=UTC)
    async with database.session() as session:
        to = await subscribe(session, "g")

    async def call(connection: Any) -> None:
        await publish(connection, "t", {"n": 1}, publisher="p", metadata={"by": "me"})
        await publish_all(
            connection,
            [Publication("t", RawJson("[ 2.0 ]")), Publication("u", 3, subscription_id=to, not_before=later)],
            publisher="p",
        )

    await on(dsn, call)

    events = await stored(database, "publisher/p")
    assert [(e.seq_nr, e.event_type, e.payload_json) for e in events] == [
        (1, "t", '{"n":1}'), (2, "t", "[ 2.0 ]"), (3, "u", "3"),
    ]  # fmt: skip
    assert (events[0].entity_type, events[0].metadata) == ("published", {"by": "me"})
    directed = (
        "SELECT seq_nr = 3 AND subscription_id = $1 AND not_before = $2 FROM projections.directed_events"
    )
    assert await fetchval(database, directed, to, later)


async def test_what_is_rolled_back_was_never_published(database: Database) -> None:
    async def publish_and_fail() -> None:
        async with database.transaction() as session:
            await publish(session, "t", 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await publish_and_fail()

    assert await fetchval(database, COUNT) == 0


async def test_the_same_again_by_its_id_is_stored_once_and_other_content_is_refused(
    database: Database,
) -> None:
    event_id = new_event_id()
    async with database.session() as session:
        places = [await publish(session, "t", 1, event_id=event_id) for _ in range(2)]

        with pytest.raises(EventIdConflict):
            await publish(session, "t", 2, event_id=event_id)

    assert places[0] == places[1]
    assert await fetchval(database, COUNT) == 1


async def test_a_subscription_that_is_not_there_is_named(database: Database) -> None:
    async with database.session() as session:
        for number in (77, 0, -1):
            with pytest.raises(InvalidSubscription, match=f"there is no subscription {number}"):
                await publish(session, "t", 1, subscription_id=number)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "a..b"}, "the topic 'a..b' has an empty segment"),
        ({"subscription_id": "7"}, "subscription_id must be a number of 64 bits, not '7'"),
        ({"subscription_id": 10**30}, "subscription_id must be a number of 64 bits, not 1000"),
        ({"not_before": "soon"}, "not_before must be a datetime, not 'soon'"),
        ({"not_before": datetime(2026, 1, 1)}, "not_before has no zone: 2026-01-01T00:00:00"),  # noqa: DTZ001
        ({"event_id": "x"}, "event_id must be a UUID, not 'x'"),
    ],
)
def test_what_can_not_be_published_is_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidEvent, match=message):
        Publication(**{"topic": "t", "payload": 1, **options}).row()


async def test_nothing_to_publish_is_nothing_to_do(database: Database) -> None:
    async with database.session() as session:
        assert await publish_all(session, []) == []


def test_made_ids_are_of_version_7_and_of_now() -> None:
    made = new_event_id()

    at = datetime.fromtimestamp((made.int >> 80) / 1000, UTC)
    assert (made.version, made.variant) == (7, UUID(int=2 << 62).variant)
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=5)


@pytest.mark.slow
async def test_a_publisher_keeps_the_order_in_which_it_accepted(with_each_driver: Database) -> None:
    database = with_each_driver
    settings = PublisherSettings(batch=7, buffer=20)

    async with Publisher(database, "p", settings=settings) as publisher:
        for number in range(100):
            await publisher.publish("t", number)

    assert [event.payload for event in await stored(database, "publisher/p")] == list(range(100))


async def test_a_batch_is_a_transaction_of_at_most_so_many(database: Database) -> None:
    settings = PublisherSettings(batch=10, within=timedelta(minutes=5))
    async with Publisher(database, "p", settings=settings) as publisher:
        accepted = [await publisher.publish("t", number) for number in range(25)]
        await accepted[19]
        assert await fetchval(database, COUNT) == 20

    assert await fetchval(database, "SELECT count(DISTINCT xmin::text) FROM projections.events") == 3


async def test_what_waits_is_stored_after_a_while_without_more(database: Database) -> None:
    async with Publisher(database, "p") as publisher:
        accepted = await publisher.publish("t", 1)

        assert (await accepted).seq_nr == 1


async def test_a_flush_stores_what_waits_at_once(database: Database) -> None:
    settings = PublisherSettings(within=timedelta(minutes=5))
    async with Publisher(database, "p", settings=settings) as publisher:
        await publisher.flush()
        for number in range(3):
            await publisher.publish("t", number)

        await publisher.flush()

        assert await fetchval(database, COUNT) == 3


@pytest.mark.slow
async def test_closing_stores_all_that_was_accepted(database: Database) -> None:
    publisher = Publisher(database, "p", settings=PublisherSettings(within=timedelta(minutes=5)))
    for number in range(3000):
        await publisher.publish("t", number)

    await publisher.close()
    await publisher.close()

    assert await fetchval(database, COUNT) == 3000
    with pytest.raises(PublishFailed, match="is closed"):
        await publisher.publish("t", 1)


async def publish_and_fail(publisher: Publisher, **options: Any) -> None:
    """Publish, and have the block raise an error of its own."""
    async with publisher:
        await publisher.publish("t", 1, **options)
        raise ZeroDivisionError


async def test_an_error_of_the_block_does_not_lose_what_was_accepted(database: Database) -> None:
    settings = PublisherSettings(within=timedelta(minutes=5))

    with pytest.raises(ZeroDivisionError):
        await publish_and_fail(Publisher(database, "p", settings=settings))

    assert await fetchval(database, COUNT) == 1


async def test_a_cancelled_close_goes_on_storing(database: Database) -> None:
    publisher = Publisher(database, "p", settings=eager())
    async with database.session() as blocker:
        await blocker.begin()
        await blocker.execute("LOCK TABLE projections.sources IN EXCLUSIVE MODE")
        accepted = await publisher.publish("t", 1)
        closing = asyncio.create_task(publisher.close())
        await asyncio.wait([closing], timeout=0.05)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await blocker.rollback()

    assert (await accepted).seq_nr == 1
    await publisher.close()


async def test_whoever_stops_waiting_takes_nothing_back(database: Database) -> None:
    async with Publisher(database, "p", settings=PublisherSettings(within=timedelta(minutes=5))) as publisher:
        task = asyncio.create_task(waiting(await publisher.publish("t", 1)))
        await asyncio.wait([task], timeout=0.01)
        task.cancel()
        await asyncio.wait([task])

    assert task.cancelled()
    assert await fetchval(database, COUNT) == 1


async def test_a_full_buffer_makes_publishers_wait_in_their_order(database: Database) -> None:
    publisher = Publisher(database, "p", settings=eager(batch=2, buffer=2))
    async with database.session() as blocker:
        await blocker.begin()
        await blocker.execute("LOCK TABLE projections.sources IN EXCLUSIVE MODE")
        for number in range(2):
            await publisher.publish("t", number)
        waiting = [asyncio.create_task(publisher.publish("t", number)) for number in range(2, 6)]

        done, _ = await asyncio.wait(waiting, timeout=0.1)

        assert not done
        await blocker.rollback()
    await asyncio.gather(*waiting)
    await publisher.close()
    assert [event.payload for event in await stored(database, "publisher/p")] == list(range(6))


async def test_the_next_batch_is_on_its_way_before_those_who_waited_for_room_go_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    async def storing(*asked: Any) -> Any:
        seen.append("storing")
        return await publish_rows(*asked)

    async def one_more() -> None:
        await publisher.publish("t", 4)
        seen.append("accepted")

    monkeypatch.setattr("projections.subscriptions.publisher.publish_rows", storing)
    async with Publisher(database, "p", settings=eager(batch=2, buffer=4)) as publisher:
        for number in range(4):
            await publisher.publish("t", number)
        await one_more()

    assert seen == ["storing", "storing", "accepted", "storing"]


async def test_what_is_at_fault_fails_alone_and_is_told_to_all_who_ask(database: Database) -> None:
    publisher = Publisher(database, "p", settings=PublisherSettings(within=timedelta(minutes=5)))
    accepted = [await publisher.publish("t", n, subscription_id=99 if n == 5 else None) for n in range(9)]

    with pytest.raises(PublishFailed, match="1 of what it had accepted could not be stored: there is no"):
        await publisher.flush()

    for number in range(9):
        if number != 5:
            await accepted[number]
    with pytest.raises(InvalidSubscription, match="there is no subscription 99"):
        await accepted[5]
    with pytest.raises(PublishFailed, match="1 of what it had accepted"):
        await publisher.close()
    assert [event.payload for event in await stored(database, "publisher/p")] == [0, 1, 2, 3, 4, 6, 7, 8]


async def test_an_error_of_the_block_is_not_hidden_by_what_could_not_be_stored(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ZeroDivisionError):
        await publish_and_fail(Publisher(database, "p"), subscription_id=99)

    assert "1 of what it had accepted could not be stored" in caplog.text


WAITING_PUBLISHER = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%publish_v1%'
"""


@pytest.mark.slow
@pytest.mark.parametrize("stored_before", [False, True])
async def test_a_batch_whose_outcome_is_unknown_is_stored_once(
    dsn: str, database: Database, *, stored_before: bool
) -> None:
    async with proxy_to(dsn) as proxy, connect(proxy.dsn) as far, database.session() as blocker:
        publisher = Publisher(far, "p", settings=PublisherSettings(batch=50, restart=QUICK))
        await blocker.begin()
        await blocker.execute("LOCK TABLE projections.sources IN EXCLUSIVE MODE")
        for number in range(50):
            await publisher.publish("t", number)
        await until(database, f"SELECT EXISTS ({WAITING_PUBLISHER})")

        proxy.forget_connections()
        if not stored_before:
            await execute(
                database, f"SELECT pg_terminate_backend(w.pid, 5000) FROM ({WAITING_PUBLISHER}) AS w"
            )
        await blocker.rollback()
        await until(database, "SELECT count(*) = $1 FROM projections.events", 50 if stored_before else 0)
        await proxy.close()
        await publisher.close()

    assert [event.payload for event in await stored(database, "publisher/p")] == list(range(50))


async def test_a_database_that_stays_away_fails_what_waits_after_a_while_and_says_so(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with proxy_to(dsn) as proxy, connect(proxy.dsn) as far:
        publisher = Publisher(far, "p", settings=eager(patience=timedelta(milliseconds=100)))
        await (await publisher.publish("t", 1))
        (Path(str(conninfo_to_dict(proxy.dsn)["host"])) / ".s.PGSQL.5432").unlink()
        await proxy.close()

        accepted = await publisher.publish("t", 2)

        with pytest.raises(DatabaseUnavailable):
            await accepted
        with pytest.raises(PublishFailed, match="1 of what it had accepted could not be stored"):
            await publisher.close()
    assert "publisher p: trying again in" in caplog.text


async def test_a_database_that_comes_back_in_time_gets_what_waited(dsn: str, database: Database) -> None:
    async with proxy_to(dsn) as proxy, connect(proxy.dsn) as far:
        publisher = Publisher(far, "p", settings=eager())
        await (await publisher.publish("t", 1))
        address = Path(str(conninfo_to_dict(proxy.dsn)["host"])) / ".s.PGSQL.5432"
        away = address.rename(address.with_suffix(".away"))
        await proxy.close()

        accepted = await publisher.publish("t", 2)
        await asyncio.wait([asyncio.ensure_future(waiting(accepted))], timeout=0.05)
        away.rename(address)

        assert (await accepted).seq_nr == 2
        await publisher.close()
    assert await fetchval(database, COUNT) == 2


async def waiting(accepted: AcceptedPayload) -> None:
    await accepted


@pytest.mark.slow
async def test_what_a_publisher_published_is_read_by_those_who_subscribed_to_the_topic(
    database: Database,
) -> None:
    seen = Seen()
    reader = Consumer(database, "g", settings=quick())
    reader.handle(seen, name="h", topics=["orders.*"])

    async with consuming(database, reader):
        async with Publisher(database, "p") as publisher:
            for number in range(20):
                await publisher.publish("orders.paid" if number % 2 else "other", number)
        await match_all(database)
        await seen.until_events(10)

    assert seen.events == [("publisher/p", n) for n in range(2, 21, 2)]
