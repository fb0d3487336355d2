"""
Running projections in a process: registers them, joins the others that run them, and ends on request.

Ownership is a lease, for liveness; what makes it safe is the epoch that every commit checks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import offsets
from journal import (
    LIBRARY_TYPES,
    Database,
    InvalidValue,
    JournalUnavailable,
    KeptSession,
    Log,
    LogToOpen,
    ProjectionsError,
    SliceRange,
    as_log,
    slice_ranges,
)
from journal.schema import check_version
from journal.service import AT_ONCE, Service
from journal.tasks import end, together
from projections.defining import Discovery, Projection, projection_of
from projections.errors import InvalidHandler
from projections.running.membership import Membership
from projections.running.observer import Observers
from projections.running.process import Process
from projections.running.ranges import Ranges, register
from projections.running.read_journal import LOOK_EVERY, ReadJournal
from projections.running.settings import RunSettings, pause_after

log = logging.getLogger("projections")

_TEND_EVERY = 1.0
"""Seconds between two looks of a discovery."""


async def run(
    database: Database,
    *definitions: Any,
    ranges: int = 1,
    settings: RunSettings | None = None,
    observer: Observers = (),
    stop: asyncio.Event | None = None,
    until_caught_up: bool = False,
    take_over: bool = False,
    discovery: Discovery | None = None,
    journal: Database | Log | Sequence[Database | Log | LogToOpen] | None = None,
) -> None:
    """
    Run projections until stopped, together with all processes that run them on the same database.

    The ranges of each projection spread over the processes; they move when one comes, goes or dies.

    Args:
        database: Where the read models are, and the journal, if that is not passed. Ranges take turns with its
            connections, all but three, so a pool of the number of ranges and three lets each keep its own.
        definitions: Classes (or objects of classes) decorated with :func:`projection`.
        ranges: Cut the slices of a projection that has never run into this number of ranges; of others,
            the command ``projections rescale`` changes the number.
        settings: Limits and times; None: the defaults.
        observer: Is called with what happens; several are a list, and are called in its order.
        stop: Stops all when set, after the current batches.
        until_caught_up: Return when every event that was appended before the start has been handled, here or by
            others; an event that always fails under ``Recovery.fail`` keeps it from that.
        take_over: Begin with the ranges that other processes hold, without waiting for their leases to end. Those
            that are alive lose what they have in flight, and get their share back.
        discovery: Finds projections that are added while this runs, such as
            :class:`projections.subscriptions.Matching`; what it finds reads the journal in ``database``.
        journal: Where the events are, if not in ``database``: they are only read. Effects and offsets commit together
            in ``database``, as ever, where :func:`journal.schema.install` has been called, too. Ranges take turns
            with its connections to read a page, all but one. Several are a list, in which each has a name of its own
            (``Log(other, "shop")``), and ``database`` stands for the journal that is there; a source keeps its order
            in each, and nothing is promised between them.

    Raises:
        InvalidHandler: A definition is not a projection, or two have one name, or a read model in SQL is to read a
            journal elsewhere.
        InvalidValue: A name belongs to a projection that reads other entity types in this version, or another
            journal than those that are passed; two of these have one name; or a discovery is to read a journal
            elsewhere; or a journal cannot be read by interval.
        DatabaseError: A standby and what was named as its primary do not belong together.
        SchemaError: The database's schema is missing, or of another version than this library, or becomes so while this
            runs: the current batches are rolled back.
        ProjectionsError: A handler commits or rolls back by itself.
        TableError: A table does not fit what a table handler declares.
        ValueError: The database lends fewer than four connections, or that of the journal fewer than two.
        DatabaseUnavailable: At the start; later the database is waited for. Of several journals, one that cannot be
            reached is waited for from the start on.
    """
    projections = [projection_of(definition) for definition in definitions]
    _check_names(projections)
    cut = slice_ranges(ranges)
    process = Process(
        database, settings or RunSettings(), observer, stop or asyncio.Event(), _journals(journal)
    )
    if discovery is not None:
        _check_discovery(process)
    async with AsyncExitStack() as stack:
        async with database.session() as session:
            await check_version(session)
            if discovery is not None:
                projections += await discovery.tend(session)
            known = {
                await register(process, read, session, projection, cut): (read, projection)
                for projection in projections
                for read in process.logs
            }
            if take_over:
                versions = {number: projection.version for number, (_, projection) in known.items()}
                await offsets.take_over(session, process.worker.owner, versions)
        running = _Running(process, known, cut, stack)
        await running.begin_reading()
        stack.enter_context(process.monitor.watching())
        await running.run(discovery, until_caught_up=until_caught_up)


def _journals(
    journal: Database | Log | Sequence[Database | Log | LogToOpen] | None,
) -> list[Log | LogToOpen]:
    several = journal if isinstance(journal, Sequence) else [] if journal is None else [journal]
    return [one if isinstance(one, LogToOpen) else as_log(one) for one in several]


def _check_discovery(process: Process) -> None:
    if [read.stored_name for read in process.logs] != [None]:
        raise InvalidValue(
            "what a discovery finds, as subscriptions, reads the journal in the database of the read models"
        )


class _Running:
    """
    What runs in a process, of each journal.

    Args:
        process: The process.
        known: By its number, each projection, and the journal that it reads under that.
        cut: How the slices are cut of a projection that has never run.
        stack: Ends the polls.
    """

    def __init__(
        self,
        process: Process,
        known: Mapping[int, tuple[ReadJournal, Projection]],
        cut: Sequence[SliceRange],
        stack: AsyncExitStack,
    ) -> None:
        self._process = process
        self._known = known
        self._cut = cut
        self._stack = stack
        self._membership = Membership(process)
        self._beside: list[asyncio.Task[Any]] = []
        self._found: set[str] = set()
        self._group: asyncio.TaskGroup

    async def begin_reading(self) -> None:
        """Look at the journal. Of several, each is looked at alongside the others, which it does not keep waiting."""
        if len(self._process.logs) == 1:
            self._noted(await self._process.logs[0].begin(self._process.settings, self._stack))

    def _noted(self, found: set[str]) -> None:
        self._found |= found
        if all(read.until is not None for read in self._process.logs):
            self._tell_missing(self._found)

    def _tell_missing(self, found: set[str]) -> None:
        # Allowed: a projection may well run before the first event. A misspelt type looks the same, so say it; those of
        # the library are not misspelt.
        for projection in {one.name: one for _, one in self._known.values()}.values():
            for name in set(projection.entity_types.names or ()).difference(found, LIBRARY_TYPES):
                log.warning(
                    "projection %r: the journal has no events of entity type %r yet", projection.name, name,
                    extra={"action": "no_events", "projection": projection.name},
                )  # fmt: skip

    async def run(self, discovery: Discovery | None, *, until_caught_up: bool) -> None:
        """Run until stopped."""
        async with together() as self._group:
            for read in self._process.logs:
                if read.until is None:
                    self._beside.append(self._group.create_task(self._read(read)))
                else:
                    self._begin_all(read)
            if discovery is not None:
                self._beside.append(self._group.create_task(self._discover(discovery)))
            await self._membership.run(until_caught_up=until_caught_up)
            with suppress(ProjectionsError):  # who has caught up has not handled these
                for read in self._process.logs if until_caught_up else ():
                    await read.tell_passed_over()
            await end(*self._beside)

    def _begin_all(self, read: ReadJournal) -> None:
        for number, (reads, projection) in self._known.items():
            if reads is read:
                self._begin(number, read, projection)
        if not read.log.queries.passed_over:
            return
        telling = Service(
            f"journal {read.name!r}", read.tell_passed_over, restart=lambda _: timedelta(seconds=LOOK_EVERY)
        )
        self._beside.append(self._group.create_task(telling.run(first=LOOK_EVERY)))

    def _begin(self, number: int, read: ReadJournal, projection: Projection) -> None:
        ranges = Ranges(self._process, projection, number, self._group, self._cut, read=read)
        self._membership.add(ranges)
        for service, first in ranges.chores():
            self._beside.append(self._group.create_task(service.run(first=first)))

    async def _read(self, read: ReadJournal) -> None:
        """Begin with one of several journals as soon as it can be reached, and keep it open until cancelled."""
        async with AsyncExitStack() as stack:

            async def begin() -> float:
                self._noted(await read.begin(self._process.settings, stack))
                self._begin_all(read)
                self._process.changed()
                service.stop()
                return AT_ONCE

            def failed(error: Exception) -> None:
                # What is wrong at the start is refused; later, others are at work.
                if service.failures == 1 and not isinstance(error, JournalUnavailable):
                    raise error
                log.error(
                    "journal %r cannot be read yet, and is tried again; others go on: %s", read.name, error,
                    extra={"action": "journal_unavailable"},
                )  # fmt: skip

            restart = partial(pause_after, self._process.settings, of_the_database=True)
            service = Service(f"journal {read.name!r}", begin, restart=restart, failed=failed)
            await service.run()
            await asyncio.Event().wait()

    async def _discover(self, discovery: Discovery) -> None:
        """Begin what is added, until cancelled. What is known is not registered again: each time costs a number."""
        process, (read,) = self._process, self._process.logs
        known = {projection.name for _, projection in self._known.values()}
        kept, generation = KeptSession(process.database.session), read.poller.generation

        async def look() -> float:
            nonlocal generation
            async with kept.use() as session:
                for projection in await discovery.tend(session):
                    if projection.name not in known:
                        number = await register(process, read, session, projection, slice_ranges(1))
                        self._begin(number, read, projection)
                        known.add(projection.name)
                        process.changed()
            # After a fail-over it may be to the server of before.
            if process.connections.all_taken or read.poller.generation != generation:
                generation = read.poller.generation
                await kept.close()
            return _TEND_EVERY

        try:
            await Service("discovery", look, restart=lambda _: timedelta(seconds=_TEND_EVERY)).run(
                first=_TEND_EVERY
            )
        finally:
            await kept.close_within(_TEND_EVERY)


def _check_names(projections: Sequence[Projection]) -> None:
    names = [projection.name for projection in projections]
    for name in names:
        if names.count(name) > 1:
            raise InvalidHandler(f"two projections are named {name!r}: a name is what offsets belong to")
