"""What a run of the demo sees of its projections."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from projections.demo.progress import Reporter

_PATIENCE = 5.0
"""Seconds to wait for the news of an event that the database shows as handled; a killed worker tells none."""


class Watch:
    """Counts what is appended and handled, and remembers when."""

    def __init__(self, report: Reporter, appended: int, handled: int) -> None:
        self._report = report
        self._news = asyncio.Event()
        self.appended = appended
        self.handled_events = handled
        self.last_at = 0.0
        """When the last event was handled, by the monotonic clock."""
        self.longest_lag = 0.0
        """Seconds."""
        self.effect_at: dict[tuple[str, int], float] | None = None
        """When each event was handled, by the monotonic clock; None for not to be remembered."""

    def fed(self, appended: int) -> None:
        """Note how many events are in the journal."""
        self.appended = appended
        self._report.counted(self.appended, self.handled_events)
        self._news.set()

    async def reached(self, appended: int) -> None:
        """Wait until this number is in the journal."""
        while self.appended < appended:
            await self._next_news()

    def measured(self, handled: int, lag: float | None) -> None:
        """Note how many the database shows as handled, and the age in seconds of the oldest other one, if known."""
        self.handled_events = handled
        if lag is not None:
            self.longest_lag = max(lag, self.longest_lag)
            self._report.lagging(lag)
        self._report.counted(self.appended, self.handled_events)

    def effects(self, at: float, events: Iterable[tuple[str, int]]) -> None:
        """Events had their effect at a time of the monotonic clock."""
        self.last_at = max(at, self.last_at)
        if self.effect_at is not None:
            self.effect_at.update((event, at) for event in events)
        self._news.set()

    async def told_of(self, events: Collection[tuple[str, int]]) -> None:
        """Wait until the effects of events have been told, for a while at most."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while self.effect_at is not None and not self.effect_at.keys() >= set(events):
                    await self._next_news()
        except TimeoutError:
            return

    async def _next_news(self) -> None:
        await self._news.wait()
        self._news.clear()
