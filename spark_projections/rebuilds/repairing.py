"""
Making the rows of single sources what the journal says, and comparing rows with it, alongside live workers.

A repair handles the events of its sources again up to where workers have handled them, and then keeps the tables for
itself for a moment: a batch that has written by then is waited for, and what it has handled is folded, too; one that
comes later waits, and goes on from the rows that it finds. No offset changes, so workers notice nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from journal import Database, Log, OwnedSession
from journal.schema import check_version
from projections.defining import Projection
from projections.failing import GiveUp
from projections.running import read_shape
from spark_projections.errors import NotRebuildable, RebuildFailed
from spark_projections.rebuilds.bookkeeping import transaction
from spark_projections.rebuilds.comparing import Difference, Rows
from spark_projections.rebuilds.journal import JournalSession, RebuiltFrom
from spark_projections.rebuilds.options import RebuildOptions, RebuildProgress
from spark_projections.rebuilds.refolding import (
    LISTED,
    EventOf,
    Refolding,
    comparable,
    handled_until,
    parked_at,
    refolding,
)
from spark_projections.rebuilds.sources import (
    PAGE,
    Source,
    all_sources,
    known_sources,
    number_of_sources,
    some_sources,
)
from spark_projections.rebuilds.swapping import lock_tables

# Rows are looked up by their keys, and sources in the order of theirs, whatever the statistics say.
_BY_KEYS = [
    f"SET LOCAL enable_{one} = off" for one in ("seqscan", "bitmapscan", "sort", "hashjoin", "mergejoin")
]
_ALL_ROWS = ["SET LOCAL row_security = off"]  # an error, rather than rows that are hidden from this role
_AS_A_WHOLE = [f"SET LOCAL enable_{one} = on" for one in ("seqscan", "sort", "hashjoin", "mergejoin")]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of comparing rows of a read model with the journal."""

    projection: str
    sources: int
    """Sources whose events were handled again."""
    of_sources: int
    """As many there are."""
    events: int
    skipped: int
    """Events that the handlers cannot handle; they were left out."""
    skipped_events: list[EventOf]
    """The first of these."""
    parked: int
    """Sources that are parked, whose events were not compared from the one on that they are parked at."""
    parked_events: list[EventOf]
    """The first of these events."""
    differences: list[Difference]
    """The first rows that differ."""
    differing: int
    """As many rows differ."""
    repaired: bool = False


class _Left(NamedTuple):
    """What was not compared."""

    skipped: int
    skipped_events: list[EventOf]
    parked: int
    parked_events: list[EventOf]


async def _left_out(
    session: OwnedSession, again: Refolding, number: int, source_ids: Sequence[str] | None
) -> _Left:
    return _Left(again.skipped, again.skipped_events, *await parked_at(session, number, source_ids))


async def repair(
    database: Database,
    definition: Any,
    source_ids: Sequence[str],
    options: RebuildOptions | None = None,
    *,
    progress: RebuildProgress | None = None,
    journal: Database | Log | None = None,
) -> Comparison:
    """
    Make the rows of sources what the journal says, in one transaction and alongside live workers.

    Args:
        database: The primary. The role must be allowed to write to the tables.
        definition: A class (or object of a class) decorated with :func:`projections.projection`.
        source_ids: The sources.
        options: Of these, ``skip``, ``from_first_kept`` and ``swap_within`` are meant.
        progress: Gets who has the tables.
        journal: What the projection reads, where that is in another database, which is only read; of a standby, its
            primary.

    Returns:
        The rows that differed, as they were before.

    Raises:
        InvalidValue: The projection reads another journal.
        RebuildError: The rows of a source cannot be told from others, another version of the code runs, the journal
            does not have the source or all of its events, the tables stay in use, or the rows still differ when they
            are written, as where a trigger changes them. Nothing has changed.
        HandlerFailed: An event cannot be handled; nothing has changed.
        DatabaseError: The database refused, or was lost.
    """
    chosen, told = options or RebuildOptions(), progress or RebuildProgress()
    wanted, read_from = sorted(set(source_ids)), RebuiltFrom.named(database, journal)
    async with database.session() as session:
        await check_version(session)
        projection, tables, number = await comparable(session, definition, read_from, shared=False)
        rows, skip = Rows(tables), chosen.skip or projection.recovery.give_up is GiveUp.SKIP
        async with (
            transaction(session),
            read_from.reading(session) as reading,
            refolding(
                session, reading, projection, rows, skip=skip, from_first_kept=chosen.from_first_kept
            ) as again,
        ):
            await _set(session, _ALL_ROWS)
            await rows.create(session)
            sources = await _known(reading, projection, wanted)
            await again.fold(await handled_until(session, number, sources))
            await lock_tables(session, rows.names, told.waiting, chosen.swap_within)
            # What was handled meanwhile, by the code that is handled by now.
            await comparable(session, definition, read_from, shared=False)
            sources = await _known(reading, projection, wanted)
            await again.fold(await handled_until(session, number, sources))
            await _set(session, _BY_KEYS)
            found = await rows.differences(session, wanted, LISTED)
            left = await _left_out(session, again, number, wanted)
            if found.total:
                await rows.replace(session, wanted)
                await _check_repaired(session, rows, wanted)
    return Comparison(
        projection.name, len(wanted), len(wanted), again.events, *left, found.rows, found.total, repaired=True
    )  # fmt: skip


