"""Reading several entity types: what merging them costs beside one."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial

import psycopg

from journal import ALL_SLICES, BEGINNING, Database, EntityTypes, Position, SliceReader
from journal.database import connect
from tests.benchmarks import workload
from tests.benchmarks.harness import Goal, Line, Sizes, compare
from tests.benchmarks.server import Server, settle

_TYPES = [f"type{n}" for n in range(20)]
_SPREAD = """
UPDATE projections.sources SET entity_type = 'type' || abs(hashtext(source_id)) % 20;
UPDATE projections.events AS e SET entity_type = s.entity_type
FROM projections.sources AS s WHERE e.source_id = s.source_id
"""
_FIRST_PAGE = 100


def _fill(dsn: str, sizes: Sizes) -> None:
    workload.fill(dsn, sizes.large_backlog, sizes.sources)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_SPREAD)
        connection.execute("VACUUM FULL projections.events")


async def _read(database: Database, types: EntityTypes, page: int, limit: int) -> float:
    """Events in a second, a page at a time."""
    reader = SliceReader(types, ALL_SLICES, page)
    begun, position, done = time.perf_counter(), Position.before(BEGINNING), 0
    async with database.session() as session:
        until = datetime.now(UTC)
        while done < limit and (events := await reader.events(session, position, until)):
            position, done = events[-1].position, done + len(events)
    return done / (time.perf_counter() - begun)


async def _first_page(database: Database, types: EntityTypes) -> float:
    """Milliseconds until a page is there."""
    reader = SliceReader(types, ALL_SLICES, _FIRST_PAGE)
    async with database.session() as session:
        begun = time.perf_counter()
        await reader.events(session, Position.before(BEGINNING), datetime.now(UTC))
        return (time.perf_counter() - begun) * 1000


async def measure_types(server: Server, sizes: Sizes) -> list[Line]:
    """One journal of 20 types; 1, 3 and 20 of them are read."""
    limit = sizes.large_backlog // 25  # each type has as many
    several = {f"{number} types": EntityTypes.of(_TYPES[:number]) for number in (3, 20)}
    read = {"1 type": EntityTypes.of(_TYPES[0]), **several}
    lines = []
    async with AsyncExitStack() as stack:
        dsn = stack.enter_context(server.database())
        await asyncio.to_thread(_fill, dsn, sizes)
        await asyncio.to_thread(settle, dsn)
        database = await stack.enter_async_context(connect(dsn))
        for types in read.values():
            await _first_page(database, types)
        for page in (1_000, 5_000):
            rates = await compare(
                {name: partial(_read, database, types, page, limit) for name, types in read.items()},
                sizes.rounds,
            )
            lines += [
                rates.line(
                    f"read {name}, pages of {page:,}",
                    "events/s",
                    name,
                    "1 type",
                    Goal(0.8 if page > 1_000 else 0.6),
                )
                for name in several
            ]
        pages = await compare(
            {name: partial(_first_page, database, types) for name, types in read.items()}, sizes.first_batches
        )
        lines += [pages.line(f"a page of {_FIRST_PAGE}, {name}", "ms", name, "1 type") for name in several]
    return lines
