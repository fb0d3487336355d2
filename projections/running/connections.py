"""The connections of a process, as its ranges take turns with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from datetime import timedelta
from typing import TypeAlias

from journal import Database, Log, OwnedSession
from projections.errors import PoolTooSmall
from projections.running.settings import OTHER_CONNECTIONS

_READING_AHEAD = 2
"""How many ranges read a page ahead at a time: with two cores, a third would only wait."""
_POLLS = 1
"""Of a pool, what polls take."""

Reading: TypeAlias = Callable[[OwnedSession], AbstractAsyncContextManager[OwnedSession]]
"""Lends what to read the journal with to a range that has a session; see :meth:`Connections.reading`."""


class Connections:
    """
    Lends the connections of a pool to ranges, in turn, and keeps back what polls and heartbeats need.

    A range has one where its offsets are. Where the journal is in another database, it has one of that for each page.

    Args:
        database: The pool on the read models.
        patience: How long a statement may take outside of handlers.
        journal: What is read; None: what is in the same database.

    Raises:
        PoolTooSmall: There would be none for ranges.
    """

    def __init__(
        self, database: Database, patience: timedelta | None = None, journal: Log | None = None
    ) -> None:
        self._journal = None if journal is None or journal.database is database else journal
        others = OTHER_CONNECTIONS - (0 if self._journal is None else _POLLS)
        self._size = database.max_connections - others
        if self._size < 1:
            raise PoolTooSmall(
                f"a pool of {database.max_connections} is too small to run projections: polls and heartbeats keep a "
                f"connection each, ranges need one and one is spare; give it max_connections={others + 1} or more"
            )
        self._database = database
        self._patience = patience
        self._places = asyncio.Semaphore(self._size)
        self._reading = asyncio.Semaphore(self._reading_places())
        self.ahead = asyncio.Semaphore(_READING_AHEAD)
        self.ranges = 0
        """How many ranges take turns."""

    def _reading_places(self) -> int:
        if self._journal is None:
            return self._size
        if (left := self._journal.database.max_connections - _POLLS) < 1:
            raise PoolTooSmall(
                f"a pool of {self._journal.database.max_connections} on the journal is too small to run projections: "
                f"polls keep a connection, and reading needs one; give it max_connections={_POLLS + 1} or more"
            )
        return left

    @property
    def apart(self) -> bool:
        """Whether the journal is in another database than the read models."""
        return self._journal is not None

    @property
    def scarce(self) -> bool:
        """Whether a range should give its connection back as soon as it can."""
        return self.ranges > self._size

    @property
    def all_taken(self) -> bool:
        """Whether ranges may hold all that are theirs: then nobody else should keep the one that is spare."""
        return self.ranges >= self._size

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[OwnedSession]:
        """Lend one for a turn, in the order of asking."""
        async with self._places, self._database.session() as session:
            session.patience = self._patience
            yield session

    @asynccontextmanager
    async def reading(self, session: OwnedSession) -> AsyncIterator[OwnedSession]:
        """
        What to read the journal with.

        Args:
            session: That of the range, which is what it reads with where both are in one database.

        Raises:
            JournalUnavailable: The journal's database cannot be reached.
        """
        if self._journal is None:
            yield session
            return
        async with self._reading, self._journal.session() as lent:
            lent.patience = self._patience
            yield lent

    @asynccontextmanager
    async def comparing(self, session: OwnedSession) -> AsyncIterator[OwnedSession]:
        """As :meth:`reading`, but of a standby its primary: only that tells what is late from what is lost."""
        if self._journal is None:
            yield session
            return
        async with self._journal.at_primary.session() as lent:
            lent.patience = self._patience
            yield lent

    def of_journal(self) -> AbstractContextManager[None]:
        """Have errors say that it is the journal's database which cannot be reached, where that is another one."""
        return nullcontext() if self._journal is None else self._journal.named()

    @asynccontextmanager
    async def lend_ahead(self) -> AsyncIterator[OwnedSession]:
        """Lend one for reading ahead."""
        lend = self._database.session if self._journal is None else self._journal.lend
        async with self.ahead, lend() as session:
            session.patience = self._patience
            yield session
