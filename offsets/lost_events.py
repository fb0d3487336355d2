"""
Whether what is handled is still in the journal, where that is in another database.

The two can lose commits apart. A journal that goes back in time (a fail-over, a restore) may have lost events that are
handled here, and then gives their numbers to others, which would count as handled. An offset has the number and the
time of an event, and a number that is given again has another time: so they are compared whenever the journal lives
another life than when they were compared last.

A journal that is ordered by numbers may also have drawn some again that were passed already, for events of sources that
have lost nothing: in another life, all that offsets are kept of is read again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import NamedTuple

from journal import (
    BEGINNING,
    END_OF_TIME,
    JOURNAL,
    DatabaseWentBack,
    Generation,
    JournalUnavailable,
    Key,
    OwnedSession,
    Session,
    SliceReader,
    latest_seq_nr,
    read_source,
)
from journal.writers import NO_IMPORTS
from offsets.errors import RangeLost, WrongJournal
from offsets.store import Claim

_LIFE = """
SELECT r.journal_life, r.handled_until, p.evicted_before
FROM projections.projection_ranges AS r INNER JOIN projections.projections AS p ON r.projection_id = p.projection_id
WHERE r.projection_id = $1 AND r.min_slice = $2 AND r.epoch = $3 AND r.owner = $4
"""
_NOTE_LIFE = """
UPDATE projections.projection_ranges SET journal_life = $5, horizon = least(horizon, $6)
WHERE projection_id = $1 AND min_slice = $2 AND epoch = $3 AND owner = $4
"""
_OFFSETS = """
SELECT source_id, seq_nr, db_timestamp, slice FROM projections.source_offsets
WHERE projection_id = $1 AND slice BETWEEN $2 AND $3 AND source_id > $4 ORDER BY source_id LIMIT $5
"""
_FORGET = "DELETE FROM projections.source_offsets WHERE projection_id = $1 AND source_id = $2"
_SET_BACK = """
UPDATE projections.source_offsets SET seq_nr = $3, db_timestamp = $4 WHERE projection_id = $1 AND source_id = $2
"""
_PARK = """
SELECT projections._park_source_v1($1, $2, $3, $4, 'unknown', $5, 0)
WHERE NOT EXISTS (
    SELECT FROM projections.parked_sources WHERE projection_id = $1 AND source_id = $2 AND seq_nr <= $4
)
"""
_PAGE = 5000
_SKEW = timedelta(hours=1)
"""How much earlier than what was lost another server may stamp what gets its number."""


class AheadOfJournal(NamedTuple):
    """A source of which more is handled than the journal has."""

    source_id: str
    slice: int
    handled: int
    """The number of its last handled event."""
    kept: int
    """The number of the last of them that the journal still has; 0 for none."""
    kept_at: datetime | None

    def __str__(self) -> str:
        return f"{self.source_id!r} ({self._lost})"

    @property
    def _lost(self) -> str:
        """Their numbers."""
        first = self.kept + 1
        return f"event {first}" if first == self.handled else f"events {first} to {self.handled}"

    @property
    def error(self) -> str:
        """What is said to whoever decides."""
        return (
            f"the journal went back in time and has lost {self._lost}, handled before. "
            "What that did is still in the read model: fix that, or build it again. Then retry handles what the "
            f"journal has now from {self.kept + 1} on; drop passes over the first of that"
        )


async def fit_journal(
    session: OwnedSession,
    claim: Claim,
    seen: Generation,
    reader: SliceReader,
    reading: Callable[[OwnedSession], AbstractAsyncContextManager[Session]],
    *,
    by_number: bool = False,
    may_be_behind: bool = False,
) -> tuple[bool, Sequence[AheadOfJournal]]:
    """
    Compare the offsets of a range with the journal, if that lives another life; park sources that have lost events.

    Args:
        session: On the database of the offsets, outside a transaction.
        claim: The range; nobody else stores offsets of it.
        seen: The generation of the journal.
        reader: Reads the journal.
        reading: Lends a session on it, while the other is kept.
        by_number: Whether it is ordered by numbers: then the range is set back to where offsets are kept from.
        may_be_behind: Whether it is a standby, which may have what it misses later.

    Returns:
        Whether the journal lives another life: numbers of imports may be used again, and of a journal that is ordered
        by numbers those of events. And those sources: each is parked at the first event that is lost, and stands
        before it.

    Raises:
        RangeLost: Another worker has claimed the range.
        DatabaseWentBack: Another database than the one that was seen has answered.
        JournalUnavailable: A standby misses what is handled.
        WrongJournal: The offsets are of another journal, which is on another server.
    """
    mine = claim.projection_id, claim.slices.min_slice, claim.epoch, claim.owner
    row = await session.fetchrow(_LIFE, *mine)
    if row is None:
        raise RangeLost.of(claim.slices)
    life = row["journal_life"]
    if life == seen.life:
        return False, ()
    ahead: list[AheadOfJournal] = []
    may_fall = reader.queries is not JOURNAL and not by_number
    handled_until = row["handled_until"] if may_fall else BEGINNING
    async for found in ahead_of_journal(
        session, claim.projection_id, reader, reading, seen, handled_until=handled_until
    ):
        ahead += found
        if ahead and (life is None or not seen.is_of(life)):
            raise WrongJournal(
                f"what is handled is of another journal, on another server: this one does not have event "
                f"{ahead[0].handled} of source {ahead[0].source_id!r}. Name the journal that was read before; or empty "
                "the read model, clear the offset of the projection, and have it read this one"
            )
    if ahead and may_be_behind:
        raise JournalUnavailable(
            f"the standby does not have event {ahead[0].handled} of source {ahead[0].source_id!r}, which is handled, "
            "and of others. Either it is behind, or that is lost: name its primary, which tells the one from the other"
        )
    again = row["evicted_before"] if by_number and life is not None else END_OF_TIME
    async with session.transaction():
        noted = await session.execute(_NOTE_LIFE, *mine, seen.life, again)
        for one in ahead if noted else ():
            await _set_back(session, claim.projection_id, one)
    if not noted:
        raise RangeLost.of(claim.slices)
    return life is not None, ahead


async def ahead_of_journal(
    session: OwnedSession,
    projection_id: int,
    reader: SliceReader,
    reading: Callable[[OwnedSession], AbstractAsyncContextManager[Session]],
    seen: Generation | None = None,
    *,
    handled_until: datetime = BEGINNING,
) -> AsyncIterator[Sequence[AheadOfJournal]]:
    """
    Sources of which more is handled than the journal has, for each page of offsets in the slices of a reader.

    Args:
        session: On the database of the offsets.
        projection_id: The projection.
        reader: Reads the journal.
        reading: Lends a session on it, while the other is kept.
        seen: The generation of the journal, if it is to be that one.
        handled_until: See :func:`ahead_in`.

    Raises:
        DatabaseWentBack: It is another one.
    """
    after = ""
    while rows := await session.fetch(_OFFSETS, projection_id, *reader.slices, after, _PAGE):
        page = [Key(*row.values()) for row in rows]
        async with reading(session) as journal:
            ahead = await ahead_in(journal, reader, page, handled_until)
            if seen is not None:
                await _check(journal, reader, seen)
        yield ahead
        after = page[-1].source_id


async def _check(journal: Session, reader: SliceReader, seen: Generation) -> None:
    """Make sure that the one that was compared with is the one that was seen."""
    row = await journal.fetchrow(reader.queries.poll, NO_IMPORTS, [], [])
    if row is None or Generation.of(row).life != seen.life:
        raise DatabaseWentBack("another database answers for the journal, or it went back in time")


async def ahead_in(
    journal: Session, reader: SliceReader, offsets: Sequence[Key], handled_until: datetime = BEGINNING
) -> list[AheadOfJournal]:
    """
    Of offsets, given as the events that were handled last, those of which the journal does not have that event.

    Args:
        journal: A session on the journal.
        reader: Reads it.
        offsets: The offsets.
        handled_until: Where times of a source may run against its numbers, the newest of all that were handled: what
            has come instead of what is lost is later. Else the order of the source's own times tells.
    """
    since = max(min(last.db_timestamp for last in offsets) - _SKEW, BEGINNING)
    keys = [(last.source_id, last.seq_nr + 1) for last in offsets]
    found = await reader.predecessors(journal, keys, since, END_OF_TIME)
    ahead: list[AheadOfJournal] = []
    for last, key in zip(offsets, keys, strict=True):
        at = found.get(key)
        if at is None and await latest_seq_nr(journal, last.source_id, queries=reader.queries) >= last.seq_nr:
            # Its number may have been given again since the look above.
            at = (await reader.predecessors(journal, [key], since, END_OF_TIME)).get(key)
            if at is None:  # one that is not there, of a source that goes further, was deleted by retention
                continue
        if at == last.db_timestamp:
            continue
        kept = await _last_kept(journal, reader, last, handled_until)
        ahead.append(AheadOfJournal(last.source_id, last.slice, last.seq_nr, *kept))
    return ahead


async def _last_kept(
    journal: Session, reader: SliceReader, last: Key, handled_until: datetime
) -> tuple[int, datetime | None]:
    """The last event of a source, before one that was lost, that was there with it: what came instead is newer."""
    before = last.seq_nr - 1  # whatever has its number now is another one
    async for envelope in read_source(
        journal, last.source_id, last=before, backwards=True, queries=reader.queries
    ):
        if envelope.db_timestamp < last.db_timestamp or envelope.db_timestamp <= handled_until:
            return envelope.seq_nr, envelope.db_timestamp
    return 0, None


async def _set_back(session: Session, projection_id: int, one: AheadOfJournal) -> None:
    if one.kept_at is None:
        await session.execute(_FORGET, projection_id, one.source_id)
    else:
        await session.execute(_SET_BACK, projection_id, one.source_id, one.kept, one.kept_at)
    await session.execute(_PARK, projection_id, one.source_id, one.slice, one.kept + 1, one.error)
