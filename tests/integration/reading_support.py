"""Writers on connections of their own, and a live reader that a test takes events from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from journal import (
    Database,
    Event,
    EventEnvelope,
    append,
    slice_of,
)
from offsets.live import live_events

KIND = "thing"
_INSERT = """
INSERT INTO projections.events (
    db_timestamp, seq_nr, event_id, slice, version, source_id, entity_type, event_type, payload
) VALUES ($1, 1, gen_random_uuid(), $2, 1, $3, $4, 'happened', '{}')
"""
WAIT = 20.0
"""Seconds after which a test gives up; nothing takes that long."""


def event(source_id: str, payload: object = None, event_id: UUID | None = None) -> Event:
    return Event(source_id, payload, KIND, "happened", event_id=event_id)


async def write(connection: Any, *source_ids: str) -> None:
    """Append an event to each source, in a transaction of its own where none is open."""
    async with connection.transaction():
        await append(connection, [event(source_id) for source_id in source_ids])


class Live:
    """A live reader in a task, and what it has delivered."""

    def __init__(self, iterator: AsyncIterator[EventEnvelope]) -> None:
        self._iterator = iterator

    async def take(self, count: int = 1) -> list[EventEnvelope]:
        async with asyncio.timeout(WAIT):
            return [await anext(self._iterator) for _ in range(count)]

    async def keys(self, count: int = 1) -> list[tuple[str, int]]:
        return [(e.source_id, e.seq_nr) for e in await self.take(count)]


@asynccontextmanager
async def live(database: Database, **options: Any) -> AsyncIterator[Live]:
    """Read from now on; begun before the block."""
    async with database.session() as session:
        options.setdefault("start", await session.fetchval("SELECT clock_timestamp()"))
    async with aclosing(live_events(database, KIND, **options)) as iterator:
        yield Live(iterator)


async def insert_at(connection: Any, at: datetime, source_ids: Sequence[str]) -> None:
    """Put first events of sources into the log with one timestamp, as nothing but the library may do."""
    await connection.execute("LOCK TABLE projections.sources IN ROW EXCLUSIVE MODE")
    await connection.executemany(
        _INSERT,
        [(at, slice_of(source_id), source_id, KIND) for source_id in source_ids],
    )


async def now(connection: Any) -> datetime:
    found: datetime = await connection.fetchval("SELECT clock_timestamp()")
    return found
