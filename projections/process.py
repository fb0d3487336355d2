"""What all projections and ranges of a process share."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from contextlib import suppress
from typing import Any

from journal import Database, WritersPoller
from projections.loop_monitor import LoopMonitor
from projections.observer import StatusObserver
from projections.settings import RunSettings
from projections.table_writer import TableWriter

log = logging.getLogger("projections")

SPARE_CONNECTIONS = 2
"""How many ranges read a page ahead at a time: with two cores, a third would only wait."""


class Process:
    """
    One running process.

    Args:
        database: Where the journal and the read models are.
        settings: How to run.
        observer: Is told; its exceptions are logged.
        stop: Set when all is to stop.
    """

    def __init__(
        self, database: Database, settings: RunSettings, observer: StatusObserver, stop: asyncio.Event
    ) -> None:
        self.database = database
        self.settings = settings
        self.observer: StatusObserver = _Guarded(observer)
        self.stop = stop
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.poller = WritersPoller(database, settings.pacing)
        self.tables = TableWriter()
        self.spare_connections = asyncio.Semaphore(SPARE_CONNECTIONS)
        self.monitor = LoopMonitor(settings.blocked_after)

    async def pause(self, seconds: float) -> None:
        """Wait, but no longer than until all is to stop."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), seconds)


class _Guarded(StatusObserver):
    """Keeps the mistakes of an observer away from the work."""

    def __init__(self, observer: StatusObserver) -> None:
        self._observer = observer

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        hook = getattr(object.__getattribute__(self, "_observer"), name)

        def call(*args: Any) -> None:
            try:
                hook(*args)
            except Exception:
                log.exception("observer: %s", name, extra={"action": "observer_failed"})

        return call
