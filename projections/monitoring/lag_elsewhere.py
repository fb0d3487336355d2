"""
The lag of projections whose journal is in another database: nothing there can be joined with what is here.

Where their ranges stand is read first, then the keys of the journal from there on, page by page, and then, of the
sources of each page, the offsets. So it costs what reading the keys of the backlog does, and needs of the journal what
projections need. What is handled meanwhile does not count.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import offsets
from journal import (
    ALL_SLICES,
    BEGINNING,
    Key,
    Log,
    Position,
    Session,
    SliceReader,
    now,
)

_PAGE = 10_000


class Unhandled(NamedTuple):
    """What a slice has not handled."""

    lag: float
    """Age of the oldest event that is not handled, in seconds; 0 when there is none. Of a journal that is ordered by
    numbers, for how long it may have been there, by where workers have seen the journal's end."""
    backlog: int
    parked: int
    parked_since: datetime | None


async def unhandled_elsewhere(
    session: Session, status: offsets.ProjectionStatus, journal: Log, *, by_slice: bool
) -> dict[int, Unhandled]:
    """
    What a projection has not handled of a journal in another database, by slice, or by range under its first slice.

    Args:
        session: On the database of its offsets.
        status: The projection, and the progress of its ranges.
        journal: The journal that it reads.
        by_slice: Whether to look at each slice.

    Raises:
        DatabaseError: The journal's database refused.
        JournalUnavailable: It cannot be reached.
    """
    parked = await offsets.parked_places(session, status.projection_id)
    counted = _Counted(status, {one.source_id for one in parked}, by_slice=by_slice)
    # A standby does not have what it is late by.
    async with journal.at_primary.session() as reading:
        since = await _since(reading, journal, status)
        at = (await now(reading, queries=journal.queries)).time
        reader = SliceReader(status.entity_types, ALL_SLICES, _PAGE, queries=journal.queries)
        position = Position.before(min(since, default=BEGINNING))
        while page := await reader.keys(reading, position, at):
            open_ = counted.candidates(page, since)
            sources = {key.source_id for key in open_}
            counted.count(open_, await offsets.read_offsets(session, status.projection_id, sources))
            if not page.more:
                break
            position = page[-1].position
    oldest = counted.oldest
    if journal.is_by_number:
        lags = await offsets.ages(session, status.projection_id, list(oldest.values()))
    else:
        lags = [max((at - time).total_seconds(), 0.0) for time in oldest.values()]
    waiting = ((one.slice, one.parked_at) for one in parked)
    return counted.result(dict(zip(oldest, lags, strict=True)), waiting)


async def _since(reading: Session, journal: Log, status: offsets.ProjectionStatus) -> list[datetime]:
    """From when on each range has not handled everything; an import that it has not read takes it back."""
    first = min((part.import_id for part in status.ranges), default=0)
    poll = await reading.fetchrow(journal.queries.poll, first, [], [])
    assert poll is not None  # noqa: S101 - a poll has one row
    columns = (poll["import_ids"], poll["import_types"], poll["imported_from"])
    imports = [(n, at) for n, kind, at in zip(*columns, strict=True) if kind in status.entity_types]
    return [min([part.horizon, *(at for n, at in imports if n > part.import_id)]) for part in status.ranges]


class _Counted:
    """Counts events that are not handled."""

    def __init__(self, status: offsets.ProjectionStatus, parked: set[str], *, by_slice: bool) -> None:
        self._firsts = [part.slices.min_slice for part in status.ranges]
        self._evicted_before = status.evicted_before
        self._parked = parked
        self._by_slice = by_slice
        self._counts: dict[int, int] = {}
        self.oldest: dict[int, datetime] = {}
        """The time of the first that is not handled, by slice or range."""

    def candidates(self, page: Iterable[Key], since: Sequence[datetime]) -> list[Key]:
        """Of keys, those that may not be handled."""
        return [
            key
            for key in page
            if key.db_timestamp >= since[bisect_right(self._firsts, key.slice) - 1]
            and key.source_id not in self._parked
        ]

    def count(self, keys: Iterable[Key], handled: Mapping[str, int]) -> None:
        """Count those that are not, given where their sources stand."""
        for key in keys:
            last = handled.get(key.source_id)
            if key.db_timestamp < self._evicted_before if last is None else key.seq_nr <= last:
                continue
            place = self._place(key.slice)
            self._counts[place] = self._counts.get(place, 0) + 1
            self.oldest.setdefault(place, key.db_timestamp)  # keys come in the order of time

    def result(
        self, lags: Mapping[int, float], parked: Iterable[tuple[int, datetime]]
    ) -> dict[int, Unhandled]:
        """What has come of it, with the age of the oldest in seconds."""
        since: dict[int, list[datetime]] = {}
        for slice_number, parked_at in parked:
            since.setdefault(self._place(slice_number), []).append(parked_at)
        return {
            place: Unhandled(
                lags.get(place, 0.0),
                self._counts.get(place, 0),
                len(since.get(place, ())),
                min(since.get(place, ()), default=None),
            )
            for place in self._counts.keys() | since.keys()
        }

    def _place(self, slice_number: int) -> int:
        return slice_number if self._by_slice else self._firsts[bisect_right(self._firsts, slice_number) - 1]
