"""Answers of commands that decide what others do: they say whether anybody runs who does it."""

from __future__ import annotations

import offsets
from journal import Session
from projections.terminal.output import Answer, left_to

_READS = """
SELECT EXISTS (
    SELECT FROM projections.workers AS w INNER JOIN projections.subscription_groups AS g ON w.group_id = g.group_id
    WHERE g.name = $1 AND w.lease_until > clock_timestamp()
)
"""


async def left_to_consumers(session: Session, answer: Answer, group: str, *, is_done: bool = False) -> Answer:
    """An answer, and whether anybody reads for the group; what is done already, others go on with."""
    runs = await session.fetchval(_READS, group)
    return left_to(answer, f"consumer of group {group!r}", runs=runs, is_done=is_done)


async def left_to_matching(session: Session, answer: Answer) -> Answer:
    """An answer, and whether anybody matches events."""
    return left_to(answer, "worker that matches", runs=await offsets.runs(session, "matching"))
