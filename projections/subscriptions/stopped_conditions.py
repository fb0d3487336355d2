"""Conditions of subscriptions that were stopped, and what they failed on."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from journal import Session

_QUARANTINED = """
SELECT c.condition_id, c.sql, c.error, c.quarantined_at, count(s.subscription_id) AS subscriptions,
    coalesce(array_agg(DISTINCT g.name ORDER BY g.name) FILTER (WHERE g.name IS NOT NULL), '{}') AS groups
FROM projections.conditions AS c
LEFT JOIN projections.subscriptions AS s ON c.condition_id = s.condition_id
LEFT JOIN projections.subscription_groups AS g ON s.group_id = g.group_id
WHERE c.quarantined_at IS NOT NULL
GROUP BY c.condition_id ORDER BY c.quarantined_at, c.condition_id
"""
_SET_APART = """
SELECT count(*) FROM (SELECT FROM projections.unanswered WHERE NOT due LIMIT 100000) AS u
"""
_RELEASE = "SELECT projections._release_condition_v1($1)"


class QuarantinedCondition(NamedTuple):
    """A condition that failed on most events, or took too long: what comes for its subscriptions waits."""

    condition_id: int
    sql: str
    error: str
    since: datetime
    subscriptions: int
    """How many have it."""
    groups: list[str]
    """Whose they are."""


async def quarantined_conditions(session: Session) -> list[QuarantinedCondition]:
    """The conditions that are stopped, those stopped longest ago first."""
    return [QuarantinedCondition(*row.values()) for row in await session.fetch(_QUARANTINED)]


async def events_set_apart(session: Session) -> int:
    """How many events a condition has failed on, each once for each condition: somebody decides. Up to 100,000."""
    return int(await session.fetchval(_SET_APART))


async def release_condition(session: Session, condition_id: int) -> bool:
    """Have a condition asked again that was stopped, or that has failed on events; returns whether it had."""
    return bool(await session.fetchval(_RELEASE, condition_id))
