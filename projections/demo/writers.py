"""
The process that appends to another system: ``python -m projections.demo.writers``, talked to as ``appender`` is.

Several threads write at a time, each with a connection and flights of its own, in transactions of many sizes: what one
commits comes late for who has read what another did.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from random import Random

from journal import ProjectionsError
from projections.demo.appender import Sample, follow_orders
from projections.demo.child import serve, tell
from projections.demo.errors import DemoError
from projections.demo.flights import Flight, data_file, read_flights, row_of, timeline
from projections.demo.stores import SYSTEMS, Store, flight_event, key_of

_WRITERS = 4
_SIZES = (1, 10, 1000)
"""Events in a transaction: while a large one inserts, small ones commit what has higher numbers."""


class WritersFeed:
    """Appends what of the timeline is not stored; each store has a thread of its own."""

    def __init__(self, stores: Sequence[Store], flights: Sequence[Flight], entries: Sequence[int]) -> None:
        keys = stores[0].keys()
        self._stores = stores
        self._flights = flights
        self._entries = entries
        self._left = iter(entries)
        self._stored = {entry for entry in entries if key_of(entry) in keys} if keys else set()
        self._lock = threading.Lock()
        self._broken = False

    @property
    def appended(self) -> int:
        """Events that are stored."""
        return len(self._stored)

    async def append_until(self, stop: int) -> None:
        """Have all append until this number of the timeline is stored, and tell how far they are."""
        left = [entry for entry in self._entries[:stop] if entry not in self._stored]
        writing = [
            asyncio.to_thread(
                self._write, store, [e for e in left if row_of(e) % len(self._stores) == number]
            )
            for number, store in enumerate(self._stores)
        ]
        await asyncio.gather(*writing)

    def _write(self, store: Store, entries: Sequence[int]) -> None:
        chance = Random(len(entries))  # noqa: S311 - sizes of transactions
        place = 0
        try:
            while place < len(entries) and not self._broken:
                batch = entries[place : place + chance.choice(_SIZES)]
                self._save(store, batch)
                place += len(batch)
                with self._lock:
                    tell(appended=self.appended)
        except BaseException:
            self._broken = True  # the others would go on for long
            raise

    async def append_one(self) -> Sample:
        """Append the next event by itself."""
        entry = next(entry for entry in self._left if entry not in self._stored)
        began_at = time.monotonic()
        self._save(self._stores[0], [entry])
        flight, number = key_of(entry)
        return str(flight), number, began_at, None

    def _save(self, store: Store, entries: Sequence[int]) -> None:
        with _told():
            store.save([flight_event(self._flights, entry) for entry in entries])
        with self._lock:
            self._stored.update(entries)


@contextmanager
def _told() -> Iterator[None]:
    """Have the demo end with what the package of a system raises."""
    try:
        yield
    except ProjectionsError:
        raise
    except Exception as error:
        raise DemoError(f"{type(error).__name__}: {error}") from error


async def main(lines: SimpleQueue[str]) -> None:
    """Do what the lines on standard input ask for; the first says where, and is answered when the table is there."""
    place = json.loads(lines.get())
    system, dsn = SYSTEMS[place["system"]], place["dsn"]
    flights = read_flights(data_file())
    entries = timeline(flights)
    with _told(), system.open(dsn):
        pass
    tell(available=len(entries))
    asked = json.loads(lines.get())
    with ExitStack() as stack:
        with _told():
            feed = WritersFeed(
                [stack.enter_context(system.open(dsn)) for _ in range(_WRITERS)], flights, entries
            )
        await follow_orders(feed, asked, lines)


if __name__ == "__main__":
    serve(main)
