"""
Matches subscriptions that start in the past with the events of before, a page at a time, alongside what comes.

The database knows how far each is, so any number of processes may do this, and each page is done by one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from journal import OwnedSession, Session
from projections.subscriptions.pages_in_turn import PagesInTurn, PageToMatch

_MOST = 2000
"""Events of a page."""
_LAST = 10_000
"""Events of the last page, while which nothing else is matched."""

_BEHIND = "SELECT subscription_id, condition_id FROM projections._begin_history_v1()"
_NEXT = "SELECT * FROM projections._next_history_v1($1, $2, $3)"
_MATCH = "SELECT projections._match_history_v1($1, $2, $3, $4, $5)"
_FINISH = "SELECT projections._finish_history_v1($1, $2, $3)"
_PROGRESS = """
SELECT s.subscription_id, g.name AS group, s.starts_at, coalesce(h.events, 0) AS events, h.db_timestamp AS reached, (
    (clock_timestamp() - h.began_at)
    * extract(epoch FROM greatest(clock_timestamp() - h.db_timestamp, '0'))::float8
    / nullif(extract(epoch FROM h.db_timestamp - h.first_event), 0)::float8
) AS remaining
FROM projections.subscriptions AS s
INNER JOIN projections.subscription_groups AS g ON s.group_id = g.group_id
LEFT JOIN projections.subscription_history AS h ON s.subscription_id = h.subscription_id
WHERE s.starts_at IS NOT NULL AND ($1::text IS NULL OR g.name = $1) ORDER BY g.name, s.subscription_id
"""


class CatchingUp(PagesInTurn):
    """Works off the past of subscriptions."""

    def __init__(self, timeout: timedelta) -> None:
        super().__init__(timeout)
        self._conditions: dict[int, int | None] = {}
        """Of the subscriptions that are behind."""

    async def _waiting(self, session: OwnedSession) -> Sequence[int]:
        rows = await session.fetch(_BEHIND)
        self._conditions = {row["subscription_id"]: row["condition_id"] for row in rows}
        return list(self._conditions)

    async def _next(self, session: OwnedSession, number: int, width: int | None) -> PageToMatch | None:
        condition_id = self._conditions[number]
        rows = await session.fetch(_NEXT, number, width or _MOST, False)
        match = None
        if rows:
            first = rows[0]["source_id"], rows[0]["seq_nr"]
            match = partial(session.fetchval, _MATCH, number, *first, len(rows))
            if len(rows) == (width or _MOST):
                return PageToMatch(rows, match, condition_id)
        # Where events come all the time each page is short: it is a part of the last one, or is matched alone.
        rows = await session.fetch(_NEXT, number, width or _LAST, True)

        async def finish(error: str | None) -> bool:
            if not await session.fetchval(_FINISH, number, width or _LAST, error) and match is not None:
                await match(error)
            return False

        return PageToMatch(rows, finish, condition_id)


class HistoryProgress(NamedTuple):
    """How far a subscription is that catches up with the past."""

    subscription_id: int
    group: str
    starts_at: datetime
    """From this time on events are for it."""
    events: int
    """How many it has looked at."""
    reached: datetime | None
    """All before this time it has; None before the first page."""
    remaining: timedelta | None
    """How long the rest takes if it goes on as fast through the time that is left; None where nothing says so yet."""


async def history_progress(session: Session, group: str | None = None) -> list[HistoryProgress]:
    """How far the subscriptions of a group, or of all, are that catch up with the past."""
    return [HistoryProgress(*row.values()) for row in await session.fetch(_PROGRESS, group)]
