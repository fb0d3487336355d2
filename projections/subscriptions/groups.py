"""
Groups of consumers in the database: their ranges, who holds them, and how far they are.

Every call is one line of SQL, in a session that needs no state of its own: any other may do the next call.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from journal import Session, SliceRange, slice_ranges
from projections.subscriptions.checks import check_storable
from projections.subscriptions.errors import own_errors, unknown_group
from projections.subscriptions.subscribing import past_time, start_of

_CREATE = "SELECT projections.create_group_v1($1, $2, $3, CAST(CAST($4 AS text) AS timestamptz))"
_REMOVE = "SELECT projections.remove_group_v1($1)"
_REWIND = "SELECT projections.rewind_group_v1($1, $2)"
_CUT = "SELECT projections._cut_group_v1($1, $2)"
_POLL = "SELECT * FROM projections.poll_group_v1($1, $2, $3, $4, $5)"
_MOVE = "SELECT projections.move_cursor_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)"
_JOIN = "SELECT projections.join_handler_v1($1, $2, $3, $4)"
_GIVE_UP = "SELECT projections._give_up_handler_v1($1, $2)"
_RELEASE = "SELECT projections.release_group_range_v1($1, $2, $3, $4, $5)"
_RELIABLE = "SELECT g.reliable FROM projections.subscription_groups AS g WHERE g.name = $1"
_NAMES = "SELECT name FROM projections.subscription_groups ORDER BY name"
_CURSORS = """
SELECT r.min_slice, r.max_slice, r.cursor FROM projections.group_ranges AS r
INNER JOIN projections.subscription_groups AS g ON r.group_id = g.group_id WHERE g.name = $1 AND r.handler_id IS NULL
ORDER BY r.min_slice
"""


class GroupRange(NamedTuple):
    """
    A range of a group's slices that a reader holds.

    Args:
        slices: The range.
        epoch: The fence: what is stored for the range names it, and is refused once another holds the range.
        cursor: Number of the last match before which everything was handled.
        kept: Whether the reader may keep it; else it is to be released, for one that has too few.
        owner: The reader that holds it.
        handler_id: The handler whose own range it is; None: it is for all that have none of their own.
        apart: Of a range for all, the handlers that have their own for these slices.
    """

    slices: SliceRange
    epoch: int
    cursor: int
    kept: bool
    owner: str
    handler_id: int | None = None
    apart: Sequence[int] = ()

    @property
    def key(self) -> tuple[SliceRange, int | None]:
        """What tells it from the other ranges of its group."""
        return self.slices, self.handler_id


async def create_group(
    session: Session,
    name: str,
    *,
    ranges: int = 1,
    reliable: bool = True,
    start: datetime | str | None = None,
) -> int:
    """
    Make a group known; one that is known stays as it is.

    Args:
        session: A session on the database, in a transaction or not.
        name: Its name, 1 to 255 characters.
        ranges: Into how many ranges its slices are cut, which is how many consumers can read at a time.
        reliable: Whether consumers read for it, and nothing may be dropped before they have; else it only listens.
        start: From which time on its subscriptions get events that do not say so themselves: ``"now"``, ``"beginning"``
            or a time with its zone. Left out, it is now for a new group, and as it is for one that is known.

    Returns:
        Its number.

    Raises:
        InvalidValue: The name or the start is invalid, ``ranges`` is not 1 to 1024, or the group is known and has
            another start.
    """
    check_storable(name, "group")
    cut = [one.min_slice for one in slice_ranges(ranges)]
    with own_errors():
        return int(await session.fetchval(_CREATE, name, reliable, cut, start_of(start)))


async def remove_group(session: Session, name: str) -> bool:
    """
    Remove a group with its subscriptions, cursors, retries and dead letters; returns whether there was one.

    What has matched for it leaves with its partitions, which it does not hold any more.
    """
    return bool(await session.fetchval(_REMOVE, name))


async def rewind_group(session: Session, name: str, to: datetime | str) -> int:
    """
    Have a group read again what its subscriptions ask for; returns how many subscriptions catch up.

    Events it gets again, from ``"beginning"`` or from a time with its zone, are matches of their own, behind what has
    matched: consumers stay, and what they have not read or failed on stays as it is. Until that is done, what comes
    waits for it. Raises NotFound, and InvalidSubscription where the time is invalid or in the future, or the
    group only listens.
    """
    with own_errors():
        return int(await session.fetchval(_REWIND, name, past_time(to, "to")))


async def rescale_group(session: Session, name: str, ranges: int) -> None:
    """
    Cut the slices of a group into another number of ranges, 1 to 1024, while it is read.

    Progress is kept: what is in flight comes again, and the consumers share the new ranges within a heartbeat.
    """
    cut = [one.min_slice for one in slice_ranges(ranges)]
    with own_errors():
        await session.execute(_CUT, name, cut)


async def poll_group(
    session: Session,
    name: str,
    owner: str,
    lease: timedelta,
    *,
    joined: bool = False,
    handlers: Sequence[int] = (),
) -> list[GroupRange]:
    """
    Join a group, or say that a reader is still there; takes its share of the ranges and returns all that it has.

    The owner is a name that nobody else has; its ranges are its own for ``lease`` without another poll. A reader that
    has ``joined`` before remembers the answer of then (DatabaseWentBack: the database does not know it). Of its
    handlers, by their numbers, it takes their own ranges, too, where nobody reads them.
    """
    with own_errors():
        rows = await session.fetch(_POLL, name, owner, lease, joined, list(handlers))
    return [
        GroupRange(
            SliceRange(row["min_slice"], row["max_slice"]),
            row["epoch"],
            row["cursor"],
            row["kept"],
            owner,
            row["handler_id"],
            tuple(row["apart"] or ()),
        )
        for row in rows
    ]


async def cursors(session: Session, name: str) -> list[tuple[SliceRange, int]]:
    """Where each range of a group stands, those that are a handler's own left out."""
    rows = await session.fetch(_CURSORS, name)
    if not rows:
        known = await group_names(session)
        raise unknown_group(name, known)
    return [(SliceRange(row["min_slice"], row["max_slice"]), row["cursor"]) for row in rows]


