"""A worker that a test is rude to. Each effect says who wrote it, and which epoch that one believed to hold."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

from journal import ConnectionSettings, Database, Log, connect
from journal.foreign import Constant, TableMapping, table_log
from projections import Backoff, EventEnvelope, RunSettings, Session, handles, projection, run
from projections.running import range_supervisor
from projections.running.range_runner import RangeRunner
from tests.fixtures.projections import Happened

LEASE = timedelta(seconds=1)
EFFECTS = """
CREATE TABLE effects (
    n bigserial PRIMARY KEY, journal integer, source_id text, seq_nr bigint, event_id uuid, slice integer, worker text,
    epoch bigint, xid xid8 DEFAULT pg_current_xact_id()
)
"""
FOREIGN = (
    """CREATE TABLE log (
        source text, number bigint, at timestamptz NOT NULL DEFAULT now(), body jsonb NOT NULL DEFAULT '{}',
        PRIMARY KEY (source, number)
    )""",
    "CREATE INDEX ON log (at)",
)
"""The journal of another system."""
_MAPPING = TableMapping(
    table="log", source="source", number="number", position="at", bound="transaction-start",
    entity_type=Constant("plane"), event_type=Constant("Happened"), payload="body",
)  # fmt: skip
_HOLDER: ContextVar[tuple[str, int]] = ContextVar("holder")


class Believing(RangeRunner):
    """Tells the handler what the range believes, which may have ceased to be so."""

    async def run(self) -> None:
        _HOLDER.set((self._process.worker.owner, self.claim.epoch))
        await super().run()


@projection("chaos", entity_type="plane", batch_size=20)
class Effects:
    @handles(Happened)
    async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await session.execute(
            "INSERT INTO effects (journal, source_id, seq_nr, event_id, slice, worker, epoch) "
            "VALUES ($1, $2, $3, $4, $5, $6, $7)",
            event.n, envelope.source_id, envelope.seq_nr, envelope.event_id, envelope.slice, *_HOLDER.get(),
        )  # fmt: skip


async def main(dsn: str, driver: Any, *options: str) -> None:
    settings = RunSettings(
        lease=LEASE,
        heartbeat=timedelta(milliseconds=100),
        save_horizon_every=timedelta(milliseconds=200),
        restart=Backoff(timedelta(milliseconds=20), timedelta(milliseconds=200)),
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    last = "until_caught_up" in options
    async with AsyncExitStack() as stack:
        connections = ConnectionSettings(driver=driver, max_connections=8)
        database = await stack.enter_async_context(connect(dsn, connections))
        journal = await _journals(stack, connections, options)
        if "both" in options:
            journal.append(database)
        print("running", flush=True)
        await run(
            database, Effects, ranges=8, settings=settings, stop=stop, until_caught_up=last, take_over=last,
            journal=journal or None,
        )  # fmt: skip


async def _journals(
    stack: AsyncExitStack, connections: ConnectionSettings, options: Sequence[str]
) -> list[Database | Log]:
    """The journal in another database: ``journal=DSN`` is ours, ``foreign=DSN`` of another system."""
    found: list[Database | Log] = []
    for kind, _, dsn in (option.partition("=") for option in options if "=" in option):
        connections = connections.model_copy(update={"foreign_journal": kind == "foreign"})
        database = await stack.enter_async_context(connect(dsn, connections))
        is_foreign = kind == "foreign"
        found.append(
            await table_log(database, _MAPPING, name="log") if is_foreign else Log(database, "other")
        )
    return found


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    range_supervisor.RangeRunner = Believing  # type: ignore[misc]
    asyncio.run(main(*sys.argv[1:]))
