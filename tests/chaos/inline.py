"""
A process of the chaos of inline projections: it works, or appends, until it is killed or told to end.

Two projections, each handled by whoever may: one whose rows sources share, and one that writes a row for each event.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from typing import Any

import asyncpg

from journal import ConnectionSettings, ProjectionsError, append, connect
from projections import (
    Backoff,
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
    "CREATE TABLE effects (n bigserial PRIMARY KEY, source_id text NOT NULL, seq_nr bigint NOT NULL, event_id uuid)",
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
            "INSERT INTO effects (source_id, seq_nr, event_id) VALUES ($1, $2, $3)",
            envelope.source_id, envelope.seq_nr, envelope.event_id,
        )  # fmt: skip


def events_of(choices: random.Random) -> list[Event]:
    """One to four events of any sources."""
    sources = choices.choices(range(SOURCES), k=choices.randint(1, 4))
    return [Event(f"s{source}", Happened(n=choices.randint(0, 9)), "plane") for source in sources]


async def work(dsn: str, driver: Any, *, last: bool, stop: asyncio.Event) -> None:
    settings = RunSettings(
        heartbeat=timedelta(milliseconds=200),
        lease=timedelta(seconds=1),
        restart=Backoff(timedelta(milliseconds=20), timedelta(milliseconds=200)),
    )
    async with connect(dsn, ConnectionSettings(driver=driver, max_connections=8)) as database:
        print("running", flush=True)
        await run(
            database, Totals, Effects, ranges=3, settings=settings, stop=stop, until_caught_up=last, take_over=last
        )  # fmt: skip


async def append_on(dsn: str, stop: asyncio.Event) -> None:
    """Append by turns: inline, inline for one projection, by those who know nothing of it, and what is rolled back."""
    choices = random.Random()
    ways = [Inline(Totals, Effects).append, Inline(Effects).append, append]
    print("running", flush=True)
    while not stop.is_set():
        with suppress(*_HARM):
            connection = await asyncpg.connect(dsn)
            try:
                while not stop.is_set():
                    transaction = connection.transaction()
                    await transaction.start()
                    await choices.choices(ways, [12, 4, 1])[0](connection, events_of(choices))
                    await (transaction.rollback() if choices.random() < 0.1 else transaction.commit())
                    await asyncio.sleep(choices.uniform(0, 0.02))
            finally:
                connection.terminate()
        await asyncio.sleep(0.05)


# What faults do to a connection: a deadlock is not among it, and ends the process.
_HARM = (
    OSError,
    ProjectionsError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresConnectionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)


async def main(dsn: str, driver: Any, role: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    if role == "append":
        await append_on(dsn, stop)
    else:
        await work(dsn, driver, last=role == "until_caught_up", stop=stop)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main(*sys.argv[1:]))
