"""A journal as the ranges of a process read it: what they read it with, and the poll that they share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from datetime import datetime, timedelta
from typing import TypeAlias

from journal import (
    JOURNAL,
    OWN_NAME,
    Backtracking,
    Database,
    IntervalBacktracking,
    Log,
    LogToOpen,
    OwnedSession,
    Queries,
    WritersPoller,
    entity_types,
    now_in,
    shared_poller,
)
from journal.schema import check_version
from offsets import Claim
from projections.errors import PoolTooSmall
from projections.running.connections import POLLS, Connections
from projections.running.settings import RunSettings

log = logging.getLogger("projections")

LOOK_EVERY = 60.0
"""Seconds: how often it is asked whether there are events that no page has."""

Reading: TypeAlias = Callable[[OwnedSession], AbstractAsyncContextManager[OwnedSession]]
"""Lends what to read the journal with to a range that has a session; see :meth:`ReadJournal.reading`."""


class ReadJournal:
    """
    A journal that a process reads; of several, each has one.

    A range has a connection where its offsets are. Where the journal is in another database, it has one of that for
    each page.

    Args:
        journal: The journal; one that is to be opened is opened by :meth:`begin`.
        connections: Those to the database of the read models.
        alone: Whether it is the only one.

    Raises:
        PoolTooSmall: Its pool would have none for ranges.
    """

    log: Log
    """It, once it is opened."""
    poller: WritersPoller
    """Of all that reads it in this process, from then on."""

    def __init__(self, journal: Log | LogToOpen, connections: Connections, *, alone: bool = True) -> None:
        self._connections = connections
        self._to_open: LogToOpen | None = None
        self._is_polled = False
        if isinstance(journal, LogToOpen):
            self._to_open, self.apart = journal, True
        else:
            self.apart = journal.database is not connections.database
            self._take(journal)
        self.stored_name = (
            journal.name if isinstance(journal, LogToOpen) else journal.stored_name(connections.database)
        )
        """As it is stored with the projections; what is read where it is stored needs no name."""
        self.name = self.stored_name or OWN_NAME
        """Its own."""
        self._mark = "" if alone else f"@{self.name}"
        self._told = 0
        self.until: datetime | None = None
        """Its time when it was first looked at; None before."""

    def _take(self, log: Log) -> None:
        places = self._connections.size
        if self.apart and (places := log.database.max_connections - POLLS) < 1:
            raise PoolTooSmall(
                f"a pool of {log.database.max_connections} on the journal is too small to run projections: "
                f"polls keep a connection, and reading needs one; give it max_connections={POLLS + 1} or more"
            )
        self.log, self._to_open = log, None
        self._reading = asyncio.Semaphore(places)

    @property
    def place(self) -> tuple[Database, Queries] | None:
        """Where it is, and what it is there; None before it is opened."""
        return None if self._to_open is not None else (self.log.database, self.log.queries)

    @property
    def is_here(self) -> bool:
        """Whether it is ours, and in the database of the read models: statements there can read it."""
        return self.stored_name is None

    def part_of(self, projection: str) -> str:
        """What a projection is called as far as it reads this journal: of several, ``NAME@JOURNAL``."""
        return projection + self._mark

    async def begin(self, settings: RunSettings, stack: AsyncExitStack) -> set[str]:
        """
        Open it, and poll it; when that fails, this may be called again.

        Args:
            settings: Limits and times.
            stack: Ends both.

        Returns:
            The entity types that it has events of.

        Raises:
            JournalUnavailable: It cannot be reached.
            ProjectionsError: It is not to be read so, or of another version.
        """
        if self._to_open is not None:
            self._take(await stack.enter_async_context(self._to_open.open()))
        if not self._is_polled:
            poll = shared_poller(self.log, settings.pacing, listen=settings.listen)
            self.poller = await stack.enter_async_context(poll)
            self._is_polled = True
        types, self.until = await self._look(settings)
        return types

    async def _look(self, settings: RunSettings) -> tuple[set[str], datetime]:
        if settings.backtracking == "interval":
            self.log.check_interval()
        read = self.log
        if self.apart:
            await read.check(alone=settings.backtracking == "interval")
        async with read.session() if self.apart else read.database.session() as session:
            if read.queries is JOURNAL and self.apart:
                await check_version(session)
            found = set(await entity_types(session, queries=read.queries))
        with self.named():
            return found, (await now_in(read)).time

    async def tell_passed_over(self) -> float:
        """Say how many events no projection gets, where there are more than it has said; how soon to look again."""
        count = await self.log.passed_over()
        if count > max(self._told, self.log.told):
            self._told = count
            log.warning(
                "journal %r: %s", self.name, Log.passed_over_said(count),
                extra={"action": "events_passed_over", "journal": self.name, "events": count},
            )  # fmt: skip
        return LOOK_EVERY

    def backtracking(self, claim: Claim, settings: RunSettings) -> Backtracking:
        """What says of a range which page is to be read next."""
        if settings.backtracking == "interval":
            return IntervalBacktracking(claim.horizon, late_by=settings.late_by, import_id=claim.import_id)
        # Next to a primary, a poll counts when a standby has replayed it: it may be older than another's horizon.
        kept = settings.retention if self.log.primary is None else timedelta(0)
        return self.log.bound(
            claim.horizon, margin=settings.clock_margin, import_id=claim.import_id, kept=kept
        )

    def tell_of_a_clock_that_went_back(
        self, name: str, claim: Claim, shown: datetime, settings: RunSettings
    ) -> None:
        """Say that a range reads again what it has, for its first poll shows a time before its horizon."""
        by_time = settings.backtracking != "interval" and not self.log.is_by_number
        if not by_time or self.log.primary or shown >= claim.horizon - settings.clock_margin:
            return
        log.warning(
            "%s: slices %s: the database's clock shows %s, which is before the stored horizon %s: it was set back; "
            "events of the last %s are read again",
            name, claim.slices, shown, claim.horizon, settings.retention,
            extra={"action": "clock_went_back", "projection": name, "slices": str(claim.slices)},
        )  # fmt: skip

    @asynccontextmanager
    async def reading(self, session: OwnedSession) -> AsyncIterator[OwnedSession]:
        """
        What to read it with.

        Args:
            session: That of the range, which is what it reads with where both are in one database.

        Raises:
            JournalUnavailable: Its database cannot be reached.
        """
        if not self.apart:
            yield session
            return
        async with self._reading, self.log.session() as lent:
            lent.patience = self._connections.patience
            yield lent

    @asynccontextmanager
    async def comparing(self, session: OwnedSession) -> AsyncIterator[OwnedSession]:
        """As :meth:`reading`, but of a standby its primary: only that tells what is late from what is lost."""
        if not self.apart:
            yield session
            return
        async with self.log.at_primary.session() as lent:
            lent.patience = self._connections.patience
            yield lent

    def named(self) -> AbstractContextManager[None]:
        """Have errors say that it is the journal's database which cannot be reached, where that is another one."""
        return self.log.named() if self.apart else nullcontext()

    @asynccontextmanager
    async def lend_ahead(self) -> AsyncIterator[OwnedSession]:
        """Lend a session for reading ahead."""
        lend = self.log.lend if self.apart else self.log.database.session
        async with self._connections.ahead, lend() as session:
            session.patience = self._connections.patience
            yield session

    @property
    def is_busy_ahead(self) -> bool:
        """Whether others read ahead already."""
        return self._connections.ahead.locked()
