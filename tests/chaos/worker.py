"""A worker that a test is rude to. Each effect says who wrote it, and which epoch that one believed to hold."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import AsyncExitStack
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

from journal import ConnectionSettings, Database, Log, connect
from projections import Backoff, EventEnvelope, RunSettings, Session, handles, projection, run
from projections.running import range_supervisor
from projections.running.range_runner import RangeRunner
from tests.fixtures.projections import Happened

LEASE = timedelta(seconds=1)
EFFECTS = """
CREATE TABLE effects (
    n bigserial PRIMARY KEY, journal integer, source_id text, seq_nr bigint, slice integer, worker text, epoch bigint,
    xid xid8 DEFAULT pg_current_xact_id()
)
"""
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
            "INSERT INTO effects (journal, source_id, seq_nr, slice, worker, epoch) VALUES ($1, $2, $3, $4, $5, $6)",
            event.n, envelope.source_id, envelope.seq_nr, envelope.slice, *_HOLDER.get(),
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
    elsewhere = [option.removeprefix("journal=") for option in options if option.startswith("journal=")]
    connections = ConnectionSettings(driver=driver, max_connections=8)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(connect(dsn, connections))
        journal: list[Database | Log] = []
        for dsn_of in elsewhere:
            journal.append(Log(await stack.enter_async_context(connect(dsn_of, connections)), "other"))
        if "both" in options:
            journal.append(database)
        print("running", flush=True)
        await run(
            database, Effects, ranges=8, settings=settings, stop=stop, until_caught_up=last, take_over=last,
            journal=journal or None,
        )  # fmt: skip


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    range_supervisor.RangeRunner = Believing  # type: ignore[misc]
    asyncio.run(main(*sys.argv[1:]))
