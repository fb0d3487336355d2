"""Listening and streaming by each driver, directly and through a pooler that lends a connection for a transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from journal import ConnectionSettings, Database, connect
from projections.subscriptions.listening import Interest, Listener
from tests.fixtures.pgbouncer import pooler
from tests.fixtures.sse import QUICK, asked, streaming
from tests.fixtures.subscriptions import landed_and_matched


@asynccontextmanager
async def pooled(dsn: str, way: str, driver: Any) -> AsyncIterator[Database]:
    settings = ConnectionSettings(driver=driver)
    if way == "direct":
        async with connect(dsn, settings) as database:
            yield database
        return
    async with pooler(dsn) as address, connect(address, settings) as database:
        yield database


@pytest.mark.daily(2)
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@pytest.mark.parametrize("way", ["direct", "pgbouncer"])
async def test_events_are_heard_and_streams_resumed(
    dsn: str, database: Database, way: str, driver: str
) -> None:
    async with pooled(dsn, way, driver) as pool:
        async with (
            Listener(pool, "feed", settings=QUICK) as listener,
            listener.listen(topics=["Land*"]) as events,
        ):
            await landed_and_matched(database, "a")
            heard = (await anext(events)).envelope

        async with streaming(pool, subscription=lambda _: Interest(contains={"n": 1})) as (_, port):
            async with asked(port) as client:
                await client.block()
            await landed_and_matched(database, "b", n=1)
            async with asked(port, last_id=client.last_id) as again:
                missed = await again.places(1)
                await landed_and_matched(database, "b", n=1)
                live = await again.places(1)

    assert (heard.source_id, heard.event_type, heard.payload) == ("a", "Landed", {})
    assert (missed, live) == ([("b", 1)], [("b", 2)])
