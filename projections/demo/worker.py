"""
A worker process: ``python -m projections.demo.worker``, talked to in lines of JSON.

It runs the demo's projections as any other worker on the database, tells what it does, and ends when it is asked to.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from queue import SimpleQueue

from journal import ConnectionSettings, EventEnvelope, SliceRange, connect, hide_password
from projections.demo.child import serve, tell
from projections.demo.read_models import PROJECTIONS, classes
from projections.running import RunSettings, StatusObserver, run
from projections.terminal.connection import Sides, connected_journal

LEASE = timedelta(seconds=2)
"""Short, for the demo is: production has 10 s, and a network that may be away for a while."""
_CONNECTIONS = 7
"""Four for ranges, which take turns: the workers of a demo share a few cores and a server's 100 connections."""
_NAMED = 20
"""In batches of this size or less, each event is named: only those that are appended one at a time are timed."""


class _Teller(StatusObserver):
    def handled(self, name: str, slices: SliceRange, envelopes: Sequence[EventEnvelope]) -> None:  # noqa: ARG002
        types = PROJECTIONS[name][1]  # those that have an effect in it
        found = [(e.source_id, e.seq_nr) for e in envelopes if e.event_type in types]
        tell(at=time.monotonic(), effects=found if len(envelopes) <= _NAMED else [])

    def taken_over(self, name: str, slices: SliceRange, owner: str) -> None:
        tell(taken_over=[name, str(slices), owner])


class _ErrorTeller(logging.Handler):
    """The terminal is the demo's, and may show bars."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(failed=hide_password(record.getMessage()))


async def main(lines: SimpleQueue[str]) -> None:
    """Do what the first line on standard input asks for, until there is a second one."""
    asked, stop = json.loads(lines.get()), asyncio.Event()
    loop = asyncio.get_running_loop()
    threading.Thread(
        target=lambda: (lines.get(), loop.call_soon_threadsafe(stop.set)), name="stopping", daemon=True
    ).start()
    connections = ConnectionSettings(max_connections=_CONNECTIONS)
    async with (
        connect(asked["dsn"], connections) as database,
        connected_journal(Sides(asked["dsn"], tuple(asked["journals"])), connections) as journal,
    ):
        await run(
            database,
            *classes(sql=asked["sql"]).values(),
            ranges=asked["ranges"],
            settings=RunSettings(lease=LEASE),
            observer=_Teller(),
            stop=stop,
            journal=journal,
        )


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR, handlers=[_ErrorTeller()])
    serve(main)
