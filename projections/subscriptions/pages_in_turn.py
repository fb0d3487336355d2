"""Matches pages of events that wait, one page of each condition or subscription in turn."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from journal import OwnedSession
from projections.subscriptions.conditions import NARROWER, Asked, AskedOf, Failed, TooMuch

_KEY = ("entity_type", "source_id", "seq_nr", "db_timestamp", "slice", "topic")


class PageToMatch(NamedTuple):
    """Events that are matched in one transaction."""

    rows: Sequence[Mapping[str, Any]]
    """Entity type, source, number, time, slice and topic of each; a condition is asked about those with a topic."""
    match: Callable[[str | None], Awaitable[Any]]
    """Does it; takes the error of a condition that the event is put aside for. Returns whether more may wait."""
    condition_id: int | None
    """The only condition to ask; None: none."""


class PagesInTurn(ABC):
    """
    Works off what waits, a page of each in turn, so that none keeps others waiting for long.

    ``timeout`` is what a condition may take for one event, and the length of a turn for all.
    """

    def __init__(self, timeout: timedelta) -> None:
        self._timeout = timeout
        self._widths: dict[int, int] = {}
        """How many events a page has, where more were too many before."""
        self._last = 0

    async def go_on(self, session: OwnedSession) -> None:
        """Match as many pages as can be matched in a turn."""
        waiting = await self._waiting(session)
        self._widths = {each: width for each, width in self._widths.items() if each in waiting}
        behind = sorted(waiting, key=lambda each: (each <= self._last, each))
        # From here on: in a short turn, too, there is time for a page.
        until = time.monotonic() + self._timeout.total_seconds()
        while behind and time.monotonic() < until:
            self._last = behind.pop(0)
            page = await self._next(session, self._last, self._widths.get(self._last))
            if page is not None and await self._match(session, page):
                behind.append(self._last)

    @abstractmethod
    async def _waiting(self, session: OwnedSession) -> Sequence[int]:
        """The numbers of those for which events wait."""

    @abstractmethod
    async def _next(self, session: OwnedSession, number: int, width: int | None) -> PageToMatch | None:
        """The next page of one of them, of at most ``width`` events if that is given."""

    async def _match(self, session: OwnedSession, page: PageToMatch) -> bool:
        """Match a page in a transaction; returns whether more may wait."""
        asked = [tuple(row[name] for name in _KEY) for row in page.rows if row["topic"] is not None]

        async def match(failed: Failed) -> bool:
            return bool(await page.match(failed.get(page.condition_id) if page.condition_id else None))

        try:
            async with session.transaction():
                if page.condition_id is None or not asked:
                    return await match({})
                return await Asked(session, AskedOf(asked, page.condition_id), self._timeout).run(match)
        except TooMuch:
            self._widths[self._last] = max(1, len(page.rows) // NARROWER)
            return True
