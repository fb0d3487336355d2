"""Parts of a rebuild whose handlers write the same rows: they wait for one another, and conflicts are tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from journal import Database
from projections import EventEnvelope, Session, handles, handles_group, projection
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.projections import Happened, execute, fetchval, until
from tests.fixtures.rebuilds import held, source_in, until_held_up, write

_COUNT = "INSERT INTO sums AS s (key, n) VALUES ($1, 1) ON CONFLICT (key) DO UPDATE SET n = s.n + 1"


@projection("contending", entity_type="plane", tables=("sums",), batch_size=5)
class Contending:
    """Every source writes the rows 0 to 4, the sources of the upper slices in the other direction."""

    @handles(Happened)
    async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
        turn = envelope.seq_nr % 5
        await session.execute(_COUNT, turn if envelope.slice < 512 else 4 - turn)
        if event.n:
            await session.fetchval("SELECT pg_advisory_xact_lock_shared($1::bigint)", event.n)


@projection("contending-groups", entity_type="plane", tables=("sums",))
class ContendingGroups:
    @handles_group(Happened)
    async def happened(self, session: Session, events: Sequence[tuple[Happened, EventEnvelope]]) -> None:
        for _, envelope in events:
            await session.execute(_COUNT, envelope.seq_nr % 5)


@pytest.fixture
async def journal(journal: Database) -> Database:
    await execute(journal, "CREATE TABLE sums (key bigint PRIMARY KEY, n bigint NOT NULL)")
    return journal


async def sums(database: Database) -> list[int]:
    return list(await fetchval(database, "SELECT array_agg(n::int ORDER BY key) FROM sums"))


@pytest.mark.slow
async def test_parts_that_lock_rows_in_different_orders_are_tried_again(journal: Database, dsn: str) -> None:
    """One waits for a row of the other, which asks for one of the first when it goes on: a deadlock, with a victim."""
    low, high = source_in(0, 300), source_in(700, 1023)
    numbers = [0, 1, 0, 0, 0]
    await write(journal, *((low, n) for n in numbers), *((high, n) for n in numbers))
    async with held(journal) as let_go:
        task = asyncio.create_task(rebuild(journal, dsn, Contending, RebuildOptions(splits=2)))
        await until_held_up(journal, 2)
        await let_go()
        result = await task

    assert result.events == 10
    assert await sums(journal) == [2, 2, 2, 2, 2]
    await until(journal, "SELECT deadlocks > 0 FROM pg_stat_database WHERE datname = current_database()")


@pytest.mark.slow
@pytest.mark.parametrize("definition", [Contending, pytest.param(ContendingGroups, marks=pytest.mark.slow)])
async def test_rows_that_all_parts_write_have_every_effect_once(
    journal: Database, dsn: str, definition: Any
) -> None:
    await write(journal, *((f"s{n % 16}", 0) for n in range(400)))

    result = await rebuild(journal, dsn, definition, RebuildOptions(splits=4))

    assert result.events == 400
    assert sum(await sums(journal)) == 400
