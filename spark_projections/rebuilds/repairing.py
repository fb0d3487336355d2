"""
Making the rows of single sources what the journal says, and comparing rows with it, beside live workers.

A repair handles the events of its sources again up to where workers have handled them, and then keeps the tables for
itself for a moment: a batch that has written by then is waited for, and what it has handled is folded, too; one that
comes later waits, and goes on from the rows that it finds. No offset changes, so workers notice nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from journal import Database, OwnedSession
from journal.schema import check_version
from projections.defining import Projection
from projections.failing import GiveUp
from projections.running import read_shape
from spark_projections.errors import NotRebuildable, RebuildFailed
from spark_projections.rebuilds.bookkeeping import transaction
from spark_projections.rebuilds.comparing import Difference, Rows
from spark_projections.rebuilds.journal import RebuiltFrom
from spark_projections.rebuilds.options import RebuildOptions, RebuildProgress
from spark_projections.rebuilds.refolding import (
    LISTED,
    EventOf,
    Handled,
    Refolding,
    comparable,
    handled_until,
    parked_at,
    refolding,
)
from spark_projections.rebuilds.swapping import lock_tables

_PAGE = 1_000
_SOURCES = """
SELECT s.source_id FROM projections.sources AS s
WHERE coalesce(s.entity_type = ANY ($1), TRUE) AND s.source_id > $2 ORDER BY s.source_id LIMIT $3
"""
_SAMPLE = """
SELECT s.source_id FROM projections.sources AS s
WHERE coalesce(s.entity_type = ANY ($1), TRUE) ORDER BY random() LIMIT $2
"""
_COUNT = "SELECT count(*) FROM projections.sources AS s WHERE coalesce(s.entity_type = ANY ($1), TRUE)"
# Rows are looked up by their keys, and sources in the order of theirs, whatever the statistics say.
_BY_KEYS = [
    f"SET LOCAL enable_{one} = off" for one in ("seqscan", "bitmapscan", "sort", "hashjoin", "mergejoin")
]
_ALL_ROWS = ["SET LOCAL row_security = off"]  # an error, rather than rows that are hidden from this role
_AS_A_WHOLE = [f"SET LOCAL enable_{one} = on" for one in ("seqscan", "sort", "hashjoin", "mergejoin")]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of comparing rows of a read model with the journal."""

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
) -> Comparison:
    """
    Make the rows of sources what the journal says, in one transaction and beside live workers.

    Args:
        database: The primary. The role must be allowed to write to the tables.
        definition: A class (or object of a class) decorated with :func:`projections.projection`.
        source_ids: The sources.
        options: Of these, ``skip``, ``from_first_kept`` and ``swap_within`` are meant.
        progress: Is told who has the tables.

    Returns:
        The rows that differed, as they were before.

    Raises:
        RebuildError: The rows of a source cannot be told from others, another version of the code runs, the journal
            does not have the source or all of its events, the tables stay in use, or the rows still differ when they
            are written, as where a trigger changes them. Nothing has changed.
        HandlerFailed: An event cannot be handled; nothing has changed.
        DatabaseError: The database refused, or was lost.
    """
    chosen, told = options or RebuildOptions(), progress or RebuildProgress()
    wanted = sorted(set(source_ids))
    async with database.session() as session:
        await check_version(session)
        projection, tables, number = await comparable(session, definition, shared=False)
        rows, skip = Rows(tables), chosen.skip or projection.recovery.give_up is GiveUp.SKIP
        async with (
            transaction(session),
            RebuiltFrom(database).reading(session) as reading,
            refolding(
                session, reading, projection, rows, skip=skip, from_first_kept=chosen.from_first_kept
            ) as again,
        ):
            await _set(session, _ALL_ROWS)
            await rows.create(session)
            await again.fold(_known(projection, await handled_until(session, number, wanted)))
            await lock_tables(session, rows.names, told.waiting, chosen.swap_within)
            # What was handled meanwhile, by the code that is handled by now.
            await comparable(session, definition, shared=False)
            await again.fold(await handled_until(session, number, wanted))
            await _set(session, _BY_KEYS)
            found = await rows.differences(session, wanted, LISTED)
            left = await _left_out(session, again, number, wanted)
            if found.total:
                await rows.replace(session, wanted)
                await _check_repaired(session, rows, wanted)
    return Comparison(
        projection.name, len(wanted), len(wanted), again.events, *left, found.rows, found.total, repaired=True
    )  # fmt: skip


