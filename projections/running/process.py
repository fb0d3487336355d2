"""What all projections and ranges of a process share."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable

from journal import JOURNAL, Database, Log, WritersPoller
from offsets import Beats, Worker
from projections.running.connections import Connections
from projections.running.loop_monitor import LoopMonitor
from projections.running.observer import CombinedObserver, Observers
from projections.running.page_limit import PageLimit
from projections.running.settings import RunSettings
from projections.running.table_writer import TableWriter


class Process:
    """
    One running process.

    Args:
        database: Where offsets and read models are.
        settings: Limits and times.
        observer: Is told, or several are; their exceptions are logged.
        stop: Set when all is to stop.
        journal: What is read; by default our journal in that database.
    """

    def __init__(
        self,
        database: Database,
        settings: RunSettings,
        observer: Observers,
        stop: asyncio.Event,
        journal: Log | None = None,
    ) -> None:
        self.database = database
        self.journal = journal or Log(database)
        self.settings = settings
        self.observer = CombinedObserver(observer)  # which keeps its mistakes away from the work
        self.stop = stop
        self.evicting = asyncio.Lock()
        self.changed: Callable[[], None] = lambda: None
        """Called when a range has ended: what is to run is to be asked again."""
        host, pid = socket.gethostname(), os.getpid()
        self.worker = Worker(f"{host}:{pid}:{secrets.token_hex(4)}", host, pid)
        self.connections = Connections(database, settings.read_timeout, self.journal)
        # As it is stored with the projections; what is read where it is stored needs no name.
        own = self.journal.queries is JOURNAL and not self.connections.apart
        self.journal_name = None if own else self.journal.name
        self.pages = PageLimit(settings.page_bytes)
        self.beats = Beats()
        self.poller: WritersPoller
        """Of all that reads the journal: joined once the schema is known to be there."""
        self.tables = TableWriter()
        self.monitor = LoopMonitor(settings.blocked_after, settings.handler_timeout, settings.abort_after)
