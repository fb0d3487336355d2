"""
Has conditions asked about the events that wait for them, in their order.

First about those that they have failed on and that somebody has released, then about what came while they were stopped.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from journal import OwnedSession
from projections.subscriptions.pages_in_turn import PagesInTurn, PageToMatch

_MOST = 1000

_BEHIND = """
SELECT c.condition_id FROM projections.conditions AS c
WHERE c.condition_id = ANY (ARRAY(SELECT projections._conditions_apart_v1())) AND c.quarantined_at IS NULL
"""
_NEXT_FAILED = """
SELECT u.unanswered_id, u.entity_type, u.source_id, u.seq_nr, u.db_timestamp, u.slice, u.topic
FROM unnest(projections._next_unanswered_v1($1, $2)) AS u
"""
_NEXT_UNASKED = """
SELECT page_id, place, entity_type, source_id, seq_nr, db_timestamp, slice, topic
FROM projections._next_unasked_v1($1, $2)
"""
_MATCH_FAILED = "SELECT projections._match_unanswered_v1($1, $2, $3)"
_MATCH_UNASKED = "SELECT projections._match_unasked_v1($1, $2, $3, $4, $5)"
_FORGET = "SELECT projections._pass_unasked_v1($1)"
_FORGOTTEN = 1000


class Unanswered(PagesInTurn):
    """Works off what waits for conditions."""

    async def go_on(self, session: OwnedSession) -> None:
        """Match as many pages as can be matched in a turn, and delete those that all conditions have passed."""
        until = time.monotonic() + self._timeout.total_seconds()
        await super().go_on(session)
        while await session.fetchval(_FORGET, _FORGOTTEN) == _FORGOTTEN and time.monotonic() < until:
            pass

    async def _waiting(self, session: OwnedSession) -> Sequence[int]:
        return [row["condition_id"] for row in await session.fetch(_BEHIND)]

    async def _next(self, session: OwnedSession, number: int, width: int | None) -> PageToMatch | None:
        rows = await session.fetch(_NEXT_FAILED, number, width or _MOST)
        if rows:
            failed = [row["unanswered_id"] for row in rows]
            return PageToMatch(rows, partial(session.fetchval, _MATCH_FAILED, number, failed), number)
        rows = await session.fetch(_NEXT_UNASKED, number, width or _MOST)
        if not rows:
            return None
        first = rows[0]["page_id"], rows[0]["place"]
        return PageToMatch(rows, partial(session.fetchval, _MATCH_UNASKED, number, *first, len(rows)), number)
