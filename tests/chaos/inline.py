"""
A process of the test of inline projections: `python -m tests.chaos.inline worker|append DSN`, until it is killed.

Two projections, each handled by whoever may: one whose rows sources share, and one that writes a row for each event.
"""

from __future__ import annotations

import asyncio
import random
import sys
from datetime import timedelta

import asyncpg

from journal import append, connect
from projections import (
    Changes,
    Event,
    EventEnvelope,
    Inline,
    RunSettings,
    Session,
    Table,
    handles,
    projection,
    run,
)
from tests.fixtures.projections import Happened

TOTALS = Table("totals", key="kind", increment="n")
TABLES = (
    "CREATE TABLE totals (kind text PRIMARY KEY, n bigint NOT NULL DEFAULT 0)",
    "CREATE TABLE effects (n bigserial PRIMARY KEY, source_id text NOT NULL, seq_nr bigint NOT NULL)",
)
SOURCES = 300


@projection("totals", entity_type="plane", batch_size=20)
class Totals:
    @handles(Happened)
    def happened(self, event: Happened, envelope: EventEnvelope) -> Changes:
        return TOTALS.upsert(kind=f"kind {event.n % 3}", n=1)


@projection("effects", entity_type="plane", batch_size=20)
class Effects:
    @handles(Happened)
    async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await session.execute(
            "INSERT INTO effects (source_id, seq_nr) VALUES ($1, $2)", envelope.source_id, envelope.seq_nr
        )


async def work(dsn: str) -> None:
    settings = RunSettings(heartbeat=timedelta(milliseconds=200), lease=timedelta(seconds=1))
    async with connect(dsn) as database:
        print("running", flush=True)
        await run(database, Totals, Effects, ranges=3, settings=settings)


async def append_on(dsn: str) -> None:
    """Append by turns: inline, inline for one projection, by those who know nothing of it, and what is rolled back."""
    chance = random.Random()
    ways = [Inline(Totals, Effects).append, Inline(Effects).append, append]
    connection = await asyncpg.connect(dsn)
    print("running", flush=True)
    while True:
        sources = chance.choices(range(SOURCES), k=chance.randint(1, 4))
        events = [Event(f"s{source}", Happened(n=chance.randint(0, 9)), "plane") for source in sources]
        transaction = connection.transaction()
        await transaction.start()
        try:
            await chance.choices(ways, [12, 4, 1])[0](connection, events)
        except asyncpg.DeadlockDetectedError:
            await transaction.rollback()
            raise
        await (transaction.rollback() if chance.random() < 0.1 else transaction.commit())


if __name__ == "__main__":
    asyncio.run({"worker": work, "append": append_on}[sys.argv[1]](sys.argv[2]))
