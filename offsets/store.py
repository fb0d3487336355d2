"""Where a projection stands, in the database. Every call is one line of SQL; ``_in_tx`` needs the transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from journal import (
    ALL_SLICES,
    EntityTypes,
    EventEnvelope,
    Generation,
    OwnedSession,
    ProjectionsError,
    Session,
    SliceRange,
)
from offsets.errors import OffsetOvertaken, WrongJournal, own_errors

HANDLED = "projections_handled"
"""The channel on which those who wait are notified that a batch was handled."""

_REGISTER = "SELECT projections.register_projection_v1($1, $2, $3, $4, $5, $6)"
_CLAIM = "SELECT * FROM projections._claim_range_v1($1, $2, $3)"
_RELEASE = "SELECT projections.release_range_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
_FAIL = "SELECT projections._fail_range_v1($1, $2, $3, $4, $5, $6)"
_SAVE = """
SELECT projections.save_offsets_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
    $16, $17, $18)
"""
_READ = "SELECT source_id, seq_nr FROM projections.read_offsets_v1($1, $2)"
# Whatever the database's default is: eviction looks at imports that committed while it waited for their lock.
_READ_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
_EVICT = "SELECT projections._evict_offsets_v1($1, $2, $3)"
_MAY_EVICT = "SELECT projections._may_evict_v1($1, $2, $3)"
_EVICT_UP_TO = "SELECT projections._evict_up_to_v1($1, $2, $3, $4)"
_FORGET = "SELECT projections._forget_offsets_v1($1, $2)"
_ALL = "SELECT source_id, seq_nr FROM projections._all_offsets_v1($1, $2)"
_EVICTED_BEFORE = "SELECT evicted_before FROM projections.projections WHERE projection_id = $1"
_READS = "SELECT mode = 'inline' AS inline, journal FROM projections.projections WHERE projection_id = $1"
_PARKED = """
SELECT source_id, seq_nr, decision, error LIKE '% It is tried again by itself' AS again
FROM projections.parked_sources WHERE projection_id = $1 AND slice BETWEEN $2 AND $3
"""
_AGAIN = ". It is tried again by itself"
_PARK = "SELECT projections._park_source_v1($1, $2, $3, $4, $5, $6, $7, $8)"
_ADVANCE_PARKED = """
UPDATE projections.parked_sources SET seq_nr = $4, decision = 'retry'
WHERE projection_id = $1 AND source_id = $2 AND seq_nr = $3
"""
_NOTIFY_HANDLED = f"SELECT pg_notify('{HANDLED}', '')"
_UNPARK = "DELETE FROM projections.parked_sources WHERE projection_id = $1 AND source_id = $2"


class Beats:
    """
    Counts the heartbeats of a worker, and which of them had an answer last.

    The database keeps the last that it has seen; one that shows an earlier number than was answered has lost it.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.answered = 0
        """0 also after an answer that said that those before it are lost."""
        self.went_back = False
        """Whether the last answer said so: nothing that is remembered of the database holds."""


class Claim(NamedTuple):
    """A held slice range: its epoch is the fence that every commit of it passes."""

    projection_id: int
    slices: SliceRange
    epoch: int
    horizon: datetime
    import_id: int
    commits: int
    """How often its progress had been stored when it was claimed."""
    owner: str


class Parked(NamedTuple):
    """A source that waits at ``seq_nr``, and what was decided about it."""

    source_id: str
    seq_nr: int
    decision: str
    again: bool
    """Whether it is tried again by itself, while nothing is decided."""


async def register(
    session: Session,
    name: str,
    entity_type: str | Collection[str] | EntityTypes,
    ranges: Sequence[SliceRange] = (ALL_SLICES,),
    version: int = 1,
    *,
    journal: str | None = None,
    journals: Sequence[str | None] | None = None,
) -> int:
    """
    Make a projection known, or the part of it that reads a journal; returns its id.

    Args:
        session: A session on the database, in a transaction or not.
        name: Of the projection.
        entity_type: What it reads in this version.
        ranges: How its slices are cut when it is new.
        version: Of its code, when it is new.
        journal: The name of the journal that it reads, where that is in another database.
        journals: All that it reads, if there are several: this one is among them.

    Raises:
        InvalidEvent: That names none, one twice, or one that cannot be.
        WrongEntityType: The name belongs to a projection that reads other entity types in this version.
        WrongJournal: It has begun with another journal, which is not among these.
    """
    types = EntityTypes.of(entity_type)
    with own_errors():
        cut, named = [r.min_slice for r in ranges], None if journals is None else list(journals)
        return int(await session.fetchval(_REGISTER, name, types.sql, cut, version, journal, named))


