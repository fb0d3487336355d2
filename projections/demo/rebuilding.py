"""
The rebuild in the middle of a run: while events are appended and handled, a batch builds the read models again.

What runs the batch is on the other side of :class:`Rebuilder`, for this package knows nothing of Spark.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from journal import Session
from projections.demo.checking import READ_MODELS, ReadModel, differing
from projections.demo.events import ENTITY_TYPE, source_of
from projections.demo.flights import Flight, moment
from projections.demo.progress import Reporter
from projections.demo.read_models import classes

_UP_TO = """
SELECT e.source_id, count(*) AS events FROM projections.events AS e
WHERE e.entity_type = $1 AND e.db_timestamp <= $2 GROUP BY e.source_id
"""


class Built(NamedTuple):
    """What a batch has made of a read model, before live workers went on with it."""

    fence: datetime
    """Of the events up to this time."""
    events: int
    """That were read."""
    seconds: float
    """From the request to the swap."""
    rows: Sequence[tuple[Any, ...]]
    """The whole table, in the columns of the :class:`ReadModel`."""


class Rebuilder(Protocol):
    """Rebuilds read models."""

    async def ready(self) -> None:
        """Wait until a rebuild would begin at once."""

    async def rebuild(
        self, dsn: str, definition: type, read_model: ReadModel, say: Callable[[str], None]
    ) -> Built:
        """
        Build a read model again, swap it in, and let live workers go on from there; after a failure it is as it was.

        A copy of the table ``read_model`` is kept, as it is before the swap. Any thread calls ``say`` with how
        far it is, and first that it begins.
        """


class RebuildComparison(NamedTuple):
    """The outcome."""

    differences: Sequence[str]
    """A line for each row that is not what plain Python makes of the same events."""
    seconds: float
    """Of all read models together."""
    rows_per_s: float
    """Events read, in these seconds."""


class Rebuilding:
    """Rebuilds the demo's read models, and keeps what was built to be compared at the end."""

    def __init__(self, batch: Rebuilder, dsn: str, report: Reporter, *, sql: bool = False) -> None:
        self._classes = classes(sql=sql)
        self._batch = batch
        self._dsn = dsn
        self._report = report
        self._built: dict[str, Built] = {}
        self.waited = 0.0
        """Seconds until the batch was ready."""
        self.begun = asyncio.Event()
        """Set when it is at work."""

    async def ready(self) -> None:
        """Wait until the batch is; nothing is appended meanwhile."""
        self._report.step("stopped half way, until Spark is ready")
        began_at = time.monotonic()
        await self._batch.ready()
        self.waited = time.monotonic() - began_at

    async def run(self) -> None:
        """Rebuild all, one after another."""
        loop = asyncio.get_running_loop()

        def step(text: str) -> None:
            self.begun.set()
            self._report.step(text)

        def say(text: str) -> None:
            loop.call_soon_threadsafe(step, text)

        for name, definition in self._classes.items():
            built = await self._batch.rebuild(self._dsn, definition, READ_MODELS[name], say)
            self._built[name] = built
            self._report.step(
                f"rebuilt {name} from {built.events:,} events in {built.seconds:.1f} s, and swapped it in"
            )

    async def compare(
        self, session: Session, flights: Sequence[Flight], entries: Sequence[int]
    ) -> RebuildComparison:
        """
        Compare what was built with what plain Python makes of the same rows of the CSV file.

        The journal tells the events up to each fence; ``entries`` is the part of the timeline that was appended.
        """
        differences: list[str] = []
        for name, built in self._built.items():
            rows = await session.fetch(_UP_TO, ENTITY_TYPE, built.fence)
            counts = {row["source_id"]: row["events"] for row in rows}
            if (stored := sum(counts.values())) != built.events:
                differences.append(f"{name}: read {built.events:,} events, and there are {stored:,}")
            expected = READ_MODELS[name].expected(flights, first_of_each(flights, entries, counts))
            differences += differing(f"{READ_MODELS[name].table} as rebuilt", set(built.rows), expected)
        seconds = sum(built.seconds for built in self._built.values())
        events = sum(built.events for built in self._built.values())
        return RebuildComparison(differences, seconds, events / seconds)


def first_of_each(flights: Sequence[Flight], entries: Sequence[int], counts: Mapping[str, int]) -> list[int]:
    """The first entries of each source, by their numbers: what of a timeline became the events up to a fence."""
    seen: Counter[str] = Counter()
    found = []
    for entry in entries:
        source_id = source_of(moment(flights, entry).flight)
        seen[source_id] += 1
        if seen[source_id] <= counts.get(source_id, 0):
            found.append(entry)
    return found
