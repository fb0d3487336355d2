"""Rebuilding projections over several entity types, and rebuilds that change what a projection reads."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import offsets
from journal import (
    ALL_TYPES,
    Database,
    EntityTypes,
    SliceRange,
    append,
    import_events,
)
from journal.events import HistoricEvent
from offsets.errors import WrongEntityType
from projections import Changes, Event, EventEnvelope, Session, handles, projection, run
from spark_projections.errors import NotRebuildable
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.journal import PAST
from tests.fixtures.projections import Happened, caught_up, each_once, effects, running, settings, until
from tests.fixtures.rebuilds import COUNTS, ONE, Gate, fence_passes

BOTH = ("plane", "airport")


def counts(types: Any, version: int = 1) -> type[Any]:
    @projection("counts", entity_type=types, version=version)
    class Counts:
        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Changes:
            return COUNTS.upsert(source_id=envelope.source_id, n=1, last=envelope.seq_nr)

    return Counts


def writes(types: Any, version: int = 1) -> type[Any]:
    @projection("effects", entity_type=types, version=version, tables=("effects",))
    class Effects:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            await session.execute(
                "INSERT INTO effects (source_id, seq_nr) VALUES ($1, $2)", envelope.source_id, envelope.seq_nr
            )

    return Effects


async def happen(database: Database, *events: tuple[str, str]) -> None:
    async with database.transaction() as session:
        await append(session, [Event(source, Happened(), kind) for kind, source in events])


async def counted(database: Database) -> dict[str, int]:
    async with database.session() as session:
        rows = await session.fetch("SELECT source_id, n, last FROM counts")
    assert all(row["n"] == row["last"] for row in rows)
    return {row["source_id"]: row["n"] for row in rows}


async def reads(database: Database, name: str) -> EntityTypes:
    async with database.session() as session:
        return (await offsets.status(session, name)).entity_types


@pytest.mark.daily(1)
@pytest.mark.parametrize("types", [BOTH, ALL_TYPES], ids=["two", "all"])
@pytest.mark.parametrize("define", [counts, writes])
async def test_the_result_is_that_of_live_workers_which_go_on_from_it(
    journal: Database, dsn: str, types: Any, define: Any
) -> None:
    await happen(journal, *((BOTH[n % 2], f"s{n % 10}") for n in range(100)))
    await caught_up(journal, define(types))
    before = [await counted(journal), sorted(await effects(journal))]
    await fence_passes(journal)

    result = await rebuild(journal, dsn, define(types), ONE)

    assert (result.events, result.sources) == (100, 10)
    assert [await counted(journal), sorted(await effects(journal))] == before
    await happen(journal, ("plane", "s0"), ("airport", "s1"), ("airport", "new"))
    await caught_up(journal, define(types))
    if define is counts:
        assert await counted(journal) == {f"s{n}": 10 + (n < 2) for n in range(10)} | {"new": 1}
    else:
        each_once(await effects(journal), **{f"s{n}": 10 + (n < 2) for n in range(10)}, new=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"),
    [("plane", BOTH), (BOTH, "plane"), ("plane", ALL_TYPES), (ALL_TYPES, BOTH), (("plane", "ship"), BOTH)],
    ids=["one more", "one less", "to all", "from all", "another"],
)
async def test_a_new_version_reads_other_types_from_their_beginning(
    journal: Database, dsn: str, first: Any, second: Any
) -> None:
    kinds = ("plane", "airport", "ship")
    await happen(journal, *((kinds[n % 3], f"{kinds[n % 3]}{n % 9}") for n in range(90)))
    await caught_up(journal, counts(first))
    # What was handled long ago is known by its age alone.
    async with journal.session() as session:
        number = (await offsets.status(session, "counts")).projection_id
        await offsets.evict(session, number, timedelta(0))
    await fence_passes(journal)

    await rebuild(journal, dsn, counts(second, 2), ONE)

    assert await reads(journal, "counts") == EntityTypes.of(second)
    wanted = {f"{kinds[n % 3]}{n}": 10 for n in range(9) if kinds[n % 3] in EntityTypes.of(second)}
    assert await counted(journal) == wanted
    await happen(journal, *((kind, f"{kind}-new") for kind in kinds))
    await caught_up(journal, counts(second, 2))
    for kind in kinds:
        if kind in EntityTypes.of(second):
            wanted |= {f"{kind}-new": 1}
    assert await counted(journal) == wanted
    with pytest.raises(WrongEntityType):
        await caught_up(journal, counts(first, 2))


@pytest.mark.slow
async def test_workers_of_both_versions_run_beside_the_rebuild_that_adds_a_type(
    journal: Database, dsn: str
) -> None:
    await happen(journal, *((BOTH[n % 2], f"s{n % 10}") for n in range(40)))
    async with running(journal, counts("plane"), ranges=3):
        await until(journal, "SELECT count(*) = 5 FROM counts")
        stop = asyncio.Event()
        newer = asyncio.create_task(run(journal, counts(BOTH, 2), settings=settings(), stop=stop))
        await until(journal, "SELECT count(*) = 2 FROM projections.workers")
        await happen(journal, ("plane", "s0"), ("airport", "s1"))
        await until(journal, "SELECT bool_or(n = 5) FROM counts")
        await fence_passes(journal)

        await rebuild(journal, dsn, counts(BOTH, 2), ONE)

        await happen(journal, ("plane", "s0"), ("airport", "s1"))
        await until(journal, "SELECT count(*) = 2 FROM counts WHERE n = 6")
        stop.set()
        await newer

    assert await counted(journal) == {f"s{n}": 4 + 2 * (n < 2) for n in range(10)}


@pytest.mark.slow
@pytest.mark.parametrize("when", ["fence", "verify", "swap"])
async def test_history_of_the_added_type_that_is_imported_meanwhile_is_handled_once(
    journal: Database, dsn: str, when: str
) -> None:
    await happen(journal, ("plane", "a"), ("airport", "b"))
    await caught_up(journal, counts("plane"))
    await fence_passes(journal)
    old = [HistoricEvent("old", Happened(), "airport", seq_nr=1, db_timestamp=PAST)]

    async def load() -> None:
        await import_events(journal, old)

    gate = Gate(journal, dsn, counts(BOTH, 2))
    await gate.at(when, load)

    await caught_up(journal, counts(BOTH, 2))
    assert await counted(journal) == {"a": 1, "b": 1, "old": 1}


async def test_a_part_of_the_slices_cannot_read_other_types(journal: Database, dsn: str) -> None:
    await happen(journal, ("plane", "a"))
    await caught_up(journal, counts("plane"))

    with pytest.raises(NotRebuildable, match="a part of the slices cannot run another version"):
        await rebuild(journal, dsn, counts(BOTH, 2), RebuildOptions(slices=SliceRange(0, 511)))
    with pytest.raises(WrongEntityType):
        await rebuild(journal, dsn, counts(BOTH), RebuildOptions(slices=SliceRange(0, 511)))
