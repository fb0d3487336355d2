"""Effects outside the database: the offset follows them, a crash repeats the last ones, sources keep their order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from journal import Database
from projections import AtLeastOnce, EventEnvelope, Group, Session, handles, handles_group, projection, run
from projections.testing import run_until_caught_up
from tests.fixtures.projections import Happened, Told, each_once, fetchval, happen, running, settings, until

OFFSETS = "SELECT coalesce(sum(seq_nr), 0) FROM projections.source_offsets"


def seeing(seen: list[tuple[str, int]], does: Any = None, **delivery: Any) -> type[Any]:
    @projection("p", entity_type="plane", delivery=AtLeastOnce(**delivery))
    class Seeing:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            if does is not None:
                await does(session, envelope)
            seen.append((envelope.source_id, envelope.seq_nr))

    return Seeing


@pytest.mark.slow
async def test_without_faults_every_event_is_handled_once_in_its_sources_order(database: Database) -> None:
    seen: list[tuple[str, int]] = []
    for _ in range(10):
        await happen(database, "a", "b", "c")

    await run_until_caught_up(database, seeing(seen, after=4, concurrency=3))
    await run_until_caught_up(database, seeing(seen, after=4, concurrency=3))

    each_once(seen, a=10, b=10, c=10)


async def test_the_offset_is_stored_after_so_many_events(database: Database) -> None:
    stored: list[int] = []

    async def look(session: Session, envelope: EventEnvelope) -> None:
        stored.append(int(await session.fetchval(OFFSETS)))

    await happen(database, *["a"] * 7)

    await run_until_caught_up(database, seeing([], look, after=3, within=timedelta(hours=1)))

    assert stored == [0, 0, 0, 3, 3, 3, 6]


async def test_the_offset_is_stored_after_a_time_while_handlers_work(database: Database) -> None:
    """The second event waits until the first one's offset is there, though the batch is far from its end."""

    async def wait(session: Session, envelope: EventEnvelope) -> None:
        if envelope.seq_nr == 2:
            await until(database, "SELECT seq_nr = 1 FROM projections.source_offsets")

    seen: list[tuple[str, int]] = []
    await happen(database, "a", "a", "a")

    async with asyncio.timeout(300):
        await run_until_caught_up(database, seeing(seen, wait, within=timedelta(milliseconds=5)))

    each_once(seen, a=3)


async def test_sources_are_handled_at_the_same_time(database: Database) -> None:
    """Each handler waits for those of the other sources: one after the other they would wait for ever."""
    barrier = asyncio.Barrier(3)

    async def meet(session: Session, envelope: EventEnvelope) -> None:
        await barrier.wait()

    seen: list[tuple[str, int]] = []
    await happen(database, "a", "b", "c", "a", "b", "c")

    async with asyncio.timeout(300):
        await run_until_caught_up(database, seeing(seen, meet, concurrency=3))

    each_once(seen, a=2, b=2, c=2)


@pytest.mark.slow
async def test_no_more_sources_than_said_are_handled_at_the_same_time(database: Database) -> None:
    active, most = 0, 0

    async def count(session: Session, envelope: EventEnvelope) -> None:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await session.fetchval("SELECT 1")
        active -= 1

    await happen(database, *"abcdefghij")

    await run_until_caught_up(database, seeing([], count, concurrency=2))

    assert most <= 2


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_crash_repeats_no_more_than_what_was_not_stored(database: Database, at: int) -> None:
    """The process is cancelled in the middle of the third chunk: the first two are not handled again."""
    entered = asyncio.Event()

    async def hang(session: Session, envelope: EventEnvelope) -> None:
        if envelope.seq_nr == 6 + at:
            entered.set()
            await asyncio.Event().wait()

    first: list[tuple[str, int]] = []
    await happen(database, *["a"] * 9)
    crashed = asyncio.create_task(
        run(database, seeing(first, hang, after=3, within=timedelta(hours=1)), settings=settings())
    )
    await entered.wait()
    again: list[tuple[str, int]] = []
    await until(database, "SELECT sum(seq_nr) >= 6 FROM projections.source_offsets")
    crashed.cancel()
    await asyncio.gather(crashed, return_exceptions=True)

    await run_until_caught_up(database, seeing(again, after=3))

    assert first == [("a", n) for n in range(1, 6 + at)]
    assert again == [("a", n) for n in range(again[0][1], 10)]
    assert 7 <= again[0][1] <= 6 + at


async def test_a_statement_of_the_handler_stays_when_the_handler_fails_later(database: Database) -> None:
    await fetchval(database, "CREATE TABLE notes (note text)")
    attempts = iter(range(1, 3))

    async def note(session: Session, envelope: EventEnvelope) -> None:
        await session.execute("INSERT INTO notes VALUES ('done')")
        if next(attempts) == 1:
            raise RuntimeError

    await happen(database, "a")

    await run_until_caught_up(database, seeing([], note))

    assert await fetchval(database, "SELECT count(*) FROM notes") == 2


@pytest.mark.slow
async def test_groups_are_handled_at_least_once(database: Database) -> None:
    lists: list[list[tuple[str, int]]] = []

    @projection("p", entity_type="plane", delivery=AtLeastOnce(), group=Group(4, timedelta(milliseconds=1)))
    class Lists:
        @handles_group(Happened)
        async def many(self, session: Session, events: Sequence[tuple[Happened, EventEnvelope]]) -> None:
            lists.append([(e.source_id, e.seq_nr) for _, e in events])

    for _ in range(3):
        await happen(database, "a", "b", "c")

    await run_until_caught_up(database, Lists)

    assert [len(events) for events in lists] == [4, 4, 1]
    each_once([place for events in lists for place in events], a=3, b=3, c=3)


async def test_the_observer_is_told_of_what_was_handled(database: Database) -> None:
    async with running(database, seeing([])) as told:
        await happen(database, "a")
        _, _, envelopes = await told.first("handled")

    assert isinstance(told, Told)
    assert [(e.source_id, e.seq_nr) for e in envelopes] == [("a", 1)]
