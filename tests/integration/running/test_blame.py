"""What may be the fault of one event or of all: decided by what the others do, and tried again by itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import offsets
from journal import ConnectionSettings, Database, DatabaseError, connect
from projections import (
    AtLeastOnce,
    Backoff,
    Event,
    EventEnvelope,
    Inline,
    ProjectionFailed,
    Recovery,
    Session,
    handles,
    projection,
    run,
)
from tests.fixtures.poison import NoText, Poison, elsewhere, raising, refused
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    Happened,
    Told,
    caught_up,
    each_once,
    effects,
    execute,
    happen,
    recording,
    running,
    settings,
    until,
)

DELIVERIES = pytest.mark.parametrize("delivery", [None, AtLeastOnce()], ids=["exactly-once", "at-least-once"])
GOOD = [f"good{number}" for number in range(20)]
OF_A_TENANT = [f"tenant{number}" for number in range(30)]
HOUR = timedelta(hours=1)
TENANT = "INSERT INTO of_tenant (source_id) VALUES ($1)"
MAKE = "CREATE TABLE of_tenant (source_id text)"


@pytest.fixture
async def journal(database: Database) -> Database:
    await execute(database, EFFECTS)
    return database


async def of_tenant(session: Session, event: Happened, envelope: EventEnvelope) -> None:
    if envelope.source_id.startswith("tenant"):
        await session.execute(TENANT, envelope.source_id)


async def parked(database: Database) -> list[offsets.ParkedSource]:
    async with database.session() as session:
        return [*await offsets.ParkedSources(session).list("p")]


@DELIVERIES
async def test_a_table_that_one_tenant_lacks_holds_up_no_other_and_is_found_when_it_is_there(
    journal: Database, delivery: Any
) -> None:
    sources = [source for pair in zip(GOOD, OF_A_TENANT, strict=False) for source in pair] + OF_A_TENANT[20:]
    async with running(journal, recording(of_tenant, recovery=NO_RETRY, delivery=delivery)) as told:
        await happen(journal, *sources)
        await told.first("parked", len(OF_A_TENANT))
        each_once([one for one in await effects(journal) if one[0] in GOOD], **dict.fromkeys(GOOD, 1))
        assert all(source.error.endswith("It is tried again by itself") for source in await parked(journal))
        await execute(journal, MAKE)
        await until(journal, "SELECT count(*) = 50 FROM projections.source_offsets")
        await until(journal, "SELECT count(*) = 0 FROM projections.parked_sources")

    assert told.names("failed", "skipped") == []
    if delivery is None:
        each_once(await effects(journal), **dict.fromkeys(sources, 1))


@pytest.mark.daily(1)
@DELIVERIES
@pytest.mark.parametrize("recovery", [Recovery.skip(), NO_RETRY], ids=["skip", "park"])
async def test_an_event_that_has_no_other_beside_it_is_parked_and_not_lost(
    journal: Database, delivery: Any, recovery: Recovery
) -> None:
    definition = recording(of_tenant, recovery=recovery, delivery=delivery)
    await happen(journal, "tenant1", "tenant1")

    told = await caught_up(journal, definition)

    assert told.names("parked", "skipped", "failed") == ["parked"]
    await execute(journal, MAKE)
    async with running(journal, definition):  # another run, which knows it by what is stored
        await until(journal, "SELECT count(*) = 0 FROM projections.parked_sources")
    assert ("tenant1", 2) in await effects(journal)


async def test_one_that_is_tried_again_by_itself_can_be_dropped(journal: Database) -> None:
    await happen(journal, "tenant1", "good1")
    told = await caught_up(journal, recording(of_tenant, recovery=NO_RETRY))
    assert told.names("parked", "failed") == ["parked"]
    async with journal.session() as session:
        await offsets.ParkedSources(session).drop("p", "tenant1")
    async with running(journal, recording(of_tenant, recovery=NO_RETRY)):
        await until(journal, "SELECT count(*) = 0 FROM projections.parked_sources")

    each_once(await effects(journal), good1=1)


@DELIVERIES
async def test_where_too_many_fail_and_none_passes_none_is_parked(journal: Database, delivery: Any) -> None:
    async with running(journal, recording(of_tenant, recovery=NO_RETRY, delivery=delivery)) as told:
        await happen(journal, *OF_A_TENANT)
        await told.first("failed", 2)
        assert await parked(journal) == []
        await execute(journal, MAKE)
        await until(journal, "SELECT count(*) = 30 FROM projections.source_offsets")

    assert told.names("parked", "skipped") == []


async def test_a_range_that_has_failed_for_long_goes_on_within_a_lease_of_the_repair(
    journal: Database,
) -> None:
    lasting = settings(restart=Backoff(HOUR, HOUR), lease=timedelta(seconds=1))
    async with running(journal, recording(of_tenant, recovery=NO_RETRY), settings=lasting) as told:
        await happen(journal, *OF_A_TENANT)
        await told.first("failed")
        await execute(journal, MAKE)
        await until(journal, "SELECT count(*) = 30 FROM projections.source_offsets")


async def test_sources_that_wait_for_a_repair_go_on_within_a_lease_of_it(
    journal: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.running.parking._AGAIN", Backoff(HOUR, HOUR))
    quick = settings(lease=timedelta(seconds=1))
    async with running(journal, recording(of_tenant, recovery=NO_RETRY), settings=quick) as told:
        await happen(journal, "tenant1", "good1", "tenant2")
        await told.first("parked", 2)
        await execute(journal, MAKE)
        await until(journal, "SELECT count(*) = 0 FROM projections.parked_sources")


async def test_when_one_that_waits_for_a_repair_is_handled_all_of_them_are_tried(
    journal: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.running.parking._AGAIN", Backoff(HOUR, HOUR))
    slow = settings(lease=HOUR)
    async with running(journal, recording(of_tenant, recovery=NO_RETRY), settings=slow) as told:
        await happen(journal, "tenant1", "good1", "tenant2", "tenant3")
        await told.first("parked", 3)
        await execute(journal, MAKE)
        async with journal.session() as session:
            await offsets.ParkedSources(session).retry("p", "tenant2")
        await until(journal, "SELECT count(*) = 0 FROM projections.parked_sources")


@pytest.mark.daily(2)
@DELIVERIES
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@pytest.mark.parametrize("code", ["08006", "42P01", "53100", "57014", "57P01"])
async def test_what_another_database_says_is_the_fault_of_the_event(
    journal: Database, empty_dsn: str, delivery: Any, driver: Any, code: str
) -> None:
    statement = f"DO $$ BEGIN RAISE 'told to' USING ERRCODE = '{code}'; END $$"
    async with connect(empty_dsn, ConnectionSettings(driver=driver)) as other:

        async def ask(session: Session, event: Happened, envelope: EventEnvelope) -> None:
            if envelope.source_id == "b":
                await elsewhere(other, refused(statement))(session)

        await happen(journal, "a", "b", "c")
        told = await caught_up(journal, recording(ask, recovery=NO_RETRY, delivery=delivery))

    assert told.names("parked", "failed") == ["parked"]
    assert {source for source, _ in await effects(journal)} >= {"a", "c"}


async def test_a_time_out_of_another_database_is_the_fault_of_the_event(journal: Database) -> None:
    """An error that no session of the range has raised, twice."""
    left = 2

    async def fail(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        nonlocal left
        if left:
            left -= 1
            raise DatabaseError("canceling statement due to statement timeout", sqlstate="57014")

    await happen(journal, "a")

    told = await caught_up(journal, recording(fail, recovery=Recovery.retry_and_park([0, 0])))

    assert told.names("error", "failed") == ["error", "error"]
    each_once(await effects(journal), a=1)


def test_an_interrupt_ends_the_run_and_counts_against_no_event(dsn: str) -> None:
    told = Told()

    async def interrupt(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        raise KeyboardInterrupt

    async def work() -> None:
        async with connect(dsn) as journal:
            await execute(journal, EFFECTS)
            await happen(journal, "a", "b")
            await run(journal, recording(interrupt), settings=settings(), observer=told)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(work())

    assert told.names("parked", "skipped", "error") == []


@pytest.mark.parametrize(
    "poison",
    [
        raising(NoText),
        raising(GeneratorExit),
        raising(lambda: BaseExceptionGroup("g", [KeyboardInterrupt()])),
        refused("SELECT 1 / 0"),
        refused("INSERT INTO nowhere VALUES (1)"),
    ],
    ids=["no text", "generator exit", "group", "data", "table"],
)
async def test_an_inline_append_fails_with_its_event_and_the_next_one_does_not(
    journal: Database, poison: Poison
) -> None:
    @projection("p", entity_type="plane")
    class Inlined:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            if event.n:
                await poison(session)
            await session.execute("INSERT INTO effects (source_id) VALUES ($1)", envelope.source_id)

    await caught_up(journal, Inlined)
    inline = Inline(Inlined)
    async with journal.session() as session:
        await inline.set_mode(session, "inline")

    async def append(source: str, n: int) -> None:
        async with journal.transaction() as session:
            await inline.append(session, [Event(source, Happened(n=n), "plane")])

    with pytest.raises(
        ProjectionFailed, match="inline, projection 'p', event 'Happened' of source 'a', seq_nr 1"
    ):
        await append("a", 1)
    await append("b", 0)

    assert [source for source, _ in await effects(journal)] == ["b"]
