"""
Matches subscriptions that start in the past with the events of before, a page at a time, beside what comes.

The database knows how far each is, so any number of processes may do this, and each page is done by one of them.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from journal import OwnedSession, Session
from projections.subscriptions.conditions import NARROWER, Asked, AskedOf, Failed, TooMuch

__all__ = ["History", "HistoryProgress", "history_progress"]

_MOST = 2000
"""Events of a page."""
_LAST = 10_000
"""Events of the last page, while which nothing else is matched."""

_BEHIND = "SELECT subscription_id, condition_id FROM projections.begin_history_v1()"
_NEXT = "SELECT * FROM projections.next_history_v1($1, $2, $3)"
_MATCH = "SELECT projections.match_history_v1($1, $2, $3, $4, $5)"
_FINISH = "SELECT projections.finish_history_v1($1, $2, $3)"
_PROGRESS = """
SELECT s.subscription_id, g.name AS group, s.starts_at, coalesce(h.events, 0) AS events, h.reached, h.remaining
FROM projections.subscriptions AS s
INNER JOIN projections.subscription_groups AS g ON s.group_id = g.group_id
CROSS JOIN LATERAL (
    SELECT sum(h.events)::bigint AS events, min(h.db_timestamp) AS reached, (
        (clock_timestamp() - min(h.began_at))
        * extract(epoch FROM greatest(clock_timestamp() - min(h.db_timestamp), '0'))::float8
        / nullif(extract(epoch FROM min(h.db_timestamp) - min(h.first_event)), 0)::float8
    ) AS remaining
    FROM projections.subscription_history AS h WHERE h.subscription_id = s.subscription_id
) AS h
WHERE s.starts_at IS NOT NULL AND ($1::text IS NULL OR g.name = $1) ORDER BY g.name, s.subscription_id
"""
_KEY = ("source_id", "seq_nr", "db_timestamp", "slice", "topic")


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


class History:
    """
    Works off the past of subscriptions, a page of each in turn.

    Args:
        timeout: What a condition may take for one event, and the length of a turn for all subscriptions.
    """

    def __init__(self, timeout: timedelta) -> None:
        self._timeout = timeout
        self._widths: dict[int, int] = {}
        """How many events the condition of a subscription is asked about, where that was too many before."""
        self._last = 0

    async def go_on(self, session: OwnedSession) -> None:
        """Match as many pages as can be matched in a turn."""
        until = time.monotonic() + self._timeout.total_seconds()
        found = {row["subscription_id"]: row["condition_id"] for row in await session.fetch(_BEHIND)}
        self._widths = {each: width for each, width in self._widths.items() if each in found}
        behind = sorted(found, key=lambda each: (each <= self._last, each))
        while behind and time.monotonic() < until:
            self._last = behind.pop(0)
            if await self._match(session, self._last, found[self._last]):
                behind.append(self._last)

    async def _match(self, session: OwnedSession, subscription_id: int, condition_id: int | None) -> bool:
        """Match the next page, or the last one, in a transaction; returns whether more may be left."""
        width = self._widths.get(subscription_id)
        rows = await session.fetch(_NEXT, subscription_id, width or _MOST, False)
        if last := not rows:
            rows = await session.fetch(_NEXT, subscription_id, width or _LAST, True)
            match = partial(session.fetchval, _FINISH, subscription_id, width or _LAST)
        else:
            first = rows[0]["source_id"], rows[0]["seq_nr"]
            match = partial(session.fetchval, _MATCH, subscription_id, *first, len(rows))
        asked = [tuple(row[name] for name in _KEY) for row in rows if row["topic"] is not None]

        async def ask(failed: Failed) -> bool:
            return bool(await match(None if condition_id is None else failed.get(condition_id)))

        await session.begin()
        try:
            if condition_id is None or not asked:
                matched = await ask({})
            else:
                events = AskedOf(rows[0]["entity_type"], asked, condition_id)
                matched = await Asked(session, events, self._timeout).run(ask)
            await session.commit()
        except TooMuch:
            await session.rollback()
            self._widths[subscription_id] = max(1, len(rows) // NARROWER)
            return True
        except BaseException:
            await session.rollback()
            raise
        return matched and not last
