"""Where a projection stands, in the database. Every call is one line of SQL; ``_in_tx`` needs the transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import NamedTuple

from journal import DatabaseError, EventEnvelope, OwnedSession, Session, SliceRange
from offsets.errors import from_database

_REGISTER = "SELECT projections.register_projection_v1($1, $2)"
_SET_RANGES = "SELECT projections.set_ranges_v1($1, $2)"
_CLAIM = "SELECT * FROM projections.claim_range_v1($1, $2, $3, $4, $5)"
_RENEW = "SELECT * FROM projections.renew_ranges_v1($1, $2, $3)"
_RELEASE = "SELECT projections.release_range_v1($1, $2, $3)"
_SAVE = "SELECT projections.save_offsets_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
_READ = "SELECT source_id, seq_nr FROM projections.read_offsets_v1($1, $2)"
# Whatever the database's default is: eviction looks at imports that committed while it waited for their lock.
_READ_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
_EVICT = "SELECT projections.evict_offsets_v1($1, $2, $3)"
_RANGES = """
SELECT min_slice, max_slice, epoch, owner, lease_until, horizon, handled_at, lease_until > clock_timestamp() AS alive
FROM projections.projection_ranges WHERE projection_id = $1 ORDER BY min_slice
"""
_EVICTED_BEFORE = "SELECT evicted_before FROM projections.projections WHERE projection_id = $1"
_PARKED = """
SELECT source_id, seq_nr, decision FROM projections.parked_sources
WHERE projection_id = $1 AND slice BETWEEN $2 AND $3
"""
_PARK = "SELECT projections.park_source_v1($1, $2, $3, $4, $5, $6, $7)"
_ADVANCE_PARKED = """
UPDATE projections.parked_sources SET seq_nr = $3, decision = 'retry' WHERE projection_id = $1 AND source_id = $2
"""
_UNPARK = "DELETE FROM projections.parked_sources WHERE projection_id = $1 AND source_id = $2"


@contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        raise from_database(error) from error.__cause__


class Claim(NamedTuple):
    """A held slice range: its epoch is the fence that every commit of it passes."""

    projection_id: int
    slices: SliceRange
    epoch: int
    horizon: datetime
    import_id: int


class RangeStatus(NamedTuple):
    """A slice range as the database has it."""

    slices: SliceRange
    epoch: int
    owner: str | None
    lease_until: datetime | None
    horizon: datetime
    handled_at: datetime | None
    alive: bool


class Parked(NamedTuple):
    """A source that waits at ``seq_nr``, and what was decided about it."""

    source_id: str
    seq_nr: int
    decision: str


async def register(session: Session, name: str, entity_type: str) -> int:
    """
    Make a projection known; returns its id.

    Raises:
        WrongEntityType: The name belongs to a projection of another entity type.
    """
    with _own_errors():
        return int(await session.fetchval(_REGISTER, name, entity_type))


async def set_ranges(session: Session, projection_id: int, ranges: Sequence[SliceRange]) -> None:
    """Cut the slices anew, keeping progress; every present owner loses its claim if anything changes."""
    await session.execute(_SET_RANGES, projection_id, [r.min_slice for r in ranges])


async def read_ranges(session: Session, projection_id: int) -> list[RangeStatus]:
    """The ranges of a projection, in order."""
    rows = await session.fetch(_RANGES, projection_id)
    return [
        RangeStatus(
            SliceRange(row["min_slice"], row["max_slice"]),
            row["epoch"],
            row["owner"],
            row["lease_until"],
            row["horizon"],
            row["handled_at"],
            bool(row["alive"]),
        )
        for row in rows
    ]


async def claim(
    session: Session,
    projection_id: int,
    min_slice: int,
    owner: str,
    lease: timedelta,
    *,
    take_over: bool = False,
) -> Claim | None:
    """Claim the range that starts at ``min_slice``; None while another owner's lease runs, unless taken over."""
    row = await session.fetchrow(_CLAIM, projection_id, min_slice, owner, lease, take_over)
    if row is None:
        return None
    slices = SliceRange(min_slice, row["max_slice"])
    return Claim(projection_id, slices, row["epoch"], row["horizon"], row["import_id"])


