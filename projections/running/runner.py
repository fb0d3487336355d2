"""
Running projections in a process: registers them, joins the others that run them, and ends on request.

Ownership is a lease, for liveness; what makes it safe is the epoch that every commit checks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any

import offsets
from journal import (
    JOURNAL,
    Database,
    InvalidValue,
    KeptSession,
    Log,
    OwnedSession,
    SliceRange,
    as_log,
    entity_types,
    now_in,
    shared_poller,
    slice_ranges,
)
from journal.schema import check_version
from journal.service import Service
from journal.tasks import end, together
from projections.defining import Discovery, Projection, projection_of
from projections.errors import InvalidHandler
from projections.running.membership import Membership
from projections.running.observer import Observers
from projections.running.process import Process
from projections.running.ranges import Ranges
from projections.running.settings import RunSettings

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
    journal: Database | Log | None = None,
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
        observer: Is told what happens; several, in their order, are a list.
        stop: Stops all when set, after the current batches.
        until_caught_up: Return when every event that was appended before the start has been handled, here or by
            others; an event that always fails under ``Recovery.fail`` keeps it from that.
        take_over: Begin with the ranges that other processes hold, without waiting for their leases to end. Those
            that are alive lose what they have in flight, and get their share back.
        discovery: Finds projections that are added while this runs, such as
            :class:`projections.subscriptions.Matching`; what it finds reads the journal in ``database``.
        journal: Where the events are, if not in ``database``: they are only read. Effects and offsets commit together
            in ``database``, as ever, where :func:`journal.schema.install` has been called, too. Ranges take turns
            with its connections to read a page, all but one.

    Raises:
        InvalidHandler: A definition is not a projection, or two have one name.
        InvalidValue: A name belongs to a projection that reads other entity types in this version, or another
            journal; or a discovery is to read a journal elsewhere; or a journal cannot be read by interval.
        DatabaseError: A standby and what was named as its primary do not belong together.
        SchemaError: The database's schema is missing, or of another version than this library, or becomes so while this
            runs: the current batches are rolled back.
        ProjectionsError: A handler commits or rolls back by itself.
        TableError: A table does not fit what a table handler declares.
        ValueError: The database lends fewer than four connections, or that of the journal fewer than two.
        DatabaseUnavailable: At the start; later the database is waited for.
    """
    projections = [projection_of(definition) for definition in definitions]
    _check_names(projections)
    cut = slice_ranges(ranges)
    read = as_log(database if journal is None else journal)
    process = Process(database, settings or RunSettings(), observer, stop or asyncio.Event(), read)
    if process.settings.backtracking == "interval":
        read.check_interval()
    if discovery is not None and process.journal_name is not None:
        raise InvalidValue(
            "what a discovery finds, as subscriptions, reads the journal in the database of the read models"
        )
    async with AsyncExitStack() as stack:
        async with database.session() as session:
            await check_version(session)
            if discovery is not None:
                projections += await discovery.tend(session)
            known = {
                await _register(process, session, projection, cut): projection for projection in projections
            }
            if take_over:
                versions = {number: projection.version for number, projection in known.items()}
                await offsets.take_over(session, process.worker.owner, versions)
        until = await _look_at_journal(process, projections)
        stack.enter_context(process.monitor.watching())
        process.poller = await stack.enter_async_context(
            shared_poller(process.journal, process.settings.pacing, listen=process.settings.listen)
        )
        await _run(process, known, cut, until if until_caught_up else None, discovery)


async def _look_at_journal(process: Process, projections: Sequence[Projection]) -> datetime:
    """Say what of it projections will not find; returns its time."""
    read = process.journal
    if process.connections.apart:
        await read.check(alone=process.settings.backtracking == "interval")
    async with read.session() if process.connections.apart else read.database.session() as session:
        if read.queries is JOURNAL and process.connections.apart:
            await check_version(session)
        found = set(await entity_types(session, queries=read.queries))
    with process.connections.of_journal():
        time = (await now_in(read)).time
    # Allowed: a projection may well run before the first event. A misspelt type looks the same, so say it.
    for projection in projections:
        for name in set(projection.entity_types.names or ()).difference(found):
            log.warning(
                "projection %r: the journal has no events of entity type %r yet", projection.name, name,
                extra={"action": "no_events", "projection": projection.name},
            )  # fmt: skip
    return time


async def _run(
    process: Process,
    projections: dict[int, Projection],
    cut: Sequence[SliceRange],
    until: datetime | None,
    discovery: Discovery | None,
) -> None:
    membership = Membership(process)
    async with together() as group:
        beside: list[asyncio.Task[Any]] = []

        def begin(number: int, projection: Projection) -> None:
            ranges = Ranges(process, projection, number, group, cut)
            membership.add(ranges)
            for service, first in ranges.chores():
                beside.append(group.create_task(service.run(first=first)))

        for number, projection in projections.items():
            begin(number, projection)
        if discovery is not None:
            beside.append(group.create_task(_discover(process, discovery, projections.values(), begin)))
        await membership.run(until)
        await end(*beside)


async def _discover(
    process: Process,
    discovery: Discovery,
    begun: Iterable[Projection],
    begin: Callable[[int, Projection], None],
) -> None:
    """Begin what is added, until cancelled. What is known is not registered again: each time costs a number."""
    known = {projection.name for projection in begun}
    kept, generation = KeptSession(process.database.session), process.poller.generation

    async def look() -> float:
        nonlocal generation
        async with kept.use() as session:
            for projection in await discovery.tend(session):
                if projection.name not in known:
                    begin(await _register(process, session, projection, slice_ranges(1)), projection)
                    known.add(projection.name)
                    process.changed()
        # After a fail-over it may be to the server of before.
        if process.connections.all_taken or process.poller.generation != generation:
            generation = process.poller.generation
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


async def _register(
    process: Process, session: OwnedSession, projection: Projection, cut: Sequence[SliceRange]
) -> int:
    return await offsets.register(
        session,
        projection.name,
        projection.entity_types,
        cut,
        projection.version,
        journal=process.journal_name,
    )
