"""Ending what runs: stopped in the middle of slow events, or cancelled as a task."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from journal import ConnectionSettings, Database, connect
from projections import AtLeastOnce, EventEnvelope, Session, run
from tests.fixtures.projections import (
    EFFECTS,
    Happened,
    Told,
    caught_up,
    each_once,
    effects,
    execute,
    fetchval,
    happen,
    recording,
    settings,
    until,
)

OWNED = "SELECT count(owner) FROM projections.projection_ranges"
WORKERS = "SELECT count(*) FROM projections.workers"
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
DELIVERIES = pytest.mark.parametrize("delivery", [None, AtLeastOnce()], ids=["exactly-once", "at-least-once"])


@pytest.fixture
async def journal(database: Database) -> Database:
    await execute(database, EFFECTS)
    return database


@pytest.mark.daily(1)
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_stop_ends_after_the_events_that_are_being_handled(
    journal: Database, concurrency: int
) -> None:
    """At least once: neither the page nor the rest of the chunk is waited for, and what is done is not repeated."""
    stop, handled = asyncio.Event(), 0
    sources = [f"s{number}" for number in range(300)]

    async def slow(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        nonlocal handled
        handled += 1
        if handled == 7:
            stop.set()

    delivery = AtLeastOnce(after=100, within=timedelta(hours=1), concurrency=concurrency)
    await happen(journal, *sources)

    async with asyncio.timeout(300):
        await run(journal, recording(slow, delivery=delivery), settings=settings(), stop=stop)

    assert 7 <= handled < 100
    assert await fetchval(journal, "SELECT count(*) FROM projections.source_offsets") == handled
    await caught_up(journal, recording(delivery=delivery))
    each_once(await effects(journal), **dict.fromkeys(sources, 1))


@pytest.mark.slow
@DELIVERIES
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_task_that_is_cancelled_gives_its_ranges_back_at_once(
    journal: Database, dsn: str, delivery: Any, driver: Any
) -> None:
    """While handlers wait for the database, and only when they have ended: then another may begin."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    present: list[int] = []

    async def wait(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        try:
            await session.fetchval("SELECT pg_advisory_xact_lock(7)")
        finally:
            present.append(await fetchval(journal, WORKERS))

    patient, told = settings(lease=timedelta(hours=1)), Told()
    await happen(journal, *(f"s{number}" for number in range(50)))
    async with (
        journal.session() as holder,
        connect(dsn, ConnectionSettings(driver=driver, max_connections=8)) as pool,
    ):
        await holder.begin()
        await holder.fetchval("SELECT pg_advisory_xact_lock(7)")
        task = asyncio.create_task(
            run(pool, recording(wait, delivery=delivery), settings=patient, observer=told, ranges=4)
        )
        await told.first("started", 4)
        await until(journal, f"SELECT EXISTS ({WAITING})")

        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert set(present) == {1}
        assert (await fetchval(journal, OWNED), await fetchval(journal, WORKERS)) == (0, 0)
        await holder.rollback()

    await caught_up(journal, recording(delivery=delivery), settings=patient)
    assert {source for source, _ in await effects(journal)} == {f"s{number}" for number in range(50)}
    if delivery is None:
        assert await fetchval(journal, "SELECT count(*) FROM effects") == 50
    assert complaints == []


async def test_a_task_that_is_cancelled_while_its_heartbeat_waits_leaves_all_the_same(
    journal: Database,
) -> None:
    patient, told = settings(lease=timedelta(hours=1)), Told()
    async with journal.session() as holder:
        task = asyncio.create_task(run(journal, recording(), settings=patient, observer=told))
        await told.first("started")
        await holder.begin()
        await holder.execute("UPDATE projections.workers SET lease_until = lease_until")
        await until(journal, f"SELECT EXISTS ({WAITING})")

        task.cancel()
        await holder.rollback()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert (await fetchval(journal, OWNED), await fetchval(journal, WORKERS)) == (0, 0)
