"""A fault of the handler, or of what it uses, that hits every event alike: the range stops, and recovers by itself."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

import offsets
from journal import Database
from projections import (
    AtLeastOnce,
    Event,
    EventEnvelope,
    ProjectionFailed,
    Recovery,
    Session,
    append,
    handles,
    projection,
)
from projections.failing.streak import Streak
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    Failure,
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
)

DELIVERIES = pytest.mark.parametrize("delivery", [None, AtLeastOnce()], ids=["exactly-once", "at-least-once"])
SOURCES = [f"s{number}" for number in range(40)]
HANDLED = "SELECT count(*) FROM projections.source_offsets"


class Service:
    """What all handlers use, and is down."""

    def __init__(self) -> None:
        self.down = True

    async def call(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if self.down:
            raise Failure(f"no answer for {envelope.source_id}")


@pytest.fixture
async def journal(database: Database) -> Database:
    await execute(database, EFFECTS)
    return database


async def parked(database: Database) -> list[str]:
    async with database.session() as session:
        return [source.source_id for source in await offsets.ParkedSources(session).list("p")]


@pytest.mark.slow
@DELIVERIES
@pytest.mark.parametrize("ranges", [1, 8])
async def test_sources_that_fail_alike_stop_the_range_and_no_more_are_parked(
    journal: Database, delivery: Any, ranges: int
) -> None:
    service, quick = Service(), settings(alike_failures=3)
    definition = recording(service.call, recovery=NO_RETRY, delivery=delivery)
    await happen(journal, *SOURCES)

    async with running(journal, definition, ranges=ranges, settings=quick) as told:
        _, _, error = await told.first("failed", 5 * ranges)  # it starts again and again meanwhile
        assert len(await parked(journal)) == 3
        service.down = False
        await until(journal, f"SELECT ({HANDLED}) = 37")
        async with journal.session() as session:
            await offsets.ParkedSources(session).retry("p")
        await until(journal, f"SELECT ({HANDLED}) = 40")

    assert isinstance(error, ProjectionFailed)
    assert "more than 3 sources failed alike, one after the other (Failure at projections.py:" in str(error)
    assert "raise alike_failures" in str(error)
    assert await parked(journal) == []
    if delivery is None:
        each_once(await effects(journal), **dict.fromkeys(SOURCES, 1))


@pytest.mark.daily(1)
@DELIVERIES
async def test_skipped_events_are_counted_too(journal: Database, delivery: Any) -> None:
    service, quick = Service(), settings(alike_failures=2)
    await happen(journal, *SOURCES)
    definition = recording(service.call, recovery=Recovery.skip(), delivery=delivery)

    async with running(journal, definition, settings=quick) as told:
        await told.first("failed", 3)
        service.down = False
        await until(journal, f"SELECT ({HANDLED}) = 40")

    assert len(told.all("skipped")) == 2


@pytest.mark.slow
async def test_failures_between_which_sources_are_handled_stop_nothing(journal: Database) -> None:
    """Every second source is poison."""

    async def fail(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if int(envelope.source_id[1:]) % 2:
            raise Failure

    await happen(journal, *SOURCES)

    told = await caught_up(journal, recording(fail, recovery=NO_RETRY), settings=settings(alike_failures=2))

    assert told.names("failed") == []
    assert len(await parked(journal)) == 20


async def test_failures_that_are_not_alike_stop_nothing(journal: Database) -> None:
    errors = [LookupError, ValueError, ArithmeticError]

    async def fail(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        raise errors[int(envelope.source_id[1:]) % 3]("no")

    await happen(journal, *SOURCES[:9])

    told = await caught_up(journal, recording(fail, recovery=NO_RETRY), settings=settings(alike_failures=3))

    assert told.names("failed") == []
    assert len(await parked(journal)) == 9


async def test_events_of_other_types_that_are_handled_between_do_not_hide_it(journal: Database) -> None:
    class Landed(BaseModel):
        pass

    told = Told()

    @projection("p", entity_type="plane", recovery=NO_RETRY)
    class Both:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            if len(told.all("failed")) < 2:
                raise Failure

        @handles(Landed)
        async def landed(self, session: Session, event: Landed, envelope: EventEnvelope) -> None:
            await record(session, envelope)

    async with journal.transaction() as session:
        for number in range(20):
            await append(
                session, [Event(f"a{number}", Happened(), "plane"), Event(f"b{number}", Landed(), "plane")]
            )

    await caught_up(journal, Both, settings=settings(alike_failures=4), observer=told)

    assert len(await parked(journal)) == 4
    assert await fetchval(journal, HANDLED) == 36


async def test_a_source_that_fails_again_counts_once(journal: Database) -> None:
    """A streak is of sources: one that is retried by hand, or met again after a restart, is not a second one."""
    streak = Streak(1)

    assert [streak.failed("t", "Failure", source) for source in ("a", "a", "a", "b", "b", "c")] == [
        False, False, False, True, True, True,
    ]  # fmt: skip
    streak.handled(["t"])
    assert not streak.failed("t", "Failure", "b")
