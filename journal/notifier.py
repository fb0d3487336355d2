"""Notifications after appends: readers that wait then poll at once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from journal.database import Database

_NOTIFY = "SELECT projections.notify_appended_v1()"


class Notifier:
    """
    Wakes readers after appends, at most once in a few milliseconds, so that events are seen at once.

    Never call it inside the appending transaction: NOTIFY takes a lock of the whole database at commit.

    Args:
        database: The database whose listeners are notified.
        interval: Shortest time between two notifications; appends in between share the next one.
    """

    def __init__(self, database: Database, interval: timedelta = timedelta(milliseconds=5)) -> None:
        self._database = database
        self._interval = interval.total_seconds()
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._sent_at = 0.0

    def appended(self) -> None:
        """Say that something was committed; returns at once."""
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        while self._again:
            if (remaining := self._sent_at + self._interval - loop.time()) > 0:
                await asyncio.sleep(remaining)
            self._again, self._sent_at = False, loop.time()
            async with self._database.session() as session:
                await session.execute(_NOTIFY)

    async def close(self) -> None:
        """Wait until the last notification is sent."""
        if self._task is not None:
            await self._task
