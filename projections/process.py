"""What all projections and ranges of a process share."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from journal import Database, OwnedSession, WritersPoller
from offsets import Worker
from projections.errors import PoolTooSmall
from projections.loop_monitor import LoopMonitor
from projections.observer import CombinedObserver, StatusObserver
from projections.settings import RunSettings
from projections.table_writer import TableWriter

OTHER_CONNECTIONS = 3
"""Of a pool, what ranges do not take: one for polls, one for heartbeats, one for what comes up."""
_READING_AHEAD = 2
"""How many ranges read a page ahead at a time: with two cores, a third would only wait."""


class Connections:
    """
    Lends the connections of a pool to ranges, in turn, and keeps back what polls and heartbeats need.

    Args:
        database: The pool.

    Raises:
        PoolTooSmall: There would be none for ranges.
    """

    def __init__(self, database: Database) -> None:
        self._size = database.max_connections - OTHER_CONNECTIONS
        if self._size < 1:
            raise PoolTooSmall(
                f"a pool of {database.max_connections} is too small to run projections: polls and heartbeats keep a "
                f"connection each, ranges need one and one is spare; give it max_connections={OTHER_CONNECTIONS + 1} "
                "or more"
            )
        self._database = database
        self._places = asyncio.Semaphore(self._size)
        self.ahead = asyncio.Semaphore(_READING_AHEAD)
        self.ranges = 0
        """How many ranges take turns."""

    @property
    def scarce(self) -> bool:
        """Whether a range should give its connection back as soon as it can."""
        return self.ranges > self._size

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[OwnedSession]:
        """Lend one for a turn, in the order of asking."""
        async with self._places, self._database.session() as session:
            yield session


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
        self.observer = CombinedObserver([observer])  # which keeps its mistakes away from the work
        self.stop = stop
        self.evicting = asyncio.Lock()
        self.changed = asyncio.Event()
        """A range has ended: what is to run is to be asked anew."""
        host, pid = socket.gethostname(), os.getpid()
        self.worker = Worker(f"{host}:{pid}:{secrets.token_hex(4)}", host, pid)
        self.connections = Connections(database)
        self.poller = WritersPoller(database, settings.pacing)
        self.tables = TableWriter()
        self.monitor = LoopMonitor(settings.blocked_after, settings.handler_timeout, settings.abort_after)
