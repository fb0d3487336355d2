"""A process that is frozen in the middle of a transaction keeps others from what it has locked for seconds only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

import offsets
from journal import ALL_SLICES, Database, EntityTypes, OwnedSession, SliceReader, generation
from journal.database.base import BaseSession
from offsets import Beats, Claim, Registered, Worker
from projections.subscriptions import Consumer, consumer

PATIENCE = 300
"""Seconds: others wait for a fraction of one, or for ever."""


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a transaction that has one is a fraction of a second."""
    begin = BaseSession.begin

    async def begin_with_a_short_limit(
        self: BaseSession, mark: str | None = None, idle: timedelta | None = None
    ) -> None:
        await begin(self, mark, None if idle is None else timedelta(milliseconds=200))

    monkeypatch.setattr(BaseSession, "begin", begin_with_a_short_limit)


@asynccontextmanager
async def frozen_before_it_commits(
    session: OwnedSession, work: Callable[[], Awaitable[Any]], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    """Do something on a session up to its first COMMIT, which is not sent while the block runs."""
    about_to, never = asyncio.Event(), asyncio.Event()

    async def commit() -> None:
        about_to.set()
        await never.wait()

    monkeypatch.setattr(session, "commit", commit)
    task = asyncio.ensure_future(work())
    await about_to.wait()
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def claimed(session: OwnedSession, journal: str | None = None) -> Claim:
    """A range that a worker holds."""
    number = await offsets.register(session, "p", "plane", journal=journal)
    runs = {number: Registered("p", 1, EntityTypes.of("plane"))}
    (told,) = await offsets.heartbeat(session, Worker("w", "host", 1), timedelta(seconds=10), runs, Beats())
    return told.held[0].claim


async def test_another_process_starts_while_it_evicts_offsets(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with database.session() as frozen, database.session() as other:
        claim = await claimed(other)
        retention = timedelta(days=1)

        async with frozen_before_it_commits(
            frozen, lambda: offsets.evict(frozen, claim.projection_id, retention), monkeypatch
        ):
            assert await offsets.register(other, "p", "plane") == claim.projection_id


async def test_another_process_takes_over_while_it_compares_offsets_with_a_journal(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = SliceReader("plane", ALL_SLICES)
    async with database.session() as frozen, database.session() as other:
        claim = await claimed(other, "elsewhere")
        seen = await generation(other)

        async with frozen_before_it_commits(
            frozen,
            lambda: offsets.fit_journal(frozen, claim, seen, reader, lambda _: database.session()),
            monkeypatch,
        ):
            taken = await offsets.claim_again(other, claim)

        assert taken is not None
        assert taken.epoch == claim.epoch + 1


async def test_another_consumer_subscribes_while_one_does(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed, never = asyncio.Event(), asyncio.Event()

    async def frozen(*_: object) -> bool:
        subscribed.set()
        return await never.wait()

    def of_group() -> Consumer:
        made = Consumer(database, "g")

        @made.handle(name="h")
        async def h(batch: object) -> None: ...

        return made

    with monkeypatch.context() as patched:
        patched.setattr(consumer, "is_reliable", frozen)
        task = asyncio.ensure_future(of_group().run())
        await subscribed.wait()
    try:
        async with asyncio.timeout(PATIENCE):
            assert [*await of_group()._subscribe()] == ["h"]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_transaction_of_the_application_may_be_silent_for_as_long_as_it_likes(
    database: Database,
) -> None:
    async with database.transaction() as session:
        assert await session.fetchval("SHOW idle_in_transaction_session_timeout") == "0"