async def _known(reading: JournalSession, projection: Projection, source_ids: Sequence[str]) -> list[Source]:
    found = await known_sources(reading, projection.entity_types, source_ids)
    if unknown := sorted(set(source_ids) - {one.source_id for one in found}):
        raise NotRebuildable(
            f"the journal has no source {', '.join(map(repr, unknown))} that this projection reads "
            f"({projection.entity_types.said}): correct the name; rows that nothing in the journal has "
            "made are for you to delete"
        )
    return found


async def _check_repaired(session: OwnedSession, rows: Rows, source_ids: Sequence[str]) -> None:
    left = await rows.differences(session, source_ids, 1)
    if left.total:
        raise RebuildFailed(
            f"{left.total:,} rows still differ when they are written, such as {left.rows[0].key} of table "
            f"{left.rows[0].table}: something changes what is written, such as a trigger, or hides it, as row "
            "security does. Nothing has changed"
        )


async def _set(session: OwnedSession, settings: Sequence[str]) -> None:
    for setting in settings:
        await session.execute(setting)


async def verify(
    database: Database,
    definition: Any,
    *,
    sources: int | Sequence[str] | None = 100,
    from_first_kept: bool = False,
    tell: Callable[[int, int], None] | None = None,
    journal: Database | Log | None = None,
) -> Comparison:
    """
    Compare a read model with the journal, alongside live workers, and change nothing.

    All of it is seen as of one moment: the rows, and the events that workers had handled by then. A journal in another
    database is read after that moment, so it has all of these.

    Args:
        database: The primary. A role that reads the tables and the journal, and may make temporary tables.
        definition: A class (or object of a class) decorated with :func:`projections.projection`.
        sources: Handle the events of these sources again, or of a number of sources, others each time; None for all,
            which also finds rows that nothing in the journal has made, and compares rows that several sources share.
        from_first_kept: Sources may begin after 1, because their first events have been deleted.
        tell: Gets how many sources are done, and of how many.
        journal: As for :func:`repair`.

    Raises:
        InvalidValue: The projection reads another journal.
        RebuildError: The rows cannot be made again here, another version of the code runs, or the journal does not
            have all events of a source any more.
        DatabaseError: The database refused, or was lost.
    """
    whole, read_from = sources is None, RebuiltFrom.named(database, journal)
    async with database.session() as session:
        await check_version(session)
        projection, tables, number = await comparable(session, definition, read_from, shared=whole)
        names = sorted([(await read_shape(session, table)).name for table in tables])
        lock = f"LOCK TABLE ONLY projections.events, {', '.join(names)} IN ACCESS SHARE MODE"
        rows, found = Rows(tables, whole=whole), list[str]()
        async with (
            transaction(session, snapshot_after=lock),
            read_from.reading_once(session) as reading,
            refolding(
                session, reading, projection, rows, skip=True, from_first_kept=from_first_kept
            ) as again,
        ):
            await comparable(session, definition, read_from, shared=whole)  # the code of this moment
            await _set(session, _ALL_ROWS)
            await rows.create(session)
            of_sources = await number_of_sources(reading, projection.entity_types)
            done = 0
            async for page in _pages(session, reading, projection, sources):
                await again.fold(await handled_until(session, number, page))
                again.forget()
                done += len(page)
                found += [] if whole else [one.source_id for one in page]
                if tell is not None:
                    tell(done, of_sources)
            await _set(session, _AS_A_WHOLE if whole else _BY_KEYS)
            differences = await rows.differences(session, found, LISTED)
            left = await _left_out(session, again, number, None if whole else found)
    return Comparison(
        projection.name, done, of_sources, again.events, *left, differences.rows, differences.total
    )


async def _pages(
    session: OwnedSession,
    reading: JournalSession,
    projection: Projection,
    sources: int | Sequence[str] | None,
) -> AsyncIterator[list[Source]]:
    """Some sources, or all."""
    chosen = await some_sources(reading, projection.entity_types, sources) if isinstance(sources, int) else []
    for one in (session, reading.session):
        await _set(one, _BY_KEYS)
    if sources is None:
        async for page in all_sources(reading, projection.entity_types):
            yield page
    elif not isinstance(sources, int):
        chosen = await _known(reading, projection, sorted(set(sources)))
    for start in range(0, len(chosen), PAGE):
        yield chosen[start : start + PAGE]
