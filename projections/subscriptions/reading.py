"""
What matched for a group, read in its order: by those who hold a range, and by those who listen.

Numbers of matches are given out again after a crash, a fail-over or a restore. Whoever reads on from a place that it
remembers names the match there by number and time, in the statement that reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from journal import ALL_SLICES, PAGE_BYTES, EventEnvelope, Generation, Page, Row, Session
from projections.subscriptions.errors import own_errors
from projections.subscriptions.groups import GroupRange

_LOOK = """
SELECT projections.settled_matches_v1() AS settled, g.* FROM projections.generation_v1() AS g
"""
_SETTLED = "SELECT projections.settled_matches_v1()"
_READ_ON = """
SELECT n.* FROM projections.check_place_v1($1, $4, $9)
CROSS JOIN projections.read_next_v1($1, $2, $3, $4, $5, $6, $7, $8) AS n
"""
_READ_HELD = """
SELECT n.* FROM projections.check_group_range_v1($1, $2, $8, $9, $10, $4, $11, $12)
CROSS JOIN projections.read_next_v1($1, $2, $3, $4, $5, $6, $13, $7) AS n
"""
_LENGTH = """
SELECT projections._replay_length_v1($1, $2, $3, $4, $5) FROM projections.check_place_v1($1, $3, $6)
"""
_CHECK = "SELECT projections.check_place_v1($1, $2, $3)"
_LAST = """
SELECT coalesce(m.match_id, g.dropped_until) AS match_id, m.matched_at
FROM projections.subscription_groups AS g
LEFT JOIN LATERAL (
    SELECT m.match_id, m.matched_at FROM projections.matches AS m
    WHERE m.group_id = g.group_id AND m.match_id > g.dropped_until AND m.match_id <= $2
    ORDER BY m.group_id DESC, m.match_id DESC LIMIT 1
) AS m ON TRUE
WHERE g.name = $1
"""
_EVENT_ID = 4
"""The place of an event's id among the columns of the event."""


@dataclass(frozen=True, slots=True, order=True)
class MatchPlace:
    """
    A place in what matched for a group: after a match.

    Numbers are given out again after a crash, a fail-over or a restore; the number and the time together are not. Who
    reads on from a place names both, and learns that way that the database went back in time.

    Args:
        match_id: The match's number; 0 before the first.
        matched_at: When it matched; None where nothing can be read before the place any more, or it is a stored cursor.
    """

    match_id: int
    matched_at: datetime | None = field(default=None, compare=False)


class Match(NamedTuple):
    """An event that matched, for these subscriptions of the group; without it when it was dropped from the journal."""

    match_id: int
    subscription_ids: list[int]
    envelope: EventEnvelope | None
    matched_at: datetime

    @property
    def place(self) -> MatchPlace:
        """The place after it."""
        return MatchPlace(self.match_id, self.matched_at)


async def settled_matches(session: Session) -> int:
    """The number up to which every match can be seen. Read matches in a later statement, outside a transaction."""
    with own_errors():
        return int(await session.fetchval(_SETTLED))


class SettledMatches(NamedTuple):
    """What :func:`settled_matches` says, and which generation of the database says it."""

    settled: int
    generation: Generation


async def look(session: Session) -> SettledMatches:
    """What one who stays asks before it reads on from what it remembers; as for :func:`settled_matches`."""
    with own_errors():
        (row,) = await session.fetch(_LOOK)
    return SettledMatches(row["settled"], Generation.of(row))


def page_of(rows: Sequence[Row], limit: int) -> Page[Match]:
    """Matches as read_next_v1 gives them, with ``more`` where they end because of a limit."""
    more = bool(rows) and (len(rows) == limit or rows[-1]["more"])
    return Page.of(map(_match, rows), more=more)


def _match(row: Row) -> Match:
    match_id, subscription_ids, *event, matched_at, _ = row.values()
    # Without an id there is no event: it was dropped after it had matched.
    envelope = None if event[_EVENT_ID] is None else EventEnvelope(*event)
    return Match(match_id, subscription_ids, envelope, matched_at)


async def read_on(
    session: Session,
    name: str,
    *,
    after: MatchPlace,
    until: int,
    limit: int,
    subscription_ids: Sequence[int] | None = None,
    page_bytes: int = PAGE_BYTES,
) -> Page[Match]:
    """
    The next matches of a group, in their order, after a place that the caller remembers: nothing is claimed or moved.

    ``until`` is the last match to read, from :func:`settled_matches`. A page has at most ``limit`` matches, and ends
    with the one with which they have ``page_bytes``; ``more`` says that it ends because of a limit. Raises
    InvalidValue for a limit below 1, and DatabaseWentBack where what the place names is not in the database any more.
    """
    ids = None if subscription_ids is None else list(subscription_ids)
    with own_errors():
        rows = await session.fetch(
            _READ_ON, name, *ALL_SLICES, after.match_id, until, limit, ids, page_bytes, after.matched_at
        )
    return page_of(rows, limit)


async def read_held(
    session: Session,
    name: str,
    held: GroupRange,
    *,
    after: MatchPlace,
    until: int,
    limit: int,
    subscription_ids: Sequence[int] | None = None,
    page_bytes: int = PAGE_BYTES,
) -> Page[Match]:
    """
    The next matches of a range that the caller holds, with the cursor that is known to be stored; see :func:`read_on`.

    Raises:
        RangeLost: Somebody else holds the range.
        DatabaseWentBack: What the place names is not in the database any more, or the cursor is another.
    """
    with own_errors():
        rows = await session.fetch(
            _READ_HELD, name, *held.slices, after.match_id, until, limit, page_bytes,
            held.epoch, held.owner, held.cursor, after.matched_at, held.handler_id,
            None if subscription_ids is None else list(subscription_ids),
        )  # fmt: skip
    return page_of(rows, limit)


async def replay_length(
    session: Session, group: str, subscription_id: int, *, after: MatchPlace, until: int, limit: int
) -> int | None:
    """
    How many matches a subscription has between a place and a number, counted up to a limit.

    None where one who has seen all up to the place cannot go on from there: the subscription is gone, or what came
    after it has been dropped. Raises DatabaseWentBack as :func:`check_place` does.
    """
    with own_errors():
        found: int | None = await session.fetchval(
            _LENGTH, group, subscription_id, after.match_id, until, limit, after.matched_at
        )
    return found


async def check_place(session: Session, group: str, place: MatchPlace) -> None:
    """Make sure that a place that is remembered is still there; else DatabaseWentBack."""
    with own_errors():
        await session.fetchval(_CHECK, group, place.match_id, place.matched_at)


async def last_place(session: Session, name: str, until: int) -> MatchPlace:
    """The place after the last match of a group up to a number, whatever its slice: one that no crash takes back."""
    row = await session.fetchrow(_LAST, name, until)
    return MatchPlace(0) if row is None else MatchPlace(row["match_id"], row["matched_at"])
