"""Of several events of an application with one id, each in its own source, a delivery is of one, with its payload."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from journal import Database, Event, EventEnvelope, append
from projections.webhooks.deliveries import Deliveries
from projections.webhooks.fan_out import FanOut
from projections.webhooks.messages import Message
from tests.fixtures.projections import fetchval
from tests.fixtures.raw_server import RawServer, respond
from tests.fixtures.webhook_delivery import attempts, delivering, fanned_out, finished, hook, states


def message(envelope: EventEnvelope) -> Message:
    return Message(envelope.metadata["tenant"], envelope.event_type)


def order(source_id: str, event_id: UUID | None, data: Any, tenant: str = "acme", topic: str = "t") -> Event:
    return Event(source_id, data, "order", topic, metadata={"tenant": tenant}, event_id=event_id)


async def at_the_same_time(database: Database, *events: Event) -> None:
    """Nobody sees what the others append."""
    sessions = [database.session() for _ in events]
    opened = [await session.__aenter__() for session in sessions]
    for session, event in zip(opened, events, strict=True):
        await session.begin()
        await append(session, [event])
    for session, opener in zip(opened, sessions, strict=True):
        await session.commit()
        await opener.__aexit__(None, None, None)


async def test_an_endpoint_gets_the_first_and_what_is_behind_the_others_goes_on(database: Database) -> None:
    async with RawServer(respond(204)) as server:
        await hook(database, server.url, ordering="key")
        for number in range(10):
            event_id = uuid4()
            await at_the_same_time(
                database, *(order(f"{number}-{place}", event_id, f"first-{number}") for place in range(4))
            )
            async with database.transaction() as session:
                await append(session, [order(f"{number}-{place}", None, "next") for place in range(4)])
        await fanned_out(database, FanOut("order", message))
        async with delivering(database):
            await finished(database, 50, ("done", "dead"))

    assert await states(database) == ["done"] * 50
    assert {code for _, _, code in await attempts(database)} == {"204"}
    bodies = b"".join(request.body for request in server.requests)
    assert [bodies.count(b'"first-%d"' % number) for number in range(10)] == [1] * 10


async def test_each_endpoint_gets_the_one_that_is_for_it(database: Database) -> None:
    """In one batch, and one after the other; also where they are of two tenants."""
    one, other = uuid4(), uuid4()
    await hook(database, "http://127.0.0.1/", tenant="nobody")
    async with RawServer(respond(204)) as mine, RawServer(respond(204)) as theirs:
        await hook(database, mine.url, topics=["a"])
        await hook(database, mine.url, topics=["b"])
        await hook(database, theirs.url, tenant="initech")
        for event_id in (one, other):
            await at_the_same_time(
                database,
                order(f"{event_id}/1", event_id, "for a", topic="a"),
                order(f"{event_id}/2", event_id, "for b", topic="b"),
                order(f"{event_id}/3", event_id, "for them", "initech"),
            )
            await fanned_out(database, FanOut("order", message))
        async with delivering(database):
            await finished(database, 6, ("done", "dead"))

    assert sorted(request.body.partition(b'"data":')[2] for request in mine.requests) == (
        [b'"for a"}'] * 2 + [b'"for b"}'] * 2
    )
    assert [request.body.partition(b'"data":')[2] for request in theirs.requests] == [b'"for them"}'] * 2


async def test_who_erases_an_id_erases_all_that_a_tenant_has_under_it(database: Database) -> None:
    event_id = uuid4()
    for topic in "ab":
        await hook(database, "http://127.0.0.1/", topics=[topic])
    await at_the_same_time(database, *(order(topic, event_id, "a secret", topic=topic) for topic in "ab"))
    await fanned_out(database, FanOut("order", message))

    await Deliveries(database).erase("acme", event_id)

    assert await states(database) == ["erased"] * 2
    assert await fetchval(database, "SELECT count(data) FROM projections.webhook_deliveries") == 0