class Renewed(NamedTuple):
    """What a heartbeat learns."""

    held: dict[int, int]
    """Epochs of the ranges that are still held, by their first slice."""
    paused: bool
    decided: bool
    """Whether somebody has decided about a parked source."""


async def renew(session: Session, projection_id: int, owner: str, lease: timedelta) -> Renewed:
    """Prolong all leases of an owner on a projection."""
    rows = await session.fetch(_RENEW, projection_id, owner, lease)
    held = {row["min_slice"]: row["epoch"] for row in rows}
    return Renewed(held, any(row["paused"] for row in rows), any(row["decided"] for row in rows))


async def evict(session: OwnedSession, projection_id: int, retention: timedelta) -> None:
    """Delete offsets that no reader can need, a page of sources at a time, each in a transaction of its own."""
    after: str | None = ""
    while after is not None:
        await session.begin()
        try:
            await session.execute(_READ_COMMITTED)
            after = await session.fetchval(_EVICT, projection_id, retention, after)
            await session.commit()
        except BaseException:
            await session.rollback()
            raise


class OffsetStore:
    """
    The offsets of one claimed range.

    Args:
        claim: The range and its epoch.
    """

    def __init__(self, claim: Claim) -> None:
        self.claim = claim

    async def evicted_before(self, session: Session) -> datetime:
        """Events before this time count as handled where their source has no offset."""
        bound: datetime = await session.fetchval(_EVICTED_BEFORE, self.claim.projection_id)
        return bound

    async def read(self, session: Session, source_ids: Sequence[str]) -> dict[str, int]:
        """The last handled number of those sources that have one."""
        rows = await session.fetch(_READ, self.claim.projection_id, list(source_ids))
        return {row["source_id"]: row["seq_nr"] for row in rows}

    async def save_in_tx(
        self,
        session: Session,
        batch: str,
        horizon: datetime,
        import_id: int,
        last: Mapping[str, EventEnvelope],
    ) -> None:
        """
        Store a batch's progress in the transaction of its effects.

        Args:
            session: The transaction of the batch.
            batch: The mark that it was begun with.
            horizon: Where a restart would begin.
            import_id: The last import that the horizon accounts for.
            last: The last handled event of each source.

        Raises:
            RangeLost: Another worker has claimed the range.
            OffsetOvertaken: A source was already past the batch.
            TransactionEnded: This is not the transaction that was begun.
        """
        envelopes = [
            last[source_id] for source_id in sorted(last)
        ]  # one order: two holders must not deadlock
        with _own_errors():
            await session.execute(
                _SAVE,
                self.claim.projection_id,
                self.claim.slices.min_slice,
                self.claim.epoch,
                batch,
                horizon,
                import_id,
                [e.source_id for e in envelopes],
                [e.slice for e in envelopes],
                [e.seq_nr for e in envelopes],
                [e.db_timestamp for e in envelopes],
            )

    async def parked(self, session: Session) -> list[Parked]:
        """Sources of the range that wait for a decision, or have one."""
        rows = await session.fetch(_PARKED, self.claim.projection_id, *self.claim.slices)
        return [Parked(*row.values()) for row in rows]

    async def park_in_tx(self, session: Session, envelope: EventEnvelope, error: str, attempts: int) -> None:
        """Set a source aside at an event."""
        e = envelope
        await session.execute(
            _PARK, self.claim.projection_id, e.source_id, e.slice, e.seq_nr, e.event_type, error, attempts
        )

    async def advance_parked_in_tx(self, session: Session, source_id: str, seq_nr: int) -> None:
        """Have a source that goes on wait at a later event."""
        await session.execute(_ADVANCE_PARKED, self.claim.projection_id, source_id, seq_nr)

    async def unpark_in_tx(self, session: Session, source_id: str) -> None:
        """Let a source go on."""
        await session.execute(_UNPARK, self.claim.projection_id, source_id)

    async def release(self, session: Session) -> None:
        """Give the range back, so that the next claim need not wait for the lease."""
        c = self.claim
        await session.execute(_RELEASE, c.projection_id, c.slices.min_slice, c.epoch)
