"""Handlers that get lists: their sizes, their order, and what happens when one fails."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

import offsets
from journal import Database
from projections import (
    AtLeastOnce,
    Event,
    EventEnvelope,
    Group,
    Session,
    append,
    handles_group,
    projection,
)
from projections.testing import run_until_caught_up
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    Failure,
    Happened,
    caught_up,
    each_once,
    effects,
    execute,
    happen,
    record,
    running,
    until_effects,
)

DELIVERIES = pytest.mark.parametrize("delivery", [None, AtLeastOnce()], ids=["exactly-once", "at-least-once"])


@pytest.fixture
async def journal(database: Database) -> Database:
    await execute(database, EFFECTS)
    return database


async def parked(database: Database) -> list[offsets.ParkedSource]:
    async with database.session() as session:
        return await offsets.ParkedSources(session).list("p")


def grouped(seen: list[list[tuple[str, int]]], *poison: tuple[str, int], **options: Any) -> type[Any]:
    @projection("p", entity_type="plane", **options)
    class Grouped:
        @handles_group(Happened)
        async def many(self, session: Session, events: Sequence[tuple[Happened, EventEnvelope]]) -> None:
            places = [(e.source_id, e.seq_nr) for _, e in events]
            seen.append(places)
            if set(places) & set(poison):
                raise Failure
            for _, envelope in events:
                await record(session, envelope)

    return Grouped


@pytest.mark.slow
@DELIVERIES
async def test_a_group_that_fails_is_halved_until_the_event_at_fault_stands_alone(
    journal: Database, delivery: Any
) -> None:
    for _ in range(4):
        await happen(journal, "a", "b", "c", "d")
    definition = grouped([], ("b", 2), recovery=NO_RETRY, delivery=delivery)

    await caught_up(journal, definition)

    each_once(await effects(journal), a=4, b=1, c=4, d=4)
    assert [(source.source_id, source.seq_nr) for source in await parked(journal)] == [("b", 2)]


@pytest.mark.daily(1)
@DELIVERIES
async def test_a_group_has_no_more_events_than_its_size(journal: Database, delivery: Any) -> None:
    seen: list[list[tuple[str, int]]] = []
    for _ in range(5):
        await happen(journal, "a", "b", "c")

    await run_until_caught_up(
        journal, grouped(seen, group=Group(4, timedelta(milliseconds=1)), delivery=delivery)
    )

    assert max(map(len, seen)) == 4
    each_once(await effects(journal), a=5, b=5, c=5)


async def test_a_group_that_is_not_full_waits_for_more(journal: Database) -> None:
    """The second event is appended while the group of the first is waiting."""
    seen: list[list[tuple[str, int]]] = []
    group = Group(2, timedelta(seconds=5))
    async with running(journal, grouped(seen, group=group)):
        await happen(journal, "a")
        await happen(journal, "b")
        await until_effects(journal, 2)

    assert sum(map(len, seen)) == 2


async def test_methods_of_groups_see_a_source_in_its_order(journal: Database) -> None:
    class Other(Happened):
        pass

    seen: list[tuple[str, int]] = []

    @projection("p", entity_type="plane")
    class TwoLists:
        @handles_group(Happened)
        async def happened(self, session: Session, events: Sequence[tuple[Happened, EventEnvelope]]) -> None:
            seen.extend((e.source_id, e.seq_nr) for _, e in events)

        @handles_group(Other)
        async def other(self, session: Session, events: Sequence[tuple[Other, EventEnvelope]]) -> None:
            seen.extend((e.source_id, e.seq_nr) for _, e in events)

    async with journal.transaction() as session:
        models = [Happened(), Other(), Happened(), Other(), Other(), Happened()]
        await append(session, [Event(source_id, m, "plane") for m in models for source_id in ("a", "b")])

    await run_until_caught_up(journal, TwoLists)

    each_once(seen, a=6, b=6)
