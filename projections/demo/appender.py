"""
The process that appends: ``python -m projections.demo.appender``, talked to in lines of JSON.

It says how many events the data has, is given where to append and how many, appends most of them in batches, stops at
each of some numbers until it is asked to go on, and appends the rest one at a time. It ends with the demo; should it be
late in that, the token of the next run shuts it out.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

from journal import AppendedEvents, ConnectionSettings, Database, Notifier, append, connect
from projections.demo.child import serve, tell
from projections.demo.database import fence
from projections.demo.events import event_of
from projections.demo.flights import Flight, data_file, moment, read_flights, timeline
from projections.demo.read_models import CLASSES, PROJECTIONS
from projections.running import Inline
from projections.waiting import wait_for

BATCH = 500
PACE = 0.01
"""Seconds between two events that are appended one at a time."""

Append: TypeAlias = Callable[..., Awaitable[AppendedEvents]]
Sample: TypeAlias = tuple[str, int, float, float | None]
"""An event's key, when its commit began, and the seconds from then until it could be read, if that was awaited."""

_PATIENCE = timedelta(seconds=60)
_PLACES = "SELECT source_id, seq_nr FROM projections.sources"


class AppendingFeed(Protocol):
    """Appends the timeline."""

    @property
    def appended(self) -> int:
        """Events that are stored."""
        ...

    async def append_until(self, stop: int) -> None:
        """Append until this number is stored, and tell how far it is."""
        ...

    async def append_one(self) -> Sample:
        """Append the next event by itself."""
        ...


class TimelineFeed:
    """Appends the timeline from where the journal stands; the token is that of the run."""

    def __init__(
        self,
        database: Database,
        read_side: Database,
        flights: Sequence[Flight],
        entries: Sequence[int],
        *,
        token: str,
        append_on: Append,
    ) -> None:
        self._database = database
        self._read_side = read_side
        self._token = token
        self._append = append_on
        self._flights = flights
        self._entries = entries
        self._notifier = Notifier(database)
        self._places: dict[str, int] = {}
        self.appended = 0

    async def find_place(self) -> None:
        """Read how much of each source is stored: a run appends in one order, so that is how far it was."""
        async with self._database.session() as session:
            self._places = {row["source_id"]: row["seq_nr"] for row in await session.fetch(_PLACES)}
        self.appended = sum(self._places.values())

    async def append_until(self, stop: int) -> None:
        """Append in batches until this number is stored."""
        while (left := stop - self.appended) > 0:
            await self._append_batch(min(BATCH, left))
            tell(appended=self.appended)
        await self.close()

    async def append_one(self) -> Sample:
        """Append an event and wait until it can be read."""
        [appended], committing_at = await self._append_batch(1)
        await wait_for(self._read_side, PROJECTIONS, appended, _PATIENCE, journal=self._database)
        return appended.source_id, appended.seq_nr, committing_at, time.monotonic() - committing_at

    async def _append_batch(self, size: int) -> tuple[AppendedEvents, float]:
        """Append some events in a transaction; returns them, and the monotonic time when the commit began."""
        entries = self._entries[self.appended : self.appended + size]
        events = [event_of(moment(self._flights, entry)) for entry in entries]
        counts = Counter(event.source_id for event in events)
        expected = {source_id: self._places.get(source_id, 0) for source_id in counts}
        async with self._database.transaction() as session:
            await fence(session, self._token)
            appended = await self._append(session, events, expected_seq_nr=expected)
            committing_at = time.monotonic()
        self._notifier.appended()
        for source_id, count in counts.items():
            self._places[source_id] = expected[source_id] + count
        self.appended += len(events)
        return appended, committing_at

    async def close(self) -> None:
        """Wait until readers have been told."""
        await self._notifier.close()


async def follow_orders(feed: AppendingFeed, asked: Mapping[str, Any], lines: SimpleQueue[str]) -> None:
    """Append as the demo asks for: most in bulk, to some stops, and the rest one at a time."""
    for stop in asked["stops"]:
        started = time.monotonic()
        await feed.append_until(stop)
        tell(seconds=time.monotonic() - started)
        lines.get()
    while feed.appended < asked["events"]:
        sample = await feed.append_one()
        tell(appended=feed.appended, sample=sample)
        await asyncio.sleep(PACE)
    tell(done=True)


async def main(lines: SimpleQueue[str]) -> None:
    """Do what the lines on standard input ask for."""
    flights = read_flights(data_file())
    entries = timeline(flights)
    tell(available=len(entries))
    asked = json.loads(lines.get())
    async with AsyncExitStack() as stack:
        few = ConnectionSettings(max_connections=2)
        database = await stack.enter_async_context(connect(asked["dsn"], few))
        elsewhere = asked["read_side"]
        read_side = await stack.enter_async_context(connect(elsewhere, few)) if elsewhere else database
        append_on = Inline(*CLASSES).append if asked["inline"] else append
        feed = TimelineFeed(database, read_side, flights, entries, token=asked["token"], append_on=append_on)
        await feed.find_place()
        await follow_orders(feed, asked, lines)
        await feed.close()


if __name__ == "__main__":
    serve(main)