async def move_cursor(
    session: Session,
    name: str,
    held: GroupRange,
    cursor: int,
    matched_at: datetime | None = None,
    *,
    handlers: Sequence[int] | None = None,
) -> Sequence[str]:
    """
    Say that a range has handled everything up to a match.

    The cursor of the range is the one that is known to be stored; with the match's time, the match must be the one
    that was read. What is for others than the reader's handlers is kept for them: returns the names of handlers for
    which something is kept from now on.

    Nothing has moved where it raises: RangeLost, the range is held by another, or was cut again; InvalidCursor, it is
    not a match of the group, or lies before the stored cursor; DatabaseWentBack, either is not the one that is known.
    """
    with own_errors():
        apart = await session.fetchval(
            _MOVE, name, held.slices.min_slice, held.epoch, cursor, held.owner, held.cursor, matched_at,
            held.handler_id, None if handlers is None else list(handlers),
        )  # fmt: skip
    return apart or ()


async def join_handler(session: Session, name: str, held: GroupRange) -> bool:
    """Read a handler's own range with that of all others again; returns whether both were equally far."""
    return bool(await session.fetchval(_JOIN, name, held.slices.min_slice, held.handler_id, held.owner))


async def give_up_handler(session: Session, name: str, handler: str) -> int:
    """
    Give up a handler that no consumer has any more: nothing is kept for it, and its subscription is removed.

    Returns how many subscriptions it had that nobody reads for; 0 where nothing was kept for it.
    """
    return int(await session.fetchval(_GIVE_UP, name, handler))


async def release_range(session: Session, name: str, held: GroupRange) -> None:
    """Give a range back, so that the next reader need not wait for the lease; nothing if it is another's by now."""
    await session.execute(_RELEASE, name, held.slices.min_slice, held.epoch, held.owner, held.handler_id)


async def is_reliable(session: Session, name: str) -> bool:
    """Whether consumers read for a group; else it only listens, or is not known."""
    return bool(await session.fetchval(_RELIABLE, name))


async def group_names(session: Session) -> Sequence[str]:
    """All groups."""
    return [row["name"] for row in await session.fetch(_NAMES)]
