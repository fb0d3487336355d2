"""The id of a message is one message's, whatever its source: by ``send`` and ``publish``, also at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from journal import (
    Appended,
    Database,
    EventIdConflict,
    append,
    connect,
    find_event,
    uuid7,
)
from projections.subscriptions import Publisher, publish, publish_sync, subscribe
from projections.webhooks import send, send_sync
from projections.webhooks.messages import message_event, message_uuid
from tests.fixtures.journal import event, pid, until_blocked
from tests.fixtures.pgbouncer import pooler
from tests.fixtures.postgres import Databases

ODD = ["", "'; DROP", "a\nb", "\u202e", "a" * 10_000, "{}", "\N{GRINNING FACE}"]


async def _send(session: Any, message_id: Any, name: str, payload: Any = 1) -> Appended:
    return await send(session, "acme", "t", payload, message_id=message_id, order_key=name)


async def _publish(session: Any, event_id: UUID, name: str, payload: Any = 1) -> Appended:
    return await publish(session, "t", payload, event_id=event_id, publisher=name)


_KEPT = "SELECT event_id FROM projections.message_ids WHERE event_id = ANY ($1)"
Store = Callable[..., Coroutine[Any, Any, Appended]]
both = pytest.mark.parametrize("store", [_send, _publish])


@pytest.fixture(scope="module")
def module_dsn(databases: Databases, template: str) -> Iterator[str]:
    with databases.fresh(template) as dsn:
        yield dsn


@pytest.fixture
async def database(module_dsn: str) -> AsyncIterator[Database]:
    async with connect(module_dsn) as pool:
        yield pool


async def _committed(database: Database, store: Store, *arguments: Any) -> Appended:
    async with database.transaction() as session:
        return await store(session, *arguments)


async def _until_it_waits(database: Database, of: int, waiting: asyncio.Task[Appended]) -> None:
    """Until a call waits for a lock; fails if it ends without having waited."""
    blocked = asyncio.create_task(until_blocked(database, [of]))
    await asyncio.wait([blocked, waiting], return_when=asyncio.FIRST_COMPLETED)
    blocked.cancel()
    assert not waiting.done(), "it has not waited"


def _id(store: Store, event_id: UUID) -> UUID:
    """The event's, which is the tenant's own where it was sent."""
    return message_uuid("acme", event_id) if store is _send else event_id


async def _number(database: Database, event_id: UUID) -> int:
    async with database.session() as session:
        return int(
            await session.fetchval("SELECT count(*) FROM projections.events WHERE event_id = $1", event_id)
        )


@both
async def test_the_same_again_under_another_name_is_the_first_result(
    database: Database, store: Store
) -> None:
    event_id = uuid4()

    first = await _committed(database, store, event_id, "a")
    second = await _committed(database, store, event_id, "b")

    assert second == first
    assert await _number(database, _id(store, event_id)) == 1
    async with database.session() as session:
        found = await find_event(session, _id(store, event_id))
        assert found is not None
        assert found.source_id == second.source_id
        assert await session.fetchval(
            "SELECT count(*) = 0 FROM projections.sources WHERE seq_nr = 0"
        )  # and none was made to no purpose


@both
async def test_other_content_under_another_name_is_a_conflict_that_names_both(
    database: Database, store: Store
) -> None:
    event_id = uuid4()
    first = await _committed(database, store, event_id, "a")

    with pytest.raises(EventIdConflict) as caught:
        await _committed(database, store, event_id, "b", 2)

    assert f"event_id {_id(store, event_id)} is stored with other content" in str(caught.value)
    assert f"it is event {first.seq_nr} of source '{first.source_id}'" in str(caught.value)
    assert ("publisher/b" if store is _publish else "webhooks/acme/") in str(caught.value)


@both
@pytest.mark.parametrize("payload", [1, 2])
@pytest.mark.parametrize("commits", [True, False])
async def test_who_comes_second_waits_for_the_first(
    database: Database, store: Store, payload: int, commits: bool
) -> None:
    event_id = uuid4()
    async with database.session() as first, database.session() as second:
        await first.begin()
        await second.begin()
        second_pid = await pid(second)
        one = await store(first, event_id, "a")
        waiting = asyncio.create_task(store(second, event_id, "b", payload))
        await _until_it_waits(database, second_pid, waiting)
        await (first.commit() if commits else first.rollback())
        if commits and payload == 2:
            with pytest.raises(EventIdConflict, match="is stored with other content"):
                await waiting
            await second.rollback()
        else:
            assert ((await waiting) == one) is commits
            await second.commit()

    assert await _number(database, _id(store, event_id)) == 1


@both
async def test_only_those_of_one_id_wait_for_each_other(database: Database, store: Store) -> None:
    """Nor does who waits for an id keep others from his source."""
    event_id = uuid4()
    async with database.session() as first, database.session() as second:
        await first.begin()
        await second.begin()
        second_pid = await pid(second)
        await store(first, event_id, "held")
        waiting = asyncio.create_task(store(second, event_id, "b"))
        await _until_it_waits(database, second_pid, waiting)

        await _committed(database, store, uuid4(), "b")
        await _committed(database, store, None, "b")

        await first.rollback()
        await waiting
        await second.commit()


@both
async def test_the_same_twice_in_a_transaction_is_stored_once(database: Database, store: Store) -> None:
    event_id = uuid4()
    async with database.transaction() as session:
        first, second = [await store(session, event_id, name) for name in "ab"]

    assert first == second


@both
async def test_who_reads_an_older_snapshot_is_told_to_try_again(
    database: Database, module_dsn: str, store: Store
) -> None:
    event_id = uuid4()

    def store_sync(connection: psycopg.Connection[Any], name: str) -> Appended:
        if store is _send:
            return send_sync(connection, "acme", "t", 1, message_id=event_id, order_key=name)
        return publish_sync(connection, "t", 1, event_id=event_id, publisher=name)

    with psycopg.connect(module_dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT 1")
        first = await _committed(database, store, event_id, "a")
        with pytest.raises(Exception, match="could not serialize access"):
            store_sync(connection, "b")
        connection.rollback()
        second = store_sync(connection, "b")

    assert second == first
    assert await _number(database, _id(store, event_id)) == 1


async def test_thousands_in_opposite_order_do_not_deadlock_and_are_stored_once(database: Database) -> None:
    """Far more than the locks that the server has room for, for each of its connections."""
    ids = [f"batch-{n}" for n in range(3000)]

    async def send_all(names: list[str], key: str) -> list[Appended]:
        events = [
            message_event("acme", "t", 1, message_id=name, order_key=f"{key}-{n}")
            for n, name in enumerate(names)
        ]
        async with database.transaction() as session:
            return await append(session, events)

    one, other = await asyncio.gather(send_all(ids, "a"), send_all(ids[::-1], "b"))

    assert sorted(one) == sorted(other)
    assert len({appended.event_id for appended in one}) == len(ids)


async def test_any_text_is_an_id(database: Database) -> None:
    made = [await _committed(database, _send, text, "a") for text in ODD]

    assert len({one.event_id for one in made}) == len(ODD)
    assert [await _committed(database, _send, text, "b") for text in ODD] == made


@both
async def test_an_id_whose_event_has_left_is_free_and_one_message_again(
    database: Database, store: Store
) -> None:
    event_id = uuid4()
    gone = await _committed(database, store, event_id, "a")
    async with database.session() as session:
        await session.execute("DELETE FROM projections.events WHERE event_id = $1", _id(store, event_id))

    async with database.session() as first, database.session() as second:
        await first.begin()
        await second.begin()
        second_pid = await pid(second)
        again = await store(first, event_id, "b", 2)
        waiting = asyncio.create_task(store(second, event_id, "c", 2))
        await _until_it_waits(database, second_pid, waiting)
        await first.commit()
        assert await waiting == again
        await second.commit()

    assert again != gone
    assert await _number(database, _id(store, event_id)) == 1


@pytest.mark.parametrize("message_id", ["m-1", uuid4(), uuid7(1_760_000_000_000, 7)])
async def test_an_id_is_a_message_of_its_tenant(database: Database, message_id: UUID | str) -> None:
    """Whatever others have sent under it; a UUID is the same id as its text."""
    async with database.transaction() as session:
        ours, theirs, again = [
            await send(session, tenant, "t", tenant, message_id=one)
            for tenant, one in (("ours", message_id), ("theirs", message_id), ("ours", str(message_id)))
        ]

    assert ours.event_id != theirs.event_id
    assert again == ours


async def test_events_of_applications_and_messages_without_ids_take_none(database: Database) -> None:
    async with database.transaction() as session:
        number = "SELECT count(*) FROM projections.message_ids"
        before = await session.fetchval(number)
        await append(session, [event(event_id=uuid4())])
        await _send(session, None, "a")
        await publish(session, "t", 1)

        assert await session.fetchval(number) == before


@pytest.mark.parametrize("kind", ["published", "webhook-message"])
async def test_plain_sql_stores_it_once(database: Database, kind: str) -> None:
    event_id = uuid4()
    async with database.transaction() as session:
        rows = [
            await session.fetchrow(
                "SELECT source_id, seq_nr, is_new FROM projections.append_events_v1($1, $2, $3, $4, p_event_ids => $5)",
                [source], [kind], ["t"], ["1"], [event_id],
            )
            for source in (f"{kind}/1", f"{kind}/2")
        ]  # fmt: skip

    assert [tuple(row.values()) for row in rows if row] == [
        (f"{kind}/1", 1, is_new) for is_new in (True, False)
    ]


async def test_publishers_of_other_names_store_it_once(database: Database) -> None:
    event_id = uuid4()
    async with Publisher(database, "p-1") as one, Publisher(database, "p-2") as other:
        accepted = [
            await publisher.publish("t", 1, event_id=event_id)
            for publisher in (one, other, one)
            for _ in "ab"
        ]
        places = {await stored for stored in accepted}

    assert len(places) == 1


async def test_what_was_published_is_not_directed_again(database: Database) -> None:
    event_id = uuid4()
    async with database.transaction() as session:
        to = await subscribe(session, "g")
        for name in ("directed-1", "directed-2", "directed-1"):
            await publish(session, "t", 1, event_id=event_id, publisher=name, subscription_id=to)

        directed = "SELECT count(*) FROM projections.directed_events WHERE subscription_id = $1"
        assert await session.fetchval(directed, to) == 1


async def test_ids_that_nobody_takes_any_more_are_removed(database: Database) -> None:
    old, new = uuid4(), uuid4()
    first = await _committed(database, _publish, old, "old-1")
    await _committed(database, _publish, new, "old-1")
    async with database.session() as session:
        await session.execute(
            "UPDATE projections.message_ids SET taken_at = now() - interval '2 hours' WHERE event_id = $1",
            old,
        )
        await session.execute("SELECT projections._clean_v1()")
        kept = {row["event_id"] for row in await session.fetch(_KEPT, [old, new])}

    assert kept == {new}
    assert await _committed(database, _publish, old, "old-2") == first


async def test_an_event_of_an_application_keeps_its_id(database: Database) -> None:
    """As ever: in sequence, an id of an event of another kind is taken, and the error says by which."""
    event_id = uuid4()
    async with database.transaction() as session:
        await append(session, [event("plane-1", event_id=event_id)])

    with pytest.raises(EventIdConflict, match="it is event 1 of source 'plane-1'"):
        await _committed(database, _publish, event_id, "a")


@pytest.mark.slow
async def test_a_pooler_that_lends_a_session_for_each_transaction_changes_nothing(
    database: Database, module_dsn: str
) -> None:
    """Nothing is left with the session that it lends to the next one."""
    async with pooler(module_dsn, "default_pool_size = 2") as address, connect(address) as pooled:
        for event_id in (uuid4(), uuid4()):
            answers = await asyncio.gather(
                *(_committed(pooled, _publish, event_id, name) for name in "abcdef")
            )
            assert len(set(answers)) == 1
            assert await _number(database, event_id) == 1


async def test_maintenance_removes_all_ids_that_nobody_takes_any_more(database: Database) -> None:
    async with database.session() as session:
        await session.execute(
            "INSERT INTO projections.message_ids SELECT gen_random_uuid(), now() - interval '2 hours' "
            "FROM generate_series(1, 25000)"
        )
        while await session.fetch(
            "SELECT * FROM projections.maintain_v1()"
        ):  # a step at a time, and then what is left
            pass
        left = "SELECT count(*) FROM projections.message_ids WHERE taken_at < now() - interval '1 hour'"
        assert await session.fetchval(left) == 0
