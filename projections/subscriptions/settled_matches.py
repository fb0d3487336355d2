"""Up to which number every match can be seen: asked for, where the polls of others in this process do not say it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from journal import Database, Generation, Polled, hearing_polls
from projections.subscriptions.reading import SettledMatches

_LAST_MATCH = (
    "(SELECT m.last_value - CASE WHEN m.is_called THEN 0 ELSE 1 END FROM projections.match_ids AS m)"
)
"""The last number that a match was given, seen or not yet."""


class Settled:
    """
    What one who reads on knows of it, from the polls of a database, which are shared.

    A poll counts as a look for ``longest`` seconds; ``changed`` is called when one shows that there is something to
    look at.
    """

    def __init__(self, database: Database, longest: float, changed: Callable[[], None]) -> None:
        self.until = -1
        """The number; -1 before the first look."""
        self._database = database
        self._longest = longest
        self._changed = changed
        self._polled: Polled | None = None
        self._generation: Generation | None = None

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Hear the polls that anybody in this process makes, for the length of the block."""
        with hearing_polls(self._database, self._heard, number=_LAST_MATCH):
            yield

    def _heard(self, polled: Polled) -> None:
        """It spares a look, or is a reason for one."""
        self._polled = polled
        if not self._is_still(polled):
            self._changed()

    def _is_still(self, polled: Polled) -> bool:
        """Whether a poll shows what the last look has shown."""
        same = self._generation is not None and polled.generation.follows(self._generation)
        return same and polled.number == self.until

    @property
    def is_current(self) -> bool:
        """Whether a poll that is as new as a look would be shows what the last look has shown."""
        polled, now = self._polled, asyncio.get_running_loop().time()
        return polled is not None and now - polled.at < self._longest and self._is_still(polled)

    def looked(self, look: SettledMatches) -> bool:
        """Take the answer of :func:`reading.look`; returns whether all that is remembered still holds."""
        before, self._generation = self._generation or look.generation, look.generation
        self.until = look.settled
        return look.generation.follows(before)
