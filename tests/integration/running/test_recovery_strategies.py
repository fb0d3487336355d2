"""What becomes of an event that cannot be handled, and of those around it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import offsets
from journal import Database
from projections import (
    AtLeastOnce,
    Changes,
    Event,
    EventEnvelope,
    ProjectionFailed,
    Recovery,
    Retries,
    Session,
    Table,
    append,
    handles,
    projection,
    run,
)
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
    failing,
    fetchval,
    happen,
    recording,
    running,
    settings,
    until,
)

TWO = Retries([0.01, 0.02])
DELIVERIES = pytest.mark.parametrize("delivery", [None, AtLeastOnce()], ids=["exactly-once", "at-least-once"])


@pytest.fixture
async def journal(database: Database) -> Database:
    await execute(database, EFFECTS)
    return database


async def decide(database: Database, decision: str, source_id: str | None = None) -> None:
    async with database.session() as session:
        waiting = offsets.ParkedSources(session)
        await {"retry": waiting.retry, "drop": waiting.drop}[decision]("p", source_id)


async def parked(database: Database) -> list[offsets.ParkedSource]:
    async with database.session() as session:
        return await offsets.ParkedSources(session).list("p")


@DELIVERIES
async def test_fail_starts_the_range_again_until_the_handler_succeeds(
    journal: Database, delivery: Any
) -> None:
    told = Told()

    async def fail_twice(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if envelope.source_id == "b" and len(told.all("failed")) < 2:
            raise Failure

    await happen(journal, "a", "b", "a")

    await caught_up(
        journal, recording(fail_twice, recovery=Recovery.fail(), delivery=delivery), observer=told
    )

    assert [type(error) for _, _, error in told.all("failed")] == [ProjectionFailed, ProjectionFailed]
    assert ("b", 1) in await effects(journal)
    if delivery is None:
        each_once(await effects(journal), a=2, b=1)


@DELIVERIES
async def test_skip_stores_the_offset_and_goes_on_with_the_source(journal: Database, delivery: Any) -> None:
    await happen(journal, "a", "b", "a", "a")
    definition = recording(failing(("a", 2)), recovery=Recovery.skip(), delivery=delivery)

    told = await caught_up(journal, definition)
    await happen(journal, "a")
    again = await caught_up(journal, definition)

    assert [e.seq_nr for _, e, _ in told.all("skipped")] == [2]
    assert again.names("skipped", "error") == []
    assert await fetchval(journal, "SELECT seq_nr FROM projections.source_offsets WHERE source_id = 'a'") == 4
    handled = [
        e for e in await effects(journal) if e != ("a", 2)
    ]  # at least once, what the handler did stays
    assert sorted(handled) == [("a", 1), ("a", 3), ("a", 4), ("b", 1)]


@pytest.mark.daily(2)
@DELIVERIES
@pytest.mark.parametrize(
    ("recovery", "end"),
    [(Recovery.retry_and_skip(TWO), "skipped"), (Recovery.retry_and_park(TWO), "parked")],
    ids=["skip", "park"],
)
async def test_an_event_is_tried_once_more_than_there_are_retries(
    journal: Database, delivery: Any, recovery: Recovery, end: str
) -> None:
    await happen(journal, "a")

    told = await caught_up(journal, recording(failing(("a", 1)), recovery=recovery, delivery=delivery))

    assert [attempt for *_, attempt in told.all("error")] == [1, 2, 3]
    assert len(told.all(end)) == 1


async def test_a_retry_that_succeeds_needs_no_giving_up(journal: Database) -> None:
    failures = iter([True, True, False])

    async def fail_twice(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if next(failures):
            raise Failure

    await happen(journal, "a")

    told = await caught_up(journal, recording(fail_twice, recovery=Recovery.retry_and_park(TWO)))

    assert told.names("parked", "skipped", "failed") == []
    each_once(await effects(journal), a=1)


async def test_a_poison_event_in_a_batch_gives_no_other_event_a_second_effect(journal: Database) -> None:
    for _ in range(5):
        await happen(journal, "a", "b", "c")

    told = await caught_up(journal, recording(failing(("b", 3)), recovery=NO_RETRY))

    each_once(await effects(journal), a=5, b=2, c=5)
    assert [(e.source_id, e.seq_nr) for _, e, _ in told.all("parked")] == [("b", 3)]


async def test_a_stop_between_two_attempts_neither_skips_nor_parks(journal: Database) -> None:
    stop, told = asyncio.Event(), Told()
    definition = recording(failing(("a", 1)), recovery=Recovery.retry_and_skip(Retries([3600], limit=3)))
    await happen(journal, "a", "b")
    task = asyncio.create_task(run(journal, definition, settings=settings(), observer=told, stop=stop))
    await told.first("error")

    stop.set()
    async with asyncio.timeout(300):
        await task

    assert told.names("skipped", "parked", "failed") == []
    assert await parked(journal) == []
    await caught_up(journal, recording())
    each_once(await effects(journal), a=1, b=1)


@DELIVERIES
async def test_a_parked_source_waits_while_the_others_flow(journal: Database, delivery: Any) -> None:
    async with running(journal, recording(failing(("a", 1)), recovery=NO_RETRY, delivery=delivery)) as told:
        await happen(journal, "a", "b")
        await told.first("parked")
        await happen(journal, "a", "b", "a")
        await until(journal, "SELECT count(*) = 2 FROM effects WHERE source_id = 'b'")

    [source] = await parked(journal)
    assert (source.source_id, source.seq_nr, source.attempts, source.decision) == ("a", 1, 1, "waiting")
    assert "Failure: a 1" in source.error
    assert [e for e in await effects(journal) if e[0] == "a" and e[1] > 1] == []


@pytest.mark.slow
@DELIVERIES
@pytest.mark.parametrize("decision", ["retry", "drop"])
async def test_a_decision_lets_the_source_go_on_with_all_that_came_meanwhile(
    journal: Database, delivery: Any, decision: str
) -> None:
    broken = True

    async def fail(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if broken and (envelope.source_id, envelope.seq_nr) == ("a", 2):
            raise Failure

    async with running(journal, recording(fail, recovery=NO_RETRY, delivery=delivery)) as told:
        await happen(journal, "a", "a", "b")
        await told.first("parked")
        await happen(journal, "a", "a", "b", "a")
        await until(journal, "SELECT count(*) = 2 FROM effects WHERE source_id = 'b'")
        await execute(
            journal, "DELETE FROM effects WHERE source_id = 'a' AND seq_nr = 2"
        )  # done before it failed
        broken = False
        await decide(journal, decision)
        await until(journal, "SELECT count(*) = 1 FROM effects WHERE source_id = 'a' AND seq_nr = 5")
        await happen(journal, "a")
        await until(journal, "SELECT count(*) = 1 FROM effects WHERE source_id = 'a' AND seq_nr = 6")

    expected = [1, 2, 3, 4, 5, 6] if decision == "retry" else [1, 3, 4, 5, 6]
    assert [seq_nr for source_id, seq_nr in await effects(journal) if source_id == "a"] == expected
    assert await parked(journal) == []


@pytest.mark.slow
async def test_a_parked_source_stays_parked_over_restarts_and_takes_a_decision_at_the_start(
    journal: Database,
) -> None:
    await happen(journal, "a", "b", "a")
    await caught_up(journal, recording(failing(("a", 1)), recovery=NO_RETRY))
    await happen(journal, "a", "b")
    await caught_up(journal, recording(recovery=NO_RETRY))
    each_once(await effects(journal), b=2)

    await decide(journal, "retry")
    await caught_up(journal, recording(recovery=NO_RETRY))

    each_once(await effects(journal), a=3, b=2)
    assert await parked(journal) == []


async def test_a_retry_that_fails_parks_again_and_counts_the_attempts(journal: Database) -> None:
    await happen(journal, "a")
    definition = recording(failing(("a", 1)), recovery=NO_RETRY)
    await caught_up(journal, definition)

    await decide(journal, "retry")
    await caught_up(journal, definition)

    [source] = await parked(journal)
    assert (source.attempts, source.decision) == (2, "waiting")


async def test_a_later_event_that_fails_after_a_retry_parks_the_source_there(journal: Database) -> None:
    await happen(journal, *"aaaaaaaaa")
    await caught_up(journal, recording(failing(("a", 2)), recovery=NO_RETRY))

    await decide(journal, "retry")
    await caught_up(journal, recording(failing(("a", 7)), recovery=NO_RETRY))

    each_once(await effects(journal), a=6)
    assert [source.seq_nr for source in await parked(journal)] == [7]


@pytest.mark.slow
async def test_a_crash_while_a_parked_source_catches_up_forgets_nothing(journal: Database) -> None:
    """The first event is committed, the next is being handled when its backend dies: the horizon is past both."""
    deaths = iter([True])

    async def die(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if (envelope.source_id, envelope.seq_nr) == ("a", 2) and next(deaths, False):
            mine = await session.fetchval("SELECT pg_backend_pid()")
            await fetchval(journal, "SELECT pg_terminate_backend($1, 10000)", mine)

    exact = settings(clock_margin=timedelta(0), save_horizon_every=timedelta(0))
    await happen(journal, "a", "a", "a", "b")
    async with running(journal, recording(failing(("a", 1)), recovery=NO_RETRY), settings=exact):
        newest = await fetchval(journal, "SELECT max(db_timestamp) FROM projections.events")
        await until(
            journal,
            "SELECT min(horizon) > $1::timestamptz + interval '1 s' FROM projections.projection_ranges",
            newest,
        )
    await decide(journal, "retry")

    await caught_up(journal, recording(die, recovery=NO_RETRY), settings=exact)

    each_once(await effects(journal), a=3, b=1)


async def test_several_sources_are_parked_and_decided_apart(journal: Database) -> None:
    await happen(journal, "a", "b", "c", "a", "b")
    await caught_up(journal, recording(failing(("a", 1), ("b", 1)), recovery=NO_RETRY))

    await decide(journal, "retry", "a")
    await caught_up(journal, recording())

    each_once(await effects(journal), a=2, c=1)
    assert [source.source_id for source in await parked(journal)] == ["b"]


async def test_a_payload_that_does_not_fit_fails_with_type_source_number_and_field(journal: Database) -> None:
    async with journal.transaction() as session:
        await append(
            session, [Event("a", {"n": "many"}, "plane", "Happened"), Event("b", Happened(), "plane")]
        )

    told = await caught_up(journal, recording(recovery=NO_RETRY))

    each_once(await effects(journal), b=1)
    message = str(told.all("parked")[0][2])
    assert all(part in message for part in ("'Happened'", "'a'", "seq_nr 1", "n: ")), message


async def test_an_event_without_a_handler_is_passed_over(journal: Database) -> None:
    async with journal.transaction() as session:
        await append(session, [Event("a", {}, "plane", "Other"), Event("a", Happened(), "plane")])

    await caught_up(journal, recording())

    assert await effects(journal) == [("a", 2)]


async def test_an_event_without_a_handler_fails_where_the_projection_says_so(journal: Database) -> None:
    async with journal.transaction() as session:
        await append(session, [Event("a", {}, "plane", "Other"), Event("b", Happened(), "plane")])

    told = await caught_up(journal, recording(recovery=NO_RETRY, unhandled="fail"))

    each_once(await effects(journal), b=1)
    assert "'Other'" in str(told.all("parked")[0][2])
    assert "Happened" in str(told.all("parked")[0][2])


@pytest.mark.daily(1)
@pytest.mark.parametrize("n", [10**6, 10**30])
async def test_a_value_that_a_table_can_not_hold_parks_its_source_alone(journal: Database, n: int) -> None:
    table = Table("sums", key=("source_id",), increment=("total",))

    @projection("p", entity_type="plane", recovery=NO_RETRY)
    class Sums:
        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Changes:
            return table.upsert(source_id=envelope.source_id, total=event.n)

    await execute(
        journal, "CREATE TABLE sums (source_id text PRIMARY KEY, total smallint NOT NULL DEFAULT 0)"
    )
    await happen(journal, "a", "b", n=1)
    await happen(journal, "c", n=n)
    await happen(journal, "a", "b", "c", n=1)

    await caught_up(journal, Sums)

    assert [source.source_id for source in await parked(journal)] == ["c"]
    async with journal.session() as session:
        rows = await session.fetch("SELECT source_id, total FROM sums ORDER BY source_id")
    assert [tuple(row.values()) for row in rows] == [("a", 2), ("b", 2)]


@DELIVERIES
async def test_a_cancellation_that_a_handler_brings_along_is_the_fault_of_its_event(
    journal: Database, delivery: Any
) -> None:
    """Such as that of a task which it waited for: it must not look like the end of the range."""

    async def cancelled(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if envelope.source_id == "a":
            raise asyncio.CancelledError

    await happen(journal, "a", "b")

    told = await caught_up(journal, recording(cancelled, recovery=Recovery.skip(), delivery=delivery))

    assert [e.source_id for _, e, _ in told.all("skipped")] == ["a"]
    assert ("b", 1) in await effects(journal)


@pytest.mark.slow
@DELIVERIES
async def test_a_disk_that_is_full_is_the_fault_of_no_event(journal: Database, delivery: Any) -> None:
    """Nothing is skipped: the range starts again until there is space."""
    full = "DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
    attempts = 0

    async def write(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            await session.execute(full)

    await happen(journal, "a")

    told = await caught_up(journal, recording(write, recovery=Recovery.skip(), delivery=delivery))

    assert told.all("skipped") == []
    assert [str(error) for _, _, error in told.all("failed")] == [
        "the database server cannot go on: could not extend file"
    ] * 2
