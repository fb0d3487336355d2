"""Pausing, moving offsets, cutting ranges again, evicting and importing: each while keeping everything exactly once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

import offsets
from journal import ConnectionSettings, Database, Event, append, connect
from projections import AtLeastOnce, EventEnvelope, InvalidHandler, Session, handles, projection
from projections.errors import PoolTooSmall
from projections.testing import run_until_caught_up
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
    record,
    recording,
    running,
    settings,
    until,
    until_effects,
)

PAST = datetime(2020, 1, 1, tzinfo=UTC)
SOURCES = [f"s{number}" for number in range(40)]


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=20)) as pool:
        await execute(pool, EFFECTS)
        yield pool


async def pause(database: Database, *, paused: bool) -> None:
    async with database.session() as session:
        await offsets.set_paused(session, "p", paused=paused)


@pytest.mark.slow
async def test_a_paused_projection_handles_nothing_until_it_is_resumed(journal: Database) -> None:
    """A projection of another name tells when the events could have been handled."""
    async with running(journal, recording(), recording(name="other")) as told:
        await happen(journal, "a")
        await until_effects(journal, 2)
        await pause(journal, paused=True)
        await until(journal, "SELECT count(*) > 0 FROM projections.projections WHERE paused")
        heartbeats = "SELECT min(lease_until) > $1 FROM projections.workers"
        # One may have been under way, and what the next is told is acted upon before a third is sent.
        for _ in range(3):
            now = await fetchval(journal, "SELECT max(lease_until) FROM projections.workers")
            await until(journal, heartbeats, now)
        await happen(journal, "a")
        await until_effects(journal, 3)
        before = [args for args in told.all("handled") if args[0] == "p"]
        await pause(journal, paused=False)
        await until_effects(journal, 4)

    assert len(before) == 1


async def test_a_paused_projection_does_not_begin_when_it_is_started(journal: Database) -> None:
    await run_until_caught_up(journal, recording())
    await pause(journal, paused=True)
    await happen(journal, "a")

    rare = settings(heartbeat=timedelta(hours=1), lease=timedelta(hours=2))
    async with running(journal, recording(), recording(name="other"), settings=rare) as told:
        for number in range(1, 4):
            await told.first("handled", number)
            await happen(journal, "a")

    assert {args[0] for args in told.all("handled")} == {"other"}


async def test_what_has_caught_up_ends_without_another_heartbeat(journal: Database) -> None:
    await happen(journal, "a")
    rare = settings(heartbeat=timedelta(hours=1), lease=timedelta(hours=2))

    await caught_up(journal, recording(), settings=rare)

    assert await effects(journal) == [("a", 1)]


async def test_a_new_object_is_made_for_every_start_of_a_range(journal: Database) -> None:
    calls: Counter[str] = Counter()
    objects: set[int] = set()
    kept: list[object] = []

    @projection("p", entity_type="plane")
    class Hooked:
        async def start(self) -> None:
            calls["start"] += 1
            objects.add(id(self))
            kept.append(self)

        async def stop(self) -> None:
            calls["stop"] += 1

        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            if calls["start"] == 3:
                mine = await session.fetchval("SELECT pg_backend_pid()")
                await fetchval(journal, "SELECT pg_terminate_backend($1, 10000)", mine)
            await record(session, envelope)

    async with running(journal, Hooked, ranges=3) as told:
        await told.first("started", 3)
        await until(journal, "SELECT count(*) = 3 FROM projections.projection_ranges WHERE owner IS NOT NULL")
        await happen(journal, "a")
        await until_effects(journal, 1)

    assert calls["start"] == calls["stop"] == 4
    assert len(objects) == 4


@pytest.mark.daily(1)
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_the_smallest_pool_lets_ranges_catch_up_in_turn(
    dsn: str, driver: Literal["asyncpg", "psycopg"]
) -> None:
    """Of four connections polls and heartbeats keep two, and seven ranges share one."""
    async with connect(dsn, ConnectionSettings(driver=driver, max_connections=4)) as small:
        await execute(small, EFFECTS)
        for _ in range(5):
            await happen(small, *"abcdefgh")

        await run_until_caught_up(small, recording(batch_size=2), ranges=7)

        each_once(await effects(small), **dict.fromkeys("abcdefgh", 5))


async def test_a_pool_that_is_too_small_is_refused(dsn: str) -> None:
    async with connect(dsn, ConnectionSettings(max_connections=3)) as small:
        with pytest.raises(PoolTooSmall, match="max_connections=4 or more"):
            await run_until_caught_up(small, recording())


async def test_an_object_is_used_as_it_is(journal: Database) -> None:
    definition = recording()()
    await happen(journal, "a")

    await run_until_caught_up(journal, definition)

    each_once(await effects(journal), a=1)


async def test_a_handler_that_holds_the_event_loop_is_named(
    journal: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def block(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        while not any("source 'a', seq_nr 1" in message for message in blocked(caplog)):
            pass

    await happen(journal, "a")

    await run_until_caught_up(journal, recording(block), blocked_after=timedelta(milliseconds=50))


def blocked(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if getattr(r, "action", "") == "loop_blocked"]


def actions(caplog: pytest.LogCaptureFixture) -> set[str]:
    return {getattr(record, "action", "") for record in caplog.records}


async def test_an_observer_that_raises_does_no_harm(
    journal: Database, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Told):
        def handled(self, *args: Any) -> None:
            raise RuntimeError

    with caplog.at_level(logging.ERROR):
        async with running(journal, recording(), observer=Broken()):
            await happen(journal, "a")
            await until_effects(journal, 1)
            await happen(journal, "a")
            await until_effects(journal, 2)

    assert "observer_failed" in actions(caplog)


async def test_two_projections_of_one_name_are_refused(journal: Database) -> None:
    with pytest.raises(InvalidHandler, match="two projections are named 'p'"):
        await run_until_caught_up(journal, recording(), recording())


async def test_a_name_belongs_to_one_entity_type(journal: Database) -> None:
    @projection("p", entity_type="airport")
    class OfAirports:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None: ...

    await run_until_caught_up(journal, recording())

    with pytest.raises(offsets.WrongEntityType, match="'plane', not 'airport'"):
        await run_until_caught_up(journal, OfAirports)


@pytest.mark.slow
async def test_one_failing_projection_does_not_hold_up_another(journal: Database) -> None:
    async def fail(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        raise RuntimeError

    bad = recording(fail, name="bad", delivery=AtLeastOnce())

    async with running(journal, recording(), bad) as told:
        await happen(journal, "a", "b")
        await until(journal, "SELECT count(*) >= 2 FROM effects")
        await told.first("parked", 2)

    async with journal.session() as session:
        assert len(await offsets.ParkedSources(session).list("bad")) == 2
        assert await offsets.ParkedSources(session).list("p") == []


async def test_a_transaction_of_the_application_and_its_events_are_seen_together(journal: Database) -> None:
    """What a handler reads was committed with, or before, the event."""
    await execute(journal, "CREATE TABLE planes (source_id text PRIMARY KEY)")
    found: list[bool] = []

    async def look(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        found.append(
            await session.fetchval("SELECT count(*) = 1 FROM planes WHERE source_id = $1", envelope.source_id)
        )

    async with running(journal, recording(look)):
        async with journal.transaction() as session:
            await append(session, [Event("a", Happened(), "plane")])
            await session.execute("INSERT INTO planes VALUES ('a')")
        await until_effects(journal, 1)

    assert found == [True]
