"""Deciding about batches that a handler of a group has failed on for the last time."""

from __future__ import annotations

from enum import StrEnum

from journal import ProjectionsError, Session
from projections.subscriptions import cursors

_FIND = """
SELECT r.retry_id FROM projections.group_retries AS r
INNER JOIN projections.subscription_groups AS g ON r.group_id = g.group_id
WHERE g.name = $1 AND r.due_at IS NULL AND ($2::bigint IS NULL OR r.retry_id = $2)
ORDER BY r.retry_id FOR UPDATE OF r
"""
_REPLAY = "SELECT projections.replay_retry_v1(d.id) FROM unnest($1::bigint[]) AS d (id)"
_FORGET = "SELECT projections.forget_retry_v1(d.id) FROM unnest($1::bigint[]) AS d (id)"


class NoDeadLetter(ProjectionsError):
    """The batch is not among the dead letters of the group, or not any more."""


class Decision(StrEnum):
    """What becomes of a dead letter."""

    REPLAY = "replay"
    """Its handler gets it again, with all of its retries before it."""
    FORGET = "forget"
    """It is removed; its handler never gets it again."""


async def decide_dead(session: Session, group: str, retry_id: int | None, decision: Decision) -> int:
    """
    Decide about one dead letter of a group, or about all of them.

    Of two who decide about the same one at once, the second is refused: what waits to be handled again is not dead.

    Args:
        session: In a transaction.
        group: The group.
        retry_id: Which; None for all.
        decision: What becomes of it.

    Returns:
        How many those were.

    Raises:
        UnknownGroup: There is no such group.
        NoDeadLetter: It is not, or not any more, one of the group's.
    """
    await cursors(session, group)
    found = [row["retry_id"] for row in await session.fetch(_FIND, group, retry_id)]
    if retry_id is not None and not found:
        raise NoDeadLetter(f"batch {retry_id} is no dead letter of group {group!r}, or not any more")
    await session.fetch(_REPLAY if decision is Decision.REPLAY else _FORGET, found)
    return len(found)
