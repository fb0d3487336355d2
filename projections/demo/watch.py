"""What a run of the demo sees of its projections, in this process or in others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence

from journal import EventEnvelope, SliceRange
from projections.demo.progress import Reporter
from projections.demo.read_models import PROJECTIONS
from projections.running.observer import StatusObserver

_PATIENCE = 5.0
"""Seconds to wait for the news of an event that the database shows as handled; a killed worker tells none."""


class Watch(StatusObserver):
    """Counts what is appended and handled, and remembers when."""

    def __init__(self, report: Reporter, appended: int, handled: int, ranges: int) -> None:
        self._report = report
        self._awaited = ranges
        self._news = asyncio.Event()
        self.appended = appended
        self.handled_events = handled
        self.last_at = 0.0
        """When the last event was handled, by the monotonic clock."""
        self.longest_lag = 0.0
        """Seconds."""
        self.effect_at: dict[tuple[str, int], float] | None = None
        """When each event was handled, by the monotonic clock; None for not to be remembered."""
        self.all_started = asyncio.Event()

    def fed(self, appended: int) -> None:
        """So many are in the journal."""
        self.appended = appended
        self._report.counted(self.appended, self.handled_events)
        self._news.set()

    async def reached(self, appended: int) -> None:
        """Wait until so many are in the journal."""
        while self.appended < appended:
            await self._next_news()

    def measured(self, handled: int, lag: float) -> None:
        """The database shows so many as handled, and the oldest other one so many seconds old."""
        self.handled_events, self.longest_lag = handled, max(lag, self.longest_lag)
        self._report.lagging(lag)
        self._report.counted(self.appended, self.handled_events)

    def effects(self, at: float, events: Iterable[tuple[str, int]]) -> None:
        """Events had their effect at a time of the monotonic clock."""
        self.last_at = max(at, self.last_at)
        if self.effect_at is not None:
            self.effect_at.update((event, at) for event in events)
        self._news.set()

    async def told_of(self, events: Collection[tuple[str, int]]) -> None:
        """Wait until the effects of events have been told, but not for ever."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while self.effect_at is not None and not self.effect_at.keys() >= set(events):
                    await self._next_news()
        except TimeoutError:
            return

    def started(self, name: str, slices: SliceRange) -> None:  # noqa: ARG002
        """See :class:`StatusObserver`."""
        self._awaited -= 1
        if self._awaited <= 0:
            self.all_started.set()

    def handled(self, name: str, slices: SliceRange, envelopes: Sequence[EventEnvelope]) -> None:  # noqa: ARG002
        """See :class:`StatusObserver`."""
        found = with_effect(name, envelopes)
        self.handled_events += len(found)
        self.effects(time.monotonic(), found)
        self._report.counted(self.appended, min(self.handled_events, self.appended))

    async def _next_news(self) -> None:
        await self._news.wait()
        self._news.clear()


def with_effect(name: str, envelopes: Sequence[EventEnvelope]) -> list[tuple[str, int]]:
    """Source and number of the events that have an effect in a projection."""
    types = PROJECTIONS[name][1]
    return [(e.source_id, e.seq_nr) for e in envelopes if e.event_type in types]
