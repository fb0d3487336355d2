"""
Has conditions asked about the events that wait for them, in their order.

First about those that they have failed on and that somebody has released, then about what came while they were stopped.
"""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial

from journal import OwnedSession
from projections.subscriptions.conditions import NARROWER, Asked, AskedOf, Failed, TooMuch

__all__ = ["CatchingUp"]

_MOST = 1000

_BEHIND = """
SELECT c.condition_id FROM projections.conditions AS c
WHERE c.condition_id = ANY (ARRAY(SELECT projections.conditions_apart_v1())) AND c.quarantined_at IS NULL
ORDER BY c.condition_id
"""
_NEXT_FAILED = """
SELECT u.unanswered_id, u.entity_type, u.source_id, u.seq_nr, u.db_timestamp, u.slice, u.topic
FROM unnest(projections.next_unanswered_v1($1, $2)) AS u
"""
_NEXT_UNASKED = """
SELECT page_id, place, entity_type, source_id, seq_nr, db_timestamp, slice, topic
FROM projections.next_unasked_v1($1, $2)
"""
_MATCH_FAILED = "SELECT projections.match_unanswered_v1($1, $2, $3)"
_MATCH_UNASKED = "SELECT projections.match_unasked_v1($1, $2, $3, $4, $5)"
_FORGET = "SELECT projections.pass_unasked_v1($1)"
_FORGOTTEN = 1000
_KEY = ("source_id", "seq_nr", "db_timestamp", "slice", "topic")


class CatchingUp:
    """
    Works off what waits, a condition after another, so that none keeps others waiting for long.

    Args:
        timeout: What a condition may take for one event, and the length of a turn for all conditions.
    """

    def __init__(self, timeout: timedelta) -> None:
        self._timeout = timeout
        self._widths: dict[int, int] = {}
        """How many events a condition is asked about at once, where that was too many before."""
        self._last = 0

    async def go_on(self, session: OwnedSession) -> None:
        """Ask as many as can be asked in a turn."""
        until = time.monotonic() + self._timeout.total_seconds()
        behind: list[int] = [row["condition_id"] for row in await session.fetch(_BEHIND)]
        self._widths = {each: width for each, width in self._widths.items() if each in behind}
        behind = [each for each in behind if each > self._last] + [
            each for each in behind if each <= self._last
        ]
        while behind and time.monotonic() < until:
            self._last = behind.pop(0)
            if await self._match(session, self._last):
                behind.append(self._last)
        while await session.fetchval(_FORGET, _FORGOTTEN) == _FORGOTTEN and time.monotonic() < until:
            pass

    async def _match(self, session: OwnedSession, condition_id: int) -> bool:
        """Ask a condition about the next events, in a transaction; returns whether more may wait."""
        width = self._widths.get(condition_id, _MOST)
        rows = await session.fetch(_NEXT_FAILED, condition_id, width)
        if rows:
            match = partial(
                session.fetchval, _MATCH_FAILED, condition_id, [row["unanswered_id"] for row in rows]
            )
        else:
            rows = await session.fetch(_NEXT_UNASKED, condition_id, width)
            if not rows:
                return False
            first = rows[0]["page_id"], rows[0]["place"]
            match = partial(session.fetchval, _MATCH_UNASKED, condition_id, *first, len(rows))
        keys = [tuple(row[name] for name in _KEY) for row in rows]
        events = AskedOf(rows[0]["entity_type"], keys, condition_id)

        async def ask(failed: Failed) -> int:
            matched: int = await match(failed.get(condition_id))
            return matched

        await session.begin()
        try:
            matched = await Asked(session, events, self._timeout).run(ask)
            await session.commit()
        except TooMuch:
            await session.rollback()
            self._widths[condition_id] = max(1, len(rows) // NARROWER)
            return True
        except BaseException:
            await session.rollback()
            raise
        return matched > 0