async def claim_again(session: Session, held: Claim) -> Claim | None:
    """Claim a range that its owner holds with a new epoch; None when it belongs to another, or was cut differently."""
    row = await session.fetchrow(_CLAIM, held.projection_id, held.slices.min_slice, held.owner)
    if row is None or row["max_slice"] != held.slices.max_slice:
        return None
    return held._replace(
        epoch=row["epoch"], horizon=row["horizon"], import_id=row["import_id"], commits=row["commits"]
    )


async def evict(session: OwnedSession, projection_id: int, retention: timedelta) -> None:
    """Delete offsets that no reader can need, a page of sources at a time, each in a transaction of its own."""
    after: str | None = ""
    while after is not None:
        async with session.transaction():
            await session.execute(_READ_COMMITTED)
            after = await session.fetchval(_EVICT, projection_id, retention, after)


async def read_offsets(session: Session, projection_id: int, source_ids: Collection[str]) -> dict[str, int]:
    """The last handled number of those sources that have one."""
    rows = await session.fetch(_READ, projection_id, list(source_ids))
    return {row["source_id"]: row["seq_nr"] for row in rows}


async def notify_handled(session: Session) -> None:
    """
    Wake those who wait for events to be handled.

    Never inside the transaction of a batch: NOTIFY takes a lock of the whole database at commit.
    """
    await session.execute(_NOTIFY_HANDLED)


