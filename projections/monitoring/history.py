"""How far subscriptions are that catch up with the past."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from journal import Session

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
