"""Groups, streams, publishers and webhooks over a fail-over to a standby that had not everything."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from journal import Database, ProjectionsError, connect
from projections.subscriptions import Consumer, Publisher
from projections.webhooks.errors import InvalidPageCursor
from projections.webhooks.log import EventsRequest, PostgresLog
from projections.webhooks.sender import HttpSender
from tests.fixtures.failover import Pair, Server, pair
from tests.fixtures.raw_server import RawServer, respond
from tests.fixtures.sse import asked, streaming
from tests.fixtures.subscriptions import Seen, consuming, landed_and_matched, quick, until_handled
from tests.fixtures.webhook_delivery import LOCAL, Gate, delivering, finished, hook, sent

pytestmark = [
    pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"]),
]

LOST, NEW = 40, 60
"""Of a sequence, up to 32 numbers are skipped by a fail-over: with more, some are given out again."""


def address(servers: Pair, *, pooled: bool) -> str:
    return servers.pooled("one") if pooled else servers.direct("one")


async def answered(database: Database) -> None:
    """Wait until the new primary answers."""
    async with asyncio.timeout(300):
        while True:
            try:
                async with database.session() as session:
                    if not await session.fetchval("SELECT pg_is_in_recovery()"):
                        return
            except (ProjectionsError, TimeoutError):
                await asyncio.sleep(0.05)


async def stored(database: Database) -> Counter[tuple[str, int]]:
    async with database.session() as session:
        rows = await session.fetch(
            "SELECT source_id, seq_nr FROM projections.events WHERE entity_type = 'plane'"
        )
    return Counter((row["source_id"], row["seq_nr"]) for row in rows)


@pytest.mark.slow
async def test_consumers_and_streams(base_cluster: Server, pooled: bool) -> None:
    seen = Seen()
    async with pair(base_cluster, "one", pooler=pooled) as servers:
        await asyncio.to_thread(servers.follow)
        async with connect(address(servers, pooled=pooled)) as database:
            reader = Consumer(database, "g", settings=quick())
            reader.handle(seen, name="h")
            async with consuming(database, reader), streaming(database) as (_, port):
                async with asked(port) as there:
                    await there.block()
                    await landed_and_matched(database, "kept")
                    assert await there.places(1) == [("kept", 1)]
                    await until_handled(database)
                    await asyncio.to_thread(servers.cut)
                async with asked(port) as gone:
                    await gone.block()
                    await landed_and_matched(database, *["lost"] * LOST)
                    await until_handled(database)
                    assert len(await gone.events(LOST)) == LOST
                    await servers.fail_over()
                    await answered(database)
                    await landed_and_matched(database, *["new"] * NEW)
                    await seen.until(lambda: seen.events[-1:] == [("new", NEW)])
                    await until_handled(database)
                    last_id = gone.last_id

                async with asked(port, last_id=last_id) as refused:
                    assert refused.status == 409
                async with asked(port, last_id=there.last_id) as goes_on:
                    assert await goes_on.places(NEW) == [("new", number) for number in range(1, NEW + 1)]
            there_now = await stored(database)

    handled = [event for event in seen.events if event[0] != "lost"]
    assert Counter(handled) == there_now
    assert [number for source, number in handled if source == "new"] == list(range(1, NEW + 1))


@pytest.mark.slow
@pytest.mark.daily(1)
async def test_publishers_and_webhooks(base_cluster: Server, pooled: bool) -> None:
    async with pair(base_cluster, "one", pooler=pooled) as servers, RawServer(respond(204)) as receiver:
        await asyncio.to_thread(servers.follow)
        async with connect(address(servers, pooled=pooled)) as database, HttpSender(LOCAL) as own:
            await hook(database, receiver.url)
            await asyncio.to_thread(servers.cut)
            gate = Gate(own, after=True)
            async with Publisher(database, "p") as publisher, delivering(database, gate):
                for number in range(LOST):
                    await publisher.publish("t", {"n": number})
                await publisher.flush()
                lost = await sent(database, number=LOST)
                await gate.reached.get()  # some are on their way
                page = await PostgresLog(database).list_events(EventsRequest(limit=1))
                await servers.fail_over()
                waiting = [await publisher.publish("t", {"n": LOST + number}) for number in range(NEW)]
                places = [(await accepted).seq_nr for accepted in waiting]
                await answered(database)
                with pytest.raises(
                    InvalidPageCursor, match="on timeline 1 of the database, which is now on timeline 2"
                ):
                    await PostgresLog(database).list_events(EventsRequest(limit=1, next=page.next))
                new = await sent(database, number=NEW)
                gate.after.set()
                await finished(database, NEW)
            async with database.session() as session:
                published = await session.fetch(
                    "SELECT seq_nr, payload ->> 'n' AS n FROM projections.events "
                    "WHERE source_id = 'publisher/p' ORDER BY seq_nr"
                )
                done = await session.fetch(
                    "SELECT event_id FROM projections.webhook_deliveries WHERE state = 'done'"
                )

    assert [row["seq_nr"] for row in published] == places
    assert [int(row["n"]) for row in published] == list(range(LOST, LOST + NEW))
    arrived = Counter(dict(request.headers)["webhook-id"] for request in receiver.requests)
    assert {row["event_id"] for row in done} == set(new)
    assert all(arrived[event_id] >= 1 for event_id in new)
    assert set(arrived) <= {*new, *lost}
