"""A handler that hangs fails alone: it is cancelled, told of, and recovery decides; everything else goes on."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import offsets
from journal import ConnectionSettings, Database, connect
from projections import (
    AtLeastOnce,
    EventEnvelope,
    Recovery,
    Session,
    handles,
    handles_group,
    projection,
)
from projections.running.loop_monitor import ABORTED
from tests.fixtures.commands import environment
from tests.fixtures.loop_clock import pass_time
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    Does,
    Failure,
    Happened,
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

PATIENCE = timedelta(seconds=5)
PARKED = "SELECT array_agg(source_id ORDER BY source_id) FROM projections.parked_sources"

BLOCKING = '''
"""Handles the event of one source by holding the event loop, for ever."""
import asyncio, sys, threading
from datetime import timedelta
from journal import connect
from projections import run
from tests.fixtures.projections import recording, settings

async def block(session, event, envelope):
    if envelope.source_id == "bad":
        threading.Event().wait()

async def main(dsn):
    async with connect(dsn) as database:
        quick = settings(abort_after=timedelta(seconds=1), lease=timedelta(seconds=1))
        await run(database, recording(block), ranges=4, settings=quick)

asyncio.run(main(sys.argv[1]))
'''


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=20)) as pool:
        await execute(pool, EFFECTS)
        yield pool


def hanging(*source_ids: str) -> Does:
    """Await for ever at the events of these sources."""

    async def does(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if envelope.source_id in source_ids:
            await hang()

    return does


async def hang() -> None:
    """Await for longer than a handler may, and without an end."""
    await asyncio.Event().wait()


async def hang_alone() -> None:
    """Hang, and let the time of all handlers pass at once: only where no other one is running."""
    pass_time(PATIENCE)
    await hang()


def impatient(**values: Any) -> Any:
    return settings(handler_timeout=PATIENCE, lease=timedelta(hours=1), **values)


@pytest.mark.slow
async def test_an_event_whose_handler_hangs_is_parked_and_the_others_go_on(journal: Database) -> None:
    await happen(journal, "a", "bad", "b")

    told = await caught_up(
        journal, recording(hanging("bad"), recovery=NO_RETRY), settings=impatient(), ranges=3
    )

    (_, envelope, error) = told.all("parked")[0]
    assert envelope.source_id == "bad"
    assert "cancelled after 5 s (handler_timeout)" in str(error)
    each_once(await effects(journal), a=1, b=1)


async def test_what_a_handler_has_done_before_it_hung_is_rolled_back(journal: Database) -> None:
    async def record_and_hang(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await record(session, envelope)
        await hang_alone()

    await happen(journal, "a")

    await caught_up(journal, recording(record_and_hang, recovery=NO_RETRY), settings=impatient())

    assert await effects(journal) == []


async def test_a_statement_that_hangs_is_cancelled_too(journal: Database) -> None:
    """It waits for a lock that somebody keeps."""
    await happen(journal, "a", "bad")

    async def wait(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if envelope.source_id == "bad":
            asyncio.get_running_loop().call_later(0.2, pass_time, PATIENCE)
            await session.fetchval("SELECT pg_advisory_xact_lock(7)")

    async with journal.session() as holder:
        await holder.fetchval("SELECT pg_advisory_lock(7)")
        await caught_up(journal, recording(wait, recovery=NO_RETRY), settings=impatient())
        await holder.fetchval("SELECT pg_advisory_unlock(7)")

    assert await fetchval(journal, PARKED) == ["bad"]
    each_once(await effects(journal), a=1)


@pytest.mark.slow
async def test_a_range_that_recovery_fails_starts_again_later_and_takes_no_other_along(
    journal: Database, caplog: pytest.LogCaptureFixture
) -> None:
    hangs = recording(hanging("bad"), recovery=Recovery.fail())
    with caplog.at_level(logging.ERROR):
        async with running(journal, hangs, recording(name="q"), settings=impatient(), ranges=8) as told:
            await happen(journal, "bad")
            await told.first("failed", 3)
            await happen(journal, "x1", "x2", "bad")  # x1 and x2 are of another range
            await until_effects(journal, 6)
            restarts = (
                "SELECT count(*) = 1 FROM projections.projection_ranges WHERE failures > 0 AND error LIKE $1"
            )
            await until(journal, restarts, "%handler_timeout%")

    assert {args[0] for args in told.all("failed")} == {"p"}
    assert len({args[1] for args in told.all("failed")}) == 1
    delays = [record.message for record in caplog.records if "starting again in" in record.message]
    assert len(delays) >= 3
    by_other = [args for args in told.all("handled") if args[0] == "q"]
    assert sum(len(args[2]) for args in by_other) == 4


async def test_a_handler_that_comes_to_itself_is_tried_again(journal: Database) -> None:
    calls = 0

    async def hang_once(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            await hang_alone()

    await happen(journal, "a")

    await caught_up(journal, recording(hang_once, recovery=Recovery.fail()), settings=impatient())

    assert await effects(journal) == [("a", 1)]


@pytest.mark.slow
async def test_a_group_that_hangs_is_halved_until_the_event_stands_alone(journal: Database) -> None:
    @projection("p", entity_type="plane", recovery=NO_RETRY)
    class Grouped:
        @handles_group(Happened)
        async def happened(self, session: Session, events: Sequence[tuple[Happened, EventEnvelope]]) -> None:
            for _, envelope in events:
                await record(session, envelope)
                if envelope.source_id == "bad":
                    await hang_alone()

    await happen(journal, "a", "bad", "b", "c")

    await caught_up(journal, Grouped, settings=impatient())

    assert await fetchval(journal, PARKED) == ["bad"]
    each_once(await effects(journal), a=1, b=1, c=1)


@pytest.mark.slow
async def test_an_at_least_once_handler_that_hangs_is_cancelled(journal: Database) -> None:
    @projection("p", entity_type="plane", recovery=NO_RETRY, delivery=AtLeastOnce(concurrency=2))
    class Outside:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            if envelope.source_id == "bad":
                await hang()
            await record(session, envelope)

    await happen(journal, "a", "bad", "b")

    await caught_up(journal, Outside, settings=impatient())

    assert await fetchval(journal, PARKED) == ["bad"]
    each_once(await effects(journal), a=1, b=1)


async def test_a_time_out_of_a_handlers_own_is_told_as_its_own(journal: Database) -> None:
    async def own(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        raise TimeoutError("the carrier did not answer")

    await happen(journal, "a")

    told = await caught_up(journal, recording(own, recovery=NO_RETRY))

    error = str(told.all("parked")[0][2])
    assert "TimeoutError: the carrier did not answer" in error
    assert "handler_timeout" not in error


async def test_a_process_whose_loop_is_held_ends_and_another_takes_over(journal: Database, dsn: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BLOCKING, dsn),
        cwd=Path(__file__).parents[3], stderr=asyncio.subprocess.PIPE, env=environment(),
    )  # fmt: skip
    try:
        await until(journal, "SELECT count(*) = 4 AND count(owner) = 4 FROM projections.projection_ranges")
        await happen(journal, "a", "bad", "b")
        _, said = await asyncio.wait_for(process.communicate(), 300)
        await caught_up(journal, recording())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert process.returncode == ABORTED == 70
    assert b"while handling event 'Happened' of source 'bad'" in said
    each_once(await effects(journal), a=1, b=1, bad=1)


@pytest.mark.parametrize("delivery", [None, AtLeastOnce()], ids=["exactly-once", "at-least-once"])
async def test_a_handler_that_exits_ends_neither_the_process_nor_looks_like_its_end(
    journal: Database, delivery: Any
) -> None:
    async def leave(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if envelope.source_id == "a":
            sys.exit(0)

    await happen(journal, "a", "b")

    await caught_up(journal, recording(leave, recovery=NO_RETRY, delivery=delivery))

    async with journal.session() as session:
        [parked] = await offsets.ParkedSources(session).list("p")
    assert parked.source_id == "a"
    assert "SystemExit: 0" in parked.error
    assert ("b", 1) in await effects(journal)


@pytest.mark.daily(1)
@pytest.mark.parametrize("hook", ["start", "stop"])
async def test_a_hook_that_hangs_or_exits_is_told_and_tried_again(journal: Database, hook: str) -> None:
    calls = 0

    async def misbehave(self: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            await hang_alone()
        if calls == 2:
            sys.exit(0)

    async def fail(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if calls < 2:
            raise Failure

    hooked = recording(fail, recovery=Recovery.fail())
    setattr(hooked, hook, misbehave)
    await happen(journal, "a")

    told = await caught_up(journal, hooked, settings=impatient())

    said = [str(error) for _, _, error in told.all("failed")]
    assert any(f"{hook}() was cancelled after 5 s" in one for one in said)
    assert any(f"{hook}() raised SystemExit(0)" in one for one in said)
    assert await effects(journal) == [("a", 1)]


async def test_a_handler_that_swallows_its_cancellation_is_named(
    journal: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.running.loop_monitor._GRACE", 0.3)
    go_on = asyncio.Event()

    async def swallow(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()

    await happen(journal, "a")
    quick = settings(handler_timeout=timedelta(milliseconds=200), blocked_after=timedelta(milliseconds=200))
    with caplog.at_level(logging.ERROR):
        async with running(journal, recording(swallow), settings=quick):
            async with asyncio.timeout(300):
                while not (
                    told := [r for r in caplog.records if getattr(r, "action", "") == "handler_stuck"]
                ):
                    await fetchval(journal, "SELECT 1")
            go_on.set()

    assert "source 'a', seq_nr 1" in told[0].getMessage()
