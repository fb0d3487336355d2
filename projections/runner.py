"""
Running projections in a process: registers them, claims their ranges, and begins again when a claim is lost.

Ownership is a lease, for liveness; what makes it safe is the epoch that every commit checks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

import offsets
from journal import NUMBER_OF_SLICES, Database, DatabaseError, OwnedSession, has_events, slice_ranges
from journal.schema import check_version
from offsets import Claim, RangeLost, RangeStatus
from projections.errors import InvalidHandler
from projections.handlers import Projection, projection_of
from projections.observer import StatusObserver
from projections.process import Process
from projections.ranges import Ranges
from projections.settings import RunSettings

log = logging.getLogger("projections")


async def run(
    database: Database,
    *definitions: Any,
    ranges: int | None = None,
    settings: RunSettings | None = None,
    observer: StatusObserver | None = None,
    stop: asyncio.Event | None = None,
    until_caught_up: bool = False,
    take_over: bool = False,
) -> None:
    """
    Run projections until stopped.

    Args:
        database: Where the journal and the read models are. Each range holds one of its connections; polls,
            heartbeats and reading ahead take a few more.
        definitions: Classes (or objects of classes) decorated with :func:`projection`.
        ranges: Cut the slices of each into so many ranges; by default as they were cut before, at first one.
        settings: How.
        observer: Is told what happens.
        stop: Stops all when set, after the batches at hand.
        until_caught_up: Return when every event that was appended before the start has been handled; an event that
            fails for ever under ``Recovery.fail`` keeps it from that.
        take_over: Claim ranges that another process holds, instead of waiting for its lease to end.

    Raises:
        InvalidHandler: A definition is no projection, or two have one name.
        WrongEntityType: A name belongs to a projection of another entity type.
        SchemaError: The database's schema is missing, or of another version than this library.
        TransactionEnded: A handler commits or rolls back by itself.
        TableError: A table does not fit what a table handler declares.
        DatabaseUnavailable: At the start; later the database is waited for.
    """
    projections = [projection_of(definition) for definition in definitions]
    _check_names(projections)
    cut = None if ranges is None else slice_ranges(ranges)
    process = Process(
        database, settings or RunSettings(), observer or StatusObserver(), stop or asyncio.Event()
    )
    async with AsyncExitStack() as stack:
        async with database.session() as session:
            await check_version(session)
            until = await session.fetchval("SELECT clock_timestamp()") if until_caught_up else None
            ids = [await _register(session, projection, cut) for projection in projections]
        stack.enter_context(process.monitor.watching())
        stack.push_async_callback(process.poller.close)
        if process.settings.listen:
            await stack.enter_async_context(process.poller.listening())
        try:
            async with asyncio.TaskGroup() as group:
                for projection, projection_id in zip(projections, ids, strict=True):
                    group.create_task(
                        _supervise(process, projection, projection_id, until, take_over=take_over)
                    )
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the first ends all: the others are of its making


def _check_names(projections: Sequence[Projection]) -> None:
    names = [projection.name for projection in projections]
    for name in names:
        if names.count(name) > 1:
            raise InvalidHandler(f"two projections are named {name!r}: a name is what offsets belong to")


async def _register(session: OwnedSession, projection: Projection, cut: Sequence[Any] | None) -> int:
    projection_id = await offsets.register(session, projection.name, projection.entity_type)
    if cut is not None:
        await offsets.set_ranges(session, projection_id, cut)
    if not await has_events(session, projection.entity_type):
        # Allowed: a projection may well run before the first event. A misspelt type looks the same, so say it.
        log.warning(
            "projection %r: the journal has no events of entity type %r yet", projection.name, projection.entity_type,
            extra={"action": "no_events", "projection": projection.name},
        )  # fmt: skip
    return projection_id


async def _supervise(
    process: Process, projection: Projection, projection_id: int, until: datetime | None, *, take_over: bool
) -> None:
    """Claim all ranges and run them; when they are cut anew or taken away, begin again."""
    failures = 0
    while not process.stop.is_set():
        try:
            if claims := await _claim_all(process, projection, projection_id, take_over=take_over):
                take_over = False
                await Ranges(process, projection, claims).run(until)
        except DatabaseError as error:  # also read-only, as a standby is until it is promoted
            failures += 1
            log.error(  # noqa: TRY400 - where it was noticed says nothing
                "%s", error, extra={"action": "database_unavailable", "projection": projection.name}
            )
            await process.pause(process.settings.restart.delay(failures).total_seconds())
        except RangeLost as error:
            log.warning(
                "%s: %s",
                projection.name,
                error,
                extra={"action": "range_lost", "projection": projection.name},
            )
        else:
            return


async def _claim_all(
    process: Process, projection: Projection, projection_id: int, *, take_over: bool
) -> list[Claim]:
    """Claim every range, waiting for those whose owner is alive; none when the process stops meanwhile."""
    told = False
    while not process.stop.is_set():
        async with process.database.session() as session:
            ranges = await offsets.read_ranges(session, projection_id)
            if claims := await _try_claims(session, process, projection_id, ranges, take_over=take_over):
                return claims
        if not told:
            owners = sorted({r.owner for r in ranges if r.alive and r.owner and r.owner != process.owner})
            log.warning(
                "projection %r is run by %s: waiting for its lease to end",
                projection.name, ", ".join(owners) or "another",
                extra={"action": "waiting", "projection": projection.name},
            )  # fmt: skip
            told = True
        await process.pause(process.settings.heartbeat.total_seconds())
    return []


async def _try_claims(
    session: OwnedSession,
    process: Process,
    projection_id: int,
    ranges: Sequence[RangeStatus],
    *,
    take_over: bool,
) -> list[Claim]:
    """Claim all ranges or, when one is not to be had, none: two that hold a part each would wait for ever."""
    held: list[Claim] = []
    await session.begin()
    try:
        for status in ranges:  # in the order of slices: two that claim at once must not deadlock
            start, lease = status.slices.min_slice, process.settings.lease
            claim = await offsets.claim(
                session, projection_id, start, process.owner, lease, take_over=take_over
            )
            if claim is None:
                break
            held.append(claim)
        if sum(c.slices.max_slice - c.slices.min_slice + 1 for c in held) == NUMBER_OF_SLICES:
            await session.commit()
            return held
    finally:
        await session.rollback()
    return []
