"""A projection of another framework goes on as one of ours: its offsets are taken over, once, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from journal import (
    ALL_SLICES,
    BEGINNING,
    CLOCK_MARGIN,
    NUMBER_OF_SLICES,
    Database,
    Key,
    Log,
    OwnedSession,
    Position,
    Session,
    SliceRange,
    SliceReader,
    latest_seq_nr,
)
from journal.writers import WritersInFlight, look_at_writers, wait_for_writers
from offsets.errors import MoveRefused, ProjectionRuns
from offsets.leases import Registered
from offsets.lost_events import ahead_in
from offsets.standings import Standing
from offsets.store import register

_NUMBERS = timedelta(microseconds=100_000)
"""How many numbers back a transaction that is open may have drawn its own."""

_PATIENCE = timedelta(seconds=1)
"""How long a session that has just begun may take to show since when."""

_RUNS = """
SELECT string_agg(w.owner, ', ' ORDER BY w.owner) FROM projections.workers AS w
WHERE $1 = ANY (w.projection_ids) AND w.lease_until > clock_timestamp()
"""
_LOCK_RANGES = """
SELECT horizon > '1970-01-01T00:00:00Z' AS has_begun FROM projections.projection_ranges
WHERE projection_id = $1 ORDER BY min_slice FOR UPDATE
"""
_HAS_OFFSETS = """
SELECT EXISTS (SELECT FROM projections.source_offsets WHERE projection_id = $1)
OR EXISTS (SELECT FROM projections.parked_sources WHERE projection_id = $1)
"""
_START = "SELECT projections._set_offset_v1($1, $2)"
_STORE = """
INSERT INTO projections.source_offsets (projection_id, source_id, seq_nr, db_timestamp, slice)
SELECT $1, s.source_id, s.seq_nr, s.db_timestamp, s.slice
FROM unnest($2::text[], $3::bigint[], $4::timestamptz[], $5::smallint[]) AS s (source_id, seq_nr, db_timestamp, slice)
ON CONFLICT (projection_id, source_id) DO NOTHING
"""
_PAGE = 5000
_NAMED = 10


class Moved(NamedTuple):
    """What was taken over."""

    start: datetime
    """Where reading begins."""
    sources: int
    """Sources whose offsets were stored."""
    deleted: int
    """Sources left out, for the log has none of their events any more."""
    told: str
    """What counts as handled."""


async def take_over_offsets(
    database: Database,
    log: Log,
    projection: Registered,
    stands: Standing,
    cut: Sequence[SliceRange],
    *,
    dry_run: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Moved:
    """
    Have a projection of ours go on where one of another framework stands.

    All in one transaction on the database of the read model. The other one must have been stopped: what it handles
    afterwards is handled twice.

    Args:
        database: Where the read model is, and the offsets are to be.
        log: The log that both read.
        projection: Ours: one that has never handled anything, and that no worker runs.
        stands: Where the other one stands.
        cut: Into which ranges its slices are cut, if it is new.
        dry_run: Look at everything, and store nothing.
        progress: Is notified of how many sources the offsets are stored so far, as they are stored.

    Raises:
        MoveRefused: The projection has offsets, those of the other are ahead of the log, or it cannot be told since
            when a transaction is open there.
        ProjectionRuns: Workers run it.
    """
    if log.has_tokens:
        raise MoveRefused(
            "a journal of this library has no projections of other frameworks: name that of the other system"
        )
    log = log.at_primary  # a standby does not show what is open
    stands = await _with_open_writers(log, stands)
    async with database.session() as session:
        await session.begin()
        try:
            number = await register(
                session, projection.name, projection.entity_types, cut, projection.version, journal=log.name
            )
            await _check_unused(session, number, projection.name)
            await session.execute(_START, number, stands.start)
            moved = await _store(session, number, log, projection, stands, progress=progress)
            await (session.rollback() if dry_run else session.commit())
        except BaseException:
            await session.rollback()
            raise
    return moved


async def _check_unused(session: OwnedSession, number: int, name: str) -> None:
    # First the ranges: a batch that has not stored yet fails then, for its epoch is over.
    begun = [row["has_begun"] for row in await session.fetch(_LOCK_RANGES, number)]
    if workers := await session.fetchval(_RUNS, number):
        raise ProjectionRuns(f"projection {name!r} is run by {workers}: stop these workers first")
    if any(begun) or await session.fetchval(_HAS_OFFSETS, number):
        raise MoveRefused(
            f"projection {name!r} has begun already. To take over offsets nevertheless, clear its own first: "
            f"projections offsets clear {name}"
        )


async def _with_open_writers(log: Log, stands: Standing) -> Standing:
    """
    The standing, begun where nothing that is still open in the log can have written: what it commits is not handled.

    Raises:
        MoveRefused: It cannot be told since when a transaction is open; or the log does not reach so far.
    """
    poll, who = log.queries.poll, log.queries.writers
    async with log.session() as session:
        first = await look_at_writers(session, poll=poll)
        if stands.start > first.at:
            raise MoveRefused(
                f"the offsets are ahead of journal {log.name!r}, which does not reach so far: it is another one, or "
                "has lost its end"
            )
        if log.is_by_number:
            start = stands.start - _NUMBERS if first.holders else stands.start
        else:
            unknown = first.holders - first.starts.keys()
            try:
                await wait_for_writers(session, unknown, patience=_PATIENCE, queries=(poll, who))
            except WritersInFlight as error:
                raise MoveRefused(
                    f"a transaction in the database of journal {log.name!r} does not show since when it is open, such "
                    f"as one that is prepared: do this again when it has ended ({error})"
                ) from None
            last = await look_at_writers(session, poll=poll)
            shown = [*first.starts.values(), *last.starts.values()]
            start = min([stands.start, *(since - CLOCK_MARGIN for since in shown)])
    bounds = stands.bounds or [stands.start] * NUMBER_OF_SLICES
    return replace(stands, start=max(start, BEGINNING), bounds=bounds)


async def _store(
    session: OwnedSession, number: int, log: Log, projection: Registered, stands: Standing,
    *, progress: Callable[[int], None] | None,
) -> Moved:  # fmt: skip
    """Store all offsets: those that are stored elsewhere, as far as the log has them, and those that the log shows."""
    reader = SliceReader(projection.entity_types, ALL_SLICES, queries=log.queries)
    sources = deleted = 0
    if stands.offsets is not None:
        async for offsets in stands.offsets():
            for first in range(0, len(offsets), _PAGE):
                kept, gone = await _fitting(log, reader, offsets[first : first + _PAGE])
                sources += await _insert(session, number, kept)
                deleted += gone
                if progress is not None:
                    progress(sources)
    if deleted and not sources:
        raise MoveRefused(
            f"journal {log.name!r} has no event of any of {deleted} sources: it is another journal"
        )
    sources += await _insert(session, number, await _handled_before(log, reader, stands))
    return Moved(stands.start, sources, deleted, stands.told)


async def _insert(session: Session, number: int, offsets: Sequence[Key]) -> int:
    stored = 0
    for first in range(0, len(offsets), _PAGE):
        columns = [list(column) for column in zip(*offsets[first : first + _PAGE], strict=True)]
        stored += await session.execute(_STORE, number, *columns)
    return stored


async def _fitting(log: Log, reader: SliceReader, offsets: Sequence[Key]) -> tuple[list[Key], int]:
    """
    The offsets of sources that the log has, and the number of the others.

    Raises:
        MoveRefused: One is ahead of the log.
    """
    async with log.session() as journal:
        found = {one.source_id: one for one in await ahead_in(journal, reader, offsets)}
        gone = {
            name
            for name, one in found.items()
            if not one.kept and not await latest_seq_nr(journal, name, queries=log.queries)
        }
    if ahead := [str(one) for name, one in found.items() if name not in gone]:
        named = ", ".join(ahead[:_NAMED]) + (", ..." if len(ahead) > _NAMED else "")
        raise MoveRefused(
            f"the offsets are ahead of journal {log.name!r}: it does not have what was handled of {named}"
        )
    return [one for one in offsets if one.source_id not in gone], len(gone)


async def _handled_before(log: Log, reader: SliceReader, stands: Standing) -> list[Key]:
    """Offsets of sources without one, of slices that are known to be further than the start, as the log has them."""
    last: dict[str, Key] = {}
    place, until = Position.before(stands.start), max(stands.bounds)
    async with log.session() as journal:
        while place.db_timestamp < until:
            page = await reader.keys(journal, place, until)
            for key in page:
                known = last.get(key.source_id)  # its times may run against its numbers
                if key.db_timestamp < stands.bounds[key.slice] and (
                    known is None or key.seq_nr > known.seq_nr
                ):
                    last[key.source_id] = key
            if not page.more:
                break
            place = page[-1].position
    return list(last.values())
