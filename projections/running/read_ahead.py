"""The next page, read while the current one is handled: the database and Python need not wait for each other."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime

from journal import EventEnvelope, Page, Position, ProjectionsError, SliceReader
from journal.tasks import end
from projections.running.read_journal import ReadJournal


class ReadAhead:
    """
    Reads one page ahead of a range that is catching up, on a connection that is spare.

    The range never waits for that connection, nor fails with it: without one, a page is read when it is due.
    """

    def __init__(self, reader: SliceReader, read: ReadJournal) -> None:
        self._reader = reader
        self._journal = read
        self._after: Position | None = None
        self._reading = False
        self._task: asyncio.Task[Page[EventEnvelope]] | None = None

    def start(self, after: Position, until: datetime) -> None:
        """Begin to read the page after a position."""
        if self._task is None and not self._journal.is_busy_ahead:
            self._after, self._reading = after, False
            self._task = asyncio.create_task(self._read(after, until))

    async def _read(self, after: Position, until: datetime) -> Page[EventEnvelope]:
        async with self._journal.lend_ahead() as session:
            self._reading = True
            return await self._reader.events(session, after, until)

    async def take(self, after: Position) -> Page[EventEnvelope] | None:
        """The page after a position, if it is being read; anything else that was begun is dropped."""
        if self._task is not None and self._reading and self._after == after:
            task, self._task = self._task, None
            with suppress(ProjectionsError):  # the range's own connection reads it, or says what is wrong
                return await task
        await self.drop()
        return None

    async def drop(self) -> None:
        """Forget what was begun."""
        task, self._task = self._task, None
        if task is not None:
            await end(task)
