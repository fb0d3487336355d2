"""
A worker process: ``python -m projections.demo.worker``, talked to in lines of JSON.

It runs the demo's projections as any other worker on the database, tells what it does, and ends when it is told
to, or when its standard input does, so it never outlives a demo that was killed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

from journal import ConnectionSettings, EventEnvelope, ProjectionsError, SliceRange, connect, hide_password
from projections.demo.running import CLASSES
from projections.demo.watch import with_effect
from projections.running.event_loop import loop_runner
from projections.running.observer import StatusObserver
from projections.running.runner import run
from projections.running.settings import RunSettings

LEASE = timedelta(seconds=2)
"""Short, for the demo is: production has 10 s, and a network that may be away for a while."""
_CONNECTIONS = 7
"""Four for ranges, which take turns: the workers of a demo share a few cores and a server's 100 connections."""
_NAMED = 20
"""In batches of so many, each event is named: only those that are appended one at a time are timed."""


class _Teller(StatusObserver):
    def handled(self, name: str, slices: SliceRange, envelopes: Sequence[EventEnvelope]) -> None:  # noqa: ARG002
        found = with_effect(name, envelopes)
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
    async with connect(asked["dsn"], connections) as database:
        await run(
            database,
            *CLASSES,
            ranges=asked["ranges"],
            settings=RunSettings(lease=LEASE),
            observer=_Teller(),
            stop=stop,
        )


def tell(**values: Any) -> None:
    """Say something to the demo."""
    print(json.dumps(values), flush=True)  # noqa: T201 - the protocol


def _listen(lines: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(1)  # whoever started this process is gone: what is open is rolled back by the database


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR, handlers=[_ErrorTeller()])
    queue: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(queue,), name="listening", daemon=True).start()
    try:
        with loop_runner() as runner:
            runner.run(main(queue))
    except ProjectionsError as error:
        tell(error=hide_password(str(error)))
        sys.exit(1)
