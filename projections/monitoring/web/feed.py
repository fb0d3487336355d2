"""One look at the database for all who watch: at an interval while somebody does, seldom while nobody does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

from journal import Database, Journals
from journal.tasks import happens, running
from projections.monitoring.cache import PATIENCE, Cache, LookFailed, closing
from projections.monitoring.overview import Overview, overview
from projections.monitoring.web import snapshot_json
from projections.monitoring.web.history import LagHistory

log = logging.getLogger("projections")

_IDLE = timedelta(seconds=10)


class _Seen(NamedTuple):
    overview: Overview
    others: Mapping[str, Any]


class Feed:
    """
    Keeps the newest document, and wakes whoever waits for it.

    Args:
        database: What is looked at; one connection of it is in use while a look is under way.
        every: From one look to the next, while somebody watches.
        idle: The same while nobody does: the lines of the last minutes go on.
        patience: How long a look may take.
        journal: What projections read, if that is in another database.
    """

    def __init__(
        self,
        database: Database,
        every: timedelta = timedelta(seconds=1),
        *,
        idle: timedelta = _IDLE,
        patience: timedelta = PATIENCE,
        journal: Journals = None,
    ) -> None:
        self.number = 0
        """Of the newest document; 0 before the first."""
        self.document = b""
        self.closed = False
        """Nothing comes any more: streams end."""
        self._database = database
        self._journal = journal
        self._every = every.total_seconds()
        self._idle = max(idle, every).total_seconds()
        self._look = Cache(self._read, keep=timedelta(0), patience=patience)
        self.history = LagHistory()
        """The lines of the last minutes."""
        self._next = asyncio.Event()
        self._wanted = asyncio.Event()
        self._watching = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look for the length of the block."""
        async with closing(self._look), running(self._run()):
            try:
                yield
            finally:
                self.close()

    def close(self) -> None:
        """End all streams."""
        self.closed = True
        self._wake()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Somebody watches for the length of the block."""
        self._watching += 1
        self._wanted.set()
        try:
            yield
        finally:
            self._watching -= 1

    async def after(self, number: int) -> tuple[int, bytes]:
        """Wait for a document newer than that of a number; who is slow misses some."""
        while self.number <= number and not self.closed:
            await self._next.wait()
        return self.number, self.document

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            begun = clock()
            self._publish(await self._new_document())
            await self._pause(clock() - begun)

    async def _new_document(self) -> bytes:
        try:
            seen = await self._look.get()
            self.history.add(seen.overview.at, seen.overview.projections)
            return snapshot_json.live(seen.overview, self.history, self._every, seen.others)
        except LookFailed as error:
            log.warning("%s", error, extra={"action": "look_failed"})
            return snapshot_json.failure(str(error))
        except Exception:
            log.exception("a look at the database", extra={"action": "look_failed"})
            return snapshot_json.failure("something unforeseen happened, which the monitor's log shows")

    async def _read(self) -> _Seen:
        async with self._database.session() as session:
            seen = await overview(session, journal=self._journal)
        others: dict[str, Any] = {}
        for one in seen.others:
            others |= await one.page(self._database)
        return _Seen(seen, others)

    def _publish(self, data: bytes) -> None:
        self.number += 1
        self.document = data
        self._wake()

    def _wake(self) -> None:
        woken, self._next = self._next, asyncio.Event()
        woken.set()

    async def _pause(self, took: float) -> None:
        """A look that takes long is followed by a pause as long: watching must not be what loads the database."""
        await asyncio.sleep(max(self._every - took, took))
        if self._watching:
            return
        self._wanted.clear()
        await happens(self._wanted, self._idle - self._every)
