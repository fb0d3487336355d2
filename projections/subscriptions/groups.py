"""
Groups of consumers in the database: their ranges, what matched for them, and how far they are.

Every call is one line of SQL, in a session that needs no state of its own: any other may do the next call.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from journal import (
    ALL_SLICES,
    PAGE_BYTES,
    EventEnvelope,
    Page,
    Row,
    Session,
    SliceRange,
    slice_ranges,
)
from projections.subscriptions.errors import UnknownGroup, own_errors

_CREATE = "SELECT projections.create_group_v1($1, $2, $3)"
_REMOVE = "SELECT projections.remove_group_v1($1)"
_CUT = "SELECT projections.cut_group_v1($1, $2)"
_POLL = "SELECT * FROM projections.poll_group_v1($1, $2, $3)"
_SETTLED = "SELECT projections.settled_matches_v1()"
_READ = "SELECT * FROM projections.read_next_v1($1, $2, $3, $4, $5, $6, $7, $8)"
_LENGTH = "SELECT projections.replay_length_v1($1, $2, $3, $4, $5)"
_MOVE = "SELECT projections.move_cursor_v1($1, $2, $3, $4)"
_RELEASE = "SELECT projections.release_group_range_v1($1, $2, $3)"
_LEAVE = "SELECT projections.leave_group_v1($1, $2)"
_LAST = """
SELECT coalesce(max(m.match_id), 0) FROM projections.matches AS m
WHERE m.group_id = (SELECT g.group_id FROM projections.subscription_groups AS g WHERE g.name = $1) AND m.match_id <= $2
"""
_PLACE = f"""
SELECT greatest(({_LAST}), (SELECT g.dropped_until FROM projections.subscription_groups AS g WHERE g.name = $1))
"""
_RELIABLE = "SELECT g.reliable FROM projections.subscription_groups AS g WHERE g.name = $1"
_NAMES = "SELECT name FROM projections.subscription_groups ORDER BY name"
_CURSORS = """
SELECT r.min_slice, r.max_slice, r.cursor FROM projections.group_ranges AS r
INNER JOIN projections.subscription_groups AS g ON r.group_id = g.group_id WHERE g.name = $1 ORDER BY r.min_slice
"""


_COLUMNS = len(EventEnvelope._fields) + 1
"""Of a match: two of its own, then those of its event but where that came from."""


class GroupRange(NamedTuple):
    """
    A range of a group's slices that a reader holds.

    Args:
        slices: The range.
        epoch: The fence: what is stored for the range names it, and is refused once another holds the range.
        cursor: Number of the last match before which everything was handled.
        kept: Whether the reader may keep it; else it is to be released, for one that has too few.
    """

    slices: SliceRange
    epoch: int
    cursor: int
    kept: bool


class Match(NamedTuple):
    """An event that matched, for these subscriptions of the group; without it when it was dropped from the journal."""

    match_id: int
    subscription_ids: list[int]
    envelope: EventEnvelope | None


async def create_group(session: Session, name: str, *, ranges: int = 1, reliable: bool = True) -> int:
    """
    Make a group known; one that is known stays as it is.

    Args:
        session: Where.
        name: Its name, 1 to 255 characters.
        ranges: Into how many ranges its slices are cut: so many consumers can read at a time.
        reliable: Whether consumers read for it, and nothing may be dropped before they have; else it only listens.

    Returns:
        Its number.

    Raises:
        InvalidSubscription: The name can not be.
        ValueError: There can not be so many ranges.
    """
    cut = [one.min_slice for one in slice_ranges(ranges)]
    with own_errors():
        return int(await session.fetchval(_CREATE, name, reliable, cut))


async def remove_group(session: Session, name: str) -> bool:
    """
    Remove a group with its subscriptions, cursors, retries and dead letters.

    What has matched for it leaves with its partitions, which it does not hold any more.

    Args:
        session: Where.
        name: The group.

    Returns:
        Whether there was one.
    """
    return bool(await session.fetchval(_REMOVE, name))


async def rescale_group(session: Session, name: str, ranges: int) -> None:
    """
    Cut the slices of a group into another number of ranges, while it is read.

    Progress is kept: what is in flight comes again, and the consumers share the new ranges within a heartbeat.

    Args:
        session: Where.
        name: The group.
        ranges: 1 to 1024.

    Raises:
        UnknownGroup: There is none of this name.
        ValueError: There can not be so many ranges.
    """
    cut = [one.min_slice for one in slice_ranges(ranges)]
    with own_errors():
        await session.execute(_CUT, name, cut)


async def poll_group(session: Session, name: str, owner: str, lease: timedelta) -> list[GroupRange]:
    """
    Join a group, or say that a reader is still there; takes its share of the ranges and returns all that it has.

    Args:
        session: Where.
        name: The group.
        owner: The reader, by a name that nobody else has.
        lease: How long its ranges are its own without another poll.

    Raises:
        UnknownGroup: There is none of this name.
    """
    with own_errors():
        rows = await session.fetch(_POLL, name, owner, lease)
    return [
        GroupRange(SliceRange(row["min_slice"], row["max_slice"]), row["epoch"], row["cursor"], row["kept"])
        for row in rows
    ]


async def settled_matches(session: Session) -> int:
    """The number up to which every match can be seen. Read matches in a later statement, outside a transaction."""
    with own_errors():
        return int(await session.fetchval(_SETTLED))


async def read_next(
    session: Session,
    name: str,
    slices: SliceRange = ALL_SLICES,
    *,
    after: int,
    until: int,
    limit: int,
    subscription_ids: Sequence[int] | None = None,
    page_bytes: int = PAGE_BYTES,
) -> Page[Match]:
    """
    The next matches of a range, in their order, from any place: nothing is claimed, and nothing moves.

    Args:
        session: Where; outside a transaction.
        name: The group.
        slices: Of these.
        after: A match's number; 0 for the first.
        until: What :func:`settled_matches` said.
        limit: At most so many.
        subscription_ids: Of these; None for all of the group.
        page_bytes: The one with which they have so many bytes together is the last.

    Returns:
        A list, with ``more`` where it ends because of a limit.

    Raises:
        InvalidSubscription: The limit is below 1.
    """
    ids = None if subscription_ids is None else list(subscription_ids)
    with own_errors():
        rows = await session.fetch(_READ, name, *slices, after, until, limit, ids, page_bytes)
    more = bool(rows) and (len(rows) == limit or rows[-1]["more"])
    return Page.of(map(_match, rows), more=more)


def _match(row: Row) -> Match:
    values: tuple[Any, ...] = tuple(row.values())
    # Without an id there is no event: it was dropped after it had matched.
    envelope = None if values[6] is None else EventEnvelope(*values[2:_COLUMNS])
    return Match(values[0], values[1], envelope)


async def replay_length(
    session: Session, group: str, subscription_id: int, *, after: int, until: int, limit: int
) -> int | None:
    """
    How many matches a subscription has between two numbers, counted up to a limit.

    Returns:
        None where one who has seen all up to ``after`` can not go on from there: the subscription is gone, no match
        ever had that number, or what came after it has been dropped.
    """
    found: int | None = await session.fetchval(_LENGTH, group, subscription_id, after, until, limit)
    return found


async def peek(session: Session, name: str, *, limit: int = 10) -> list[Match]:
    """
    What a group is to handle next, over all of its slices; nobody is disturbed, and nothing moves.

    Args:
        session: Outside a transaction.
        name: The group.
        limit: At most so many.

    Raises:
        UnknownGroup: There is none of this name.
    """
    until = await settled_matches(session)
    found: list[Match] = []
    for slices, cursor in await cursors(session, name):
        found += await read_next(session, name, slices, after=cursor, until=until, limit=limit)
    return sorted(found, key=lambda match: match.match_id)[:limit]


async def cursors(session: Session, name: str) -> list[tuple[SliceRange, int]]:
    """
    Where each range of a group stands.

    Raises:
        UnknownGroup: There is none of this name.
    """
    rows = await session.fetch(_CURSORS, name)
    if not rows:
        raise UnknownGroup(f"there is no group {name!r}: subscribe for it, or create it first")
    return [(SliceRange(row["min_slice"], row["max_slice"]), row["cursor"]) for row in rows]


async def move_cursor(session: Session, name: str, held: GroupRange, cursor: int) -> None:
    """
    Say that a range has handled everything up to a match.

    Args:
        session: Where.
        name: The group.
        held: The range, as :func:`poll_group` returned it.
        cursor: The match's number.

    Raises:
        GroupRangeLost: Somebody else holds the range, or it was cut anew; nothing has moved.
        InvalidCursor: It is no match of the group, or lies before the stored cursor.
    """
    with own_errors():
        await session.execute(_MOVE, name, held.slices.min_slice, held.epoch, cursor)


async def last_match(session: Session, name: str, until: int) -> int:
    """The last match of a group up to a number, whatever its slice; 0 when it has none."""
    return int(await session.fetchval(_LAST, name, until))


async def last_place(session: Session, name: str, until: int) -> int:
    """The last number up to another that a group ever had: one that no crash takes back."""
    return int(await session.fetchval(_PLACE, name, until))


async def release_range(session: Session, name: str, held: GroupRange) -> None:
    """Give a range back, so that the next reader need not wait for the lease; nothing if it is another's by now."""
    await session.execute(_RELEASE, name, held.slices.min_slice, held.epoch)


async def leave_group(session: Session, name: str, owner: str) -> None:
    """Stop reading for a group: all ranges of the reader are free at once."""
    await session.execute(_LEAVE, name, owner)


async def is_reliable(session: Session, name: str) -> bool:
    """Whether consumers read for a group; else it only listens, or is not known."""
    return bool(await session.fetchval(_RELIABLE, name))


async def group_names(session: Session) -> Sequence[str]:
    """All groups."""
    return [row["name"] for row in await session.fetch(_NAMES)]
