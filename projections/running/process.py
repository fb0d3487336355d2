"""What all projections and ranges of a process share."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Sequence

from journal import OWN_NAME, Database, InvalidValue, Log, LogToOpen
from offsets import Beats, Worker
from projections.running.connections import Connections
from projections.running.loop_monitor import LoopMonitor
from projections.running.observer import CombinedObserver, Observers
from projections.running.page_limit import PageLimit
from projections.running.read_journal import ReadJournal
from projections.running.read_model_writer import ReadModelWriter
from projections.running.settings import RunSettings
from projections.running.table_writer import TableWriter


class Process:
    """
    One running process.

    Args:
        database: Where offsets and read models are.
        settings: Limits and times.
        observer: Is called with what happens; one or several. Their exceptions are logged.
        stop: Set when all is to stop.
        journals: What is read; by default our journal in that database.

    Raises:
        InvalidValue: Two of several journals have one name, or are one.
        PoolTooSmall: A database lends too few connections.
    """

    def __init__(
        self,
        database: Database,
        settings: RunSettings,
        observer: Observers,
        stop: asyncio.Event,
        journals: Sequence[Log | LogToOpen] = (),
    ) -> None:
        self.database = database
        self.settings = settings
        self.observer = CombinedObserver(observer)  # which keeps its mistakes away from the work
        self.stop = stop
        self.evicting = asyncio.Lock()
        self.changed: Callable[[], None] = lambda: None
        """Called when a range has ended: what is to run is to be asked again."""
        host, pid = socket.gethostname(), os.getpid()
        self.worker = Worker(f"{host}:{pid}:{secrets.token_hex(4)}", host, pid)
        logs = journals or [Log(database)]
        here = any(isinstance(log, Log) and log.database is database for log in logs)
        self.connections = Connections(database, settings.read_timeout, polled=here)
        self.logs = [ReadJournal(log, self.connections, alone=len(logs) == 1) for log in logs]
        self.apart = any(one.apart for one in self.logs)
        """Whether a journal is in another database than the read models."""
        _check_apart(self.logs)
        self.pages = PageLimit(settings.page_bytes)
        self.beats = Beats()
        self.tables = TableWriter()
        self.read_models = ReadModelWriter()
        self.monitor = LoopMonitor(settings.blocked_after, settings.handler_timeout, settings.abort_after)


def _check_apart(logs: Sequence[ReadJournal]) -> None:
    names = [one.name for one in logs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidValue(
            f"two journals are named {twice!r}, by which what is handled of each is stored; the one in the database of "
            f"the read models is always {OWN_NAME!r}. Name the other: Log(database, name), or --journal "
            "NAME=postgresql://..."
        )
    places = [one.place for one in logs if one.place is not None]
    if any(places.count(place) > 1 for place in places):
        raise InvalidValue(
            f"a journal is passed twice, among {', '.join(names)}: each of its events would be handled twice"
        )