def _known(projection: Projection, handled: Sequence[Handled]) -> Sequence[Handled]:
    if unknown := [one.source_id for one in handled if one.last is None]:
        raise NotRebuildable(
            f"the journal has no source {', '.join(map(repr, unknown))} that this projection reads "
            f"({projection.entity_types.said}): correct the name; rows that nothing in the journal has "
            "made are for you to delete"
        )
    return handled


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
) -> Comparison:
    """
    Compare a read model with the journal, beside live workers, and change nothing.

    All of it is seen as of one moment: the rows, and the events that workers had handled by then.

    Args:
        database: The primary. A role that reads the tables and the journal, and may make temporary tables.
        definition: A class (or object of a class) decorated with :func:`projections.projection`.
        sources: Handle the events of these sources again, or of a number of sources, others each time; None for all,
            which also finds rows that nothing in the journal has made, and compares rows that several sources share.
        from_first_kept: Sources may begin after 1, because their first events have been deleted.
        tell: Is told how many sources are done, and of how many.

    Raises:
        RebuildError: The rows cannot be made again here, another version of the code runs, or the journal does not
            have all events of a source any more.
        DatabaseError: The database refused, or was lost.
    """
    async with database.session() as session:
        await check_version(session)
        whole = sources is None
        projection, tables, number = await comparable(session, definition, shared=whole)
        names = sorted([(await read_shape(session, table)).name for table in tables])
        lock = f"LOCK TABLE ONLY projections.events, {', '.join(names)} IN ACCESS SHARE MODE"
        rows, found = Rows(tables, whole=whole), list[str]()
        async with (
            transaction(session, snapshot_after=lock),
            RebuiltFrom(database).reading(session) as reading,
            refolding(
                session, reading, projection, rows, skip=True, from_first_kept=from_first_kept
            ) as again,
        ):
            await comparable(session, definition, shared=whole)  # the code of this moment
            await _set(session, _ALL_ROWS)
            await rows.create(session)
            of_sources = await session.fetchval(_COUNT, projection.entity_types.sql)
            done = 0
            async for page in _pages(session, projection.entity_types.sql, sources):
                await again.fold(_known(projection, await handled_until(session, number, page)))
                again.forget()
                done += len(page)
                found += [] if whole else page
                if tell is not None:
                    tell(done, of_sources)
            await _set(session, _AS_A_WHOLE if whole else _BY_KEYS)
            differences = await rows.differences(session, found, LISTED)
            left = await _left_out(session, again, number, None if whole else found)
    return Comparison(
        projection.name, done, of_sources, again.events, *left, differences.rows, differences.total
    )


async def _pages(
    session: OwnedSession, entity_types: list[str] | None, sources: int | Sequence[str] | None
) -> AsyncIterator[list[str]]:
    """The ids of some sources, or of all."""
    if isinstance(sources, int):
        rows = await session.fetch(_SAMPLE, entity_types, sources)
        sources = [row["source_id"] for row in rows]
    await _set(session, _BY_KEYS)
    if sources is not None:
        chosen = sorted(set(sources))
        for start in range(0, len(chosen), _PAGE):
            yield chosen[start : start + _PAGE]
        return
    page = await session.fetch(_SOURCES, entity_types, "", _PAGE)
    while page:
        yield [row["source_id"] for row in page]
        page = await session.fetch(_SOURCES, entity_types, page[-1]["source_id"], _PAGE)