class OffsetStore:
    """The offsets of one claimed range. Progress is compared and set: nothing is stored on what has changed since."""

    def __init__(self, claim: Claim, beats: Beats | None = None) -> None:
        self.claim = claim
        self._beats = beats or Beats()
        self.commits = claim.commits
        """How often progress has been stored, as far as is known; the database must have the same count."""
        self.generation: Generation | None = None
        """That of the polls that what is handled was read after."""
        self.outdated: ProjectionsError | None = None
        """Why what is remembered is worth nothing: then no batch is stored any more."""
        self.storing = asyncio.Lock()
        """Held by whoever stores progress until the outcome is known."""

    def life(self) -> tuple[int, int | None, datetime | None]:
        """Of which database what is remembered is: as ``_same_generation_v1`` takes it."""
        if (seen := self.generation) is None:
            return self._beats.answered, None, None
        return self._beats.answered, seen.timeline, seen.started_at

    async def evicted_before(self, session: Session) -> datetime:
        """Events before this time count as handled where their source has no offset."""
        bound: datetime = await session.fetchval(_EVICTED_BEFORE, self.claim.projection_id)
        return bound

    async def is_inline(self, session: Session, journal: str | None = None) -> bool:
        """
        Whether those who append store offsets, too; a change takes the range from its owner.

        Args:
            session: On the database of the offsets.
            journal: The name of the journal that is read, where that is in another database; of that, they cannot.

        Raises:
            WrongJournal: The projection reads another one by now.
        """
        row = await session.fetchrow(_READS, self.claim.projection_id)
        if row is not None and row["journal"] != journal:
            raise WrongJournal(f"the projection reads {row['journal'] or 'the journal here'} by now")
        return row is not None and bool(row["inline"])

    async def read(self, session: Session, source_ids: Sequence[str]) -> dict[str, int]:
        """The last handled number of those sources that have one."""
        return await read_offsets(session, self.claim.projection_id, source_ids)

    def fence(self, batch: str, progress: tuple[datetime, int]) -> tuple[Any, ...]:
        """
        The first arguments of what stores a batch, by which it is refused unless all is as it was stored last.

        Args:
            batch: The mark that the transaction was begun with.
            progress: The horizon, where a restart would begin, and the last import that it accounts for.

        Raises:
            ProjectionsError: What is remembered is worth nothing.
        """
        if self.outdated is not None:
            raise self.outdated
        c = self.claim
        place = (c.projection_id, c.slices.min_slice, c.epoch, c.owner, self.commits)
        return *place, *self.life(), batch, *progress

    async def all(self, session: Session, limit: int) -> dict[str, int]:
        """The last handled numbers of all sources of the projection that have one, ``limit`` at most."""
        rows = await session.fetch(_ALL, self.claim.projection_id, limit)
        return {row["source_id"]: row["seq_nr"] for row in rows}

    async def may_evict(self, session: Session, import_id: int, retention: timedelta) -> bool:
        """
        Whether a batch of old events may leave its offsets out; :meth:`evict_in_tx` decides.

        Args:
            session: Ask after the events were read.
            import_id: The last import that the range has read.
            retention: How long offsets are kept.
        """
        return bool(await session.fetchval(_MAY_EVICT, self.claim.projection_id, import_id, retention))

    async def evict_in_tx(
        self, session: Session, until: datetime, import_id: int, retention: timedelta
    ) -> datetime | None:
        """
        Make older events count as handled, as if their offsets had been stored and evicted.

        Args:
            session: The transaction of a batch; its range is the only one of the projection.
            until: With this batch, all events before this time are handled.
            import_id: The last import that the range has read.
            retention: How long offsets are kept, by the database's clock.

        Returns:
            A time: a source whose last event is older needs no offset, and must have none. None: store all offsets.
        """
        bound: datetime | None = await session.fetchval(
            _EVICT_UP_TO, self.claim.projection_id, import_id, until, retention
        )
        return bound

    async def forget_in_tx(self, session: Session, source_ids: Sequence[str]) -> None:
        """Delete the offsets of sources, in the transaction of :meth:`evict_in_tx`."""
        await session.fetchval(_FORGET, self.claim.projection_id, list(source_ids))

    async def save_in_tx(
        self,
        session: Session,
        batch: str,
        progress: tuple[datetime, int],
        handled: Sequence[EventEnvelope],
        *,
        previous: Mapping[str, int],
        left_out: AbstractSet[str] = frozenset(),
    ) -> bool:
        """
        Store a batch's progress in the transaction of its effects; :attr:`commits` is to be raised when that commits.

        Args:
            session: The transaction of the batch.
            batch: The mark that it was begun with.
            progress: The horizon, where a restart would begin, and the last import that it accounts for.
            handled: Events of any sources, each source's in order.
            previous: The number that each of these sources that has an offset is remembered to stand at.
            left_out: Sources whose offsets are not stored, for :meth:`evict_in_tx` allows it.

        Returns:
            Whether somebody waits for what is handled: call :func:`notify_handled` after the commit.

        Raises:
            RangeLost: Another worker has claimed the range.
            OffsetOvertaken: A source does not stand where the batch begins.
            DatabaseWentBack: The range is not as it was stored last.
            TransactionEnded: This is not the transaction that was begun.
        """
        # Those with an offset first; in one order, for two holders must not deadlock.
        last = {e.source_id: e for e in handled if e.source_id not in left_out}
        known = sorted(previous.keys() - left_out)
        order = known + sorted(last.keys() - previous.keys())
        envelopes = [last[source_id] for source_id in order]
        with own_errors():
            waited: bool | None = await session.fetchval(
                _SAVE,
                *self.fence(batch, progress),
                [e.source_id for e in envelopes],
                [e.slice for e in envelopes[len(known) :]],
                [previous[source_id] for source_id in known],
                [e.seq_nr for e in envelopes],
                [e.db_timestamp for e in envelopes],
                len(handled),
                max((e.db_timestamp for e in handled), default=None),
            )
        return bool(waited)

    async def parked(self, session: Session) -> list[Parked]:
        """Sources of the range that wait for a decision, or have one."""
        rows = await session.fetch(_PARKED, self.claim.projection_id, *self.claim.slices)
        return [Parked(*row.values()) for row in rows]

    async def park_in_tx(
        self,
        session: Session,
        envelope: EventEnvelope,
        error: str,
        traceback: str,
        attempts: int,
        *,
        again: bool = False,
    ) -> None:
        """Set a source aside at an event; with ``again``, the range tries it again by itself, and the error says so."""
        error += _AGAIN if again else ""
        e, number = envelope, self.claim.projection_id
        await session.execute(
            _PARK, number, e.source_id, e.slice, e.seq_nr, e.event_type, error, attempts, traceback
        )

    async def advance_parked_in_tx(self, session: Session, source_id: str, seq_nr: int, after: int) -> None:
        """
        Have a source that goes on wait at a later event than the one that it waits at.

        Raises:
            OffsetOvertaken: It does not wait at that event.
        """
        if not await session.execute(_ADVANCE_PARKED, self.claim.projection_id, source_id, seq_nr, after):
            raise OffsetOvertaken(f"source {source_id!r} is not parked at event {seq_nr} any more")

    async def unpark_in_tx(self, session: Session, source_id: str) -> None:
        """Let a source go on."""
        await session.execute(_UNPARK, self.claim.projection_id, source_id)

    async def failed(self, session: Session, failures: int, error: str, delay: timedelta) -> None:
        """Note how many times in a row the range has failed, and when it starts again."""
        c = self.claim
        await session.execute(_FAIL, c.projection_id, c.slices.min_slice, c.epoch, failures, error, delay)

    async def release(self, session: Session, horizon: datetime, import_id: int) -> bool:
        """
        Give the range back, so that the next claim need not wait for the lease.

        Returns:
            Whether it was ours, and as it was stored last; else nothing has changed.
        """
        c = self.claim
        if self.outdated is not None:
            return False
        async with self.storing:
            released: bool = await session.fetchval(
                _RELEASE,
                c.projection_id,
                c.slices.min_slice,
                c.epoch,
                c.owner,
                self.commits,
                *self.life(),
                horizon,
                import_id,
            )
        return released
