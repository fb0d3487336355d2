"""What a process asks the database while nothing happens: its limit is for everything that it runs together."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from journal import ConnectionSettings, connect
from journal.database import asyncpg as driver
from projections import run
from projections.subscriptions import Consumer, MatchedEvent, Matching
from projections.webhooks import HttpSender, run_webhooks
from tests.fixtures.projections import EFFECTS, happen, recording
from tests.fixtures.webhook_delivery import LOCAL, hook

_SETTLE, _SECONDS = 3.0, 10.0  # in ten seconds each range moves its horizon once
_MOST = 20
"""Statements in a second, the resets of connections that are lent among them."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each statement was sent on connections that are opened from here on."""
    counts: Counter[str] = Counter()
    initialise = driver._initialise

    async def watched(connection: Any) -> None:
        await initialise(connection)
        connection.add_query_logger(lambda query: counts.update([" ".join(query.query.split())]))

    monkeypatch.setattr(driver, "_initialise", watched)
    return counts


@pytest.mark.slow
async def test_projections_matching_a_group_and_webhooks_of_one_process_ask_20_times_a_second(
    dsn: str, asked: Counter[str]
) -> None:
    async with connect(dsn, settings=ConnectionSettings(max_connections=30)) as database:
        await hook(database, "http://127.0.0.1:9999/")
        async with database.transaction() as session:
            await session.execute(EFFECTS)
        await happen(database, "plane|1")
        consumer, stop = Consumer(database, "desk"), asyncio.Event()

        @consumer.handle(name="desk", topics=["Happened"])
        async def _handle(events: Sequence[MatchedEvent]) -> None:
            pass

        async with HttpSender(LOCAL) as sender, asyncio.TaskGroup() as group:
            group.create_task(run(database, recording(), discovery=Matching(), stop=stop))
            group.create_task(consumer.run(stop))
            group.create_task(run_webhooks(database, sender, stop=stop))
            try:
                await asyncio.sleep(_SETTLE)
                asked.clear()
                began = time.monotonic()
                await asyncio.sleep(_SECONDS)
                found, seconds = asked.copy(), time.monotonic() - began
            finally:
                stop.set()
    told = "\n".join(f"{count / seconds:6.2f} {query[:110]}" for query, count in found.most_common(30))
    assert found.total() / seconds <= _MOST, f"{found.total() / seconds:.1f} a second:\n{told}"
