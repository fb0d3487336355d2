"""A range's effects are committed by the newest holder alone, and a claim is all or nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import offsets
from journal import ConnectionSettings, Database, connect
from offsets import OffsetOvertaken
from projections import EventEnvelope, Session, run
from projections.testing import run_until_caught_up
from tests.fixtures.projections import (
    EFFECTS,
    Does,
    Happened,
    caught_up,
    each_once,
    effects,
    execute,
    happen,
    recording,
    running,
    settings,
    until_effects,
)

OFFSETS = "SELECT count(*) FROM projections.source_offsets"


@pytest.fixture(params=["asyncpg", "psycopg"])
async def either(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    """A database through each of the drivers."""
    async with connect(dsn, ConnectionSettings(driver=request.param)) as pool:
        await execute(pool, EFFECTS)
        yield pool


@pytest.fixture
async def journal(database: Database) -> Database:
    await execute(database, EFFECTS)
    return database


def once(does: Does) -> Does:
    """Do something at the first call only."""
    done = False

    async def first(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        nonlocal done
        if not done:
            done = True
            await does(session, event, envelope)

    return first


async def test_a_holder_that_was_replaced_commits_nothing(
    either: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """Two runners on one range: the first is held up in its batch while the second takes over and handles all."""
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def hold(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        entered.set()
        await go_on.wait()

    await happen(either, "a", "b", "a")

    with caplog.at_level(logging.WARNING):
        async with running(either, recording(hold)):
            await entered.wait()
            await run_until_caught_up_taking_over(either)
            go_on.set()
            await happen(either, "a")
            await until_effects(either, 4)

    each_once(await effects(either), a=3, b=1)
    assert "range_lost" in [getattr(record, "action", None) for record in caplog.records]


async def run_until_caught_up_taking_over(database: Database) -> None:
    await run(database, recording(), settings=settings(), until_caught_up=True, take_over=True)


async def test_a_source_that_is_already_past_the_batch_rolls_it_back(journal: Database) -> None:
    async def overtake(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await execute(
            journal,
            "INSERT INTO projections.source_offsets SELECT projection_id, $1, $2, $3, $4 FROM projections.projections",
            *(envelope.source_id, envelope.slice, envelope.seq_nr, envelope.db_timestamp),
        )

    await happen(journal, "a", "b")

    told = await caught_up(journal, recording(once(overtake)))

    assert isinstance(told.all("failed")[0][2], OffsetOvertaken)
    assert await effects(journal) == [("b", 1)]


async def test_two_that_start_at_once_never_hold_a_part_each(journal: Database, dsn: str) -> None:
    stops = [asyncio.Event(), asyncio.Event()]
    await happen(journal, *"abcdefgh")

    async with connect(dsn) as other:
        runs = [
            asyncio.create_task(run(pool, recording(), ranges=7, settings=settings(), stop=stop))
            for pool, stop in zip((journal, other), stops, strict=True)
        ]
        await until_effects(journal, 8)
        for stop in stops:
            stop.set()
        async with asyncio.timeout(30):
            await asyncio.gather(*runs)

    each_once(await effects(journal), **dict.fromkeys("abcdefgh", 1))


async def test_a_claim_is_all_or_nothing(journal: Database) -> None:
    """One range of several is held by somebody else: the others stay free until all can be had."""
    await run_until_caught_up(journal, recording(), ranges=3)
    async with journal.session() as session:
        projection_id = (await offsets.status(session, "p")).projection_id
        last = (await offsets.read_ranges(session, projection_id))[2].slices.min_slice
        held = await offsets.claim(session, projection_id, last, "another", settings().lease)
        assert held is not None
    stop = asyncio.Event()
    waiting = asyncio.create_task(run(journal, recording(), settings=settings(), stop=stop))

    await happen(journal, *"abcdefgh")
    async with journal.session() as session:
        owners = [r.owner for r in await offsets.read_ranges(session, projection_id)]
        await offsets.OffsetStore(held).release(session)
    await until_effects(journal, 8)
    stop.set()
    await waiting

    assert owners == [None, None, "another"]


async def test_a_crashed_holder_is_followed_when_its_lease_ends(journal: Database) -> None:
    await run_until_caught_up(journal, recording())
    await execute(
        journal,
        "UPDATE projections.projection_ranges SET owner = 'gone', lease_until = clock_timestamp() + '200 ms'",
    )
    await happen(journal, "a")

    await caught_up(journal, recording())

    assert await effects(journal) == [("a", 1)]


async def test_a_claim_alone_keeps_an_older_holder_from_committing(either: Database) -> None:
    """The newer holder has handled nothing yet, so only the epoch can tell."""
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def hold(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        entered.set()
        await go_on.wait()

    await happen(either, "a", "b")
    async with running(either, recording(hold)) as told:
        await entered.wait()
        async with either.session() as session:
            projection_id = (await offsets.status(session, "p")).projection_id
            claim = await offsets.claim(
                session, projection_id, 0, "another", timedelta(hours=1), take_over=True
            )
            assert claim is not None
            go_on.set()
            await told.first("stopped")
            before = await effects(either)
            await offsets.OffsetStore(claim).release(session)
        await until_effects(either, 2)

    assert before == []
    each_once(await effects(either), a=1, b=1)
