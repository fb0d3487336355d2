"""The connections of a process to the database of the read models, as its ranges take turns with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from journal import Database, OwnedSession
from projections.errors import PoolTooSmall
from projections.running.settings import OTHER_CONNECTIONS

POLLS = 1
"""Of a pool, what the polls of a journal take."""
_READING_AHEAD = 2
"""How many ranges read a page ahead at a time: with two cores, a third would only wait."""


class Connections:
    """
    Lends the connections of a pool to ranges, in turn, and keeps back what polls and heartbeats need.

    Args:
        database: The pool on the read models.
        patience: How long a statement may take outside of handlers.
        polled: Whether a journal is read there, too.

    Raises:
        PoolTooSmall: There would be none for ranges.
    """

    def __init__(self, database: Database, patience: timedelta | None = None, *, polled: bool = True) -> None:
        others = OTHER_CONNECTIONS - (0 if polled else POLLS)
        self.size = database.max_connections - others
        """How many ranges can have one at a time."""
        if self.size < 1:
            raise PoolTooSmall(
                f"a pool of {database.max_connections} is too small to run projections: polls and heartbeats keep a "
                f"connection each, ranges need one and one is spare; give it max_connections={others + 1} or more"
            )
        self.database = database
        self.patience = patience
        self._places = asyncio.Semaphore(self.size)
        self.ahead = asyncio.Semaphore(_READING_AHEAD)
        self.ranges = 0
        """How many ranges take turns."""

    @property
    def scarce(self) -> bool:
        """Whether a range should give its connection back as soon as it can."""
        return self.ranges > self.size

    @property
    def all_taken(self) -> bool:
        """Whether ranges may hold all that are theirs: then nobody else should keep the one that is spare."""
        return self.ranges >= self.size

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[OwnedSession]:
        """Lend one for a turn, in the order of asking."""
        async with self._places, self.database.session() as session:
            session.patience = self.patience
            yield session
