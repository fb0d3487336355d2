"""
How far groups of consumers are behind.

Computed by the database from what it has stored: exact also when nobody reads. Lag counts from the log: also by what is
still to be matched, which the projection ``matching`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import Any, NamedTuple

import offsets
from journal import Row, Session, SliceRange
from projections.subscriptions.catching_up import HistoryProgress, history_progress
from projections.subscriptions.errors import unknown_group

_LAG = "SELECT * FROM projections.group_lag_v1($1)"
_UNMATCHED = """
SELECT t.name FROM projections._entity_types_v1() AS t (name) WHERE EXISTS (SELECT FROM projections.subscriptions)
"""


class GroupState(StrEnum):
    """What is done about the matches of a range, or of a group."""

    READ = "read"
    """A reader that is alive holds it."""
    UNREAD = "unread"
    """Nobody holds it, and matches wait."""
    IDLE = "idle"
    """Nobody holds it, and none waits."""
    CATCHING_UP = "catching up"
    """Of a group: a subscription still gets what was before it was made, or before the group was rewound."""
    LISTENING = "listening"
    """Of a group that keeps no cursor: whoever listens gets what matches meanwhile, and nothing waits."""


class GroupRangeLag(NamedTuple):
    """How far one range of a group is behind."""

    slices: SliceRange
    state: GroupState
    lag: float
    """Age of the oldest event that is not read, or not matched though it may be for the group, in seconds; 0 when there
    is none. What was published counts from when it matched; where subscriptions catch up with the past, what they have
    not had of it counts, too."""
    backlog: int
    """Matches that are not read."""
    unmatched: int
    """Events that may be for the group, and are still to be matched."""
    cursor: int
    """The match up to which all are handled."""
    owner: str | None
    """Who reads it, alive or not."""
    alive: bool
    """Whether it is read, and the reader's lease runs."""
    epoch: int
    moved_at: datetime | None
    """When its cursor moved last."""
    handler: str | None = None
    """The handler whose own range it is, because a reader of the range for all did not have it."""


class GroupLag(NamedTuple):
    """How far a group is behind."""

    group_id: int
    name: str
    reliable: bool
    """Whether it has cursors; else it only listens, and is never behind."""
    head: int | None
    """The match up to which all can be read; None in a transaction that keeps its snapshot."""
    retries: int
    """Batches that failed and are to be handled again."""
    dead: int
    """Batches that failed for the last time, and wait for somebody to decide."""
    ranges: list[GroupRangeLag]
    """They tile the slices."""
    apart: list[GroupRangeLag] = []  # noqa: RUF012 - a tuple's default
    """Ranges that are a handler's own: what a reader that does not have the handler came by is kept there."""
    catching_up: Sequence[HistoryProgress] = ()
    """Its subscriptions that catch up with the past."""

    @property
    def parts(self) -> list[GroupRangeLag]:
        """All ranges, also those of one handler."""
        return [*self.ranges, *self.apart]

    @property
    def missing(self) -> dict[str, int]:
        """Handlers that no consumer has, though matches wait for them, and how many do."""
        missing: dict[str, int] = {}
        for part in self.apart:
            if part.handler is not None and not part.alive and part.backlog:
                missing[part.handler] = missing.get(part.handler, 0) + part.backlog
        return missing

    @property
    def lag(self) -> float:
        """Age of the oldest event that is not read, or not matched, in seconds; see :attr:`GroupRangeLag.lag`."""
        return max((part.lag for part in self.parts), default=0.0)

    @property
    def backlog(self) -> int:
        """Matches that are not read; one for each handler that it is kept for."""
        return sum(part.backlog for part in self.parts)

    @property
    def unmatched(self) -> int:
        """Events that may be for it, and are still to be matched."""
        return sum(part.unmatched for part in self.ranges)

    @property
    def without_reader(self) -> int:
        """Ranges that nobody reads, though somebody is to."""
        return sum(self.reliable and not part.alive for part in self.parts)

    @property
    def readers(self) -> list[str]:
        """Who reads, and is alive."""
        return sorted({part.owner for part in self.parts if part.alive and part.owner is not None})

    @property
    def caught_up_to(self) -> datetime | None:
        """All of the past before this time it has; None where it does not catch up, or has looked at nothing yet."""
        reached = [one.reached for one in self.catching_up if one.reached and one.events]
        return min(reached, default=None) if len(reached) == len(self.catching_up) else None

    @property
    def remaining(self) -> float | None:
        """Seconds until it has caught up, if it goes on as fast: 0 where it has; None where nothing says so yet."""
        left = [one.remaining.total_seconds() for one in self.catching_up if one.remaining is not None]
        return max(left, default=0.0) if len(left) == len(self.catching_up) else None

    @property
    def state(self) -> GroupState:
        """Catching up; or what holds of any range: unread rather than read, and that rather than idle."""
        if self.catching_up:
            return GroupState.CATCHING_UP
        states = {part.state for part in self.parts}
        order = (GroupState.UNREAD, GroupState.READ, GroupState.IDLE)
        return next((one for one in order if one in states), GroupState.LISTENING)


async def group_lag(session: Session, name: str | None = None) -> list[GroupLag]:
    """
    How far groups are behind, by name.

    Costs about as much as counting what is not read: see docs/guides/lag.md.

    Args:
        session: A session on the database of the groups.
        name: The group; None for all groups.

    Raises:
        NotFound: There is none of this name; the error lists those that there are.
    """
    rows = await session.fetch(_LAG, name)
    if name is not None and not rows:
        raise unknown_group(name, [one.name for one in await group_lag(session)])
    past = await history_progress(session, name) if any(row["catching_up"] for row in rows) else []
    return [_group(list(parts), past) for _, parts in groupby(rows, lambda row: row["group_id"])]


async def unmatched_entity_types(session: Session) -> list[str]:
    """Entity types whose events nobody has ever matched, though there are subscriptions: no backlog shows those."""
    if "matching" in await offsets.names(session):
        return []
    return [row["name"] for row in await session.fetch(_UNMATCHED)]


def _group(rows: list[Row], past: Sequence[HistoryProgress]) -> GroupLag:
    first = rows[0]
    return GroupLag(
        first["group_id"], first["name"], first["reliable"], first["head"], first["retries"], first["dead"],
        [_range(row) for row in rows if row["handler"] is None],
        [_range(row) for row in rows if row["handler"] is not None],
        [one for one in past if one.group == first["name"]],
    )  # fmt: skip


def _range(row: Row) -> GroupRangeLag:
    lag: timedelta = row["lag"]
    made: dict[str, Any] = {
        "slices": SliceRange(row["min_slice"], row["max_slice"]),
        "state": GroupState(row["state"]),
        "lag": lag.total_seconds(),
    }
    return GroupRangeLag(**made, **{name: row[name] for name in GroupRangeLag._fields if name not in made})
