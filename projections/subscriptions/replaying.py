"""What matched for single subscriptions of a group, read from any place: nothing is claimed, and nothing moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from journal import EventEnvelope, Session
from projections.subscriptions.errors import own_errors
from projections.subscriptions.groups import Match

__all__ = ["read_matches", "replay_length"]

_READ = "SELECT * FROM projections.read_matches_v1($1, $2, $3, $4, $5)"
_LENGTH = "SELECT projections.replay_length_v1($1, $2, $3, $4, $5)"


async def read_matches(
    session: Session,
    group: str,
    subscription_ids: Sequence[int] | None,
    *,
    after: int,
    until: int,
    limit: int,
) -> list[Match]:
    """
    The next matches of some subscriptions, in their order.

    Args:
        session: Where; outside a transaction.
        group: Whose subscriptions.
        subscription_ids: Which; None for all of the group.
        after: A match's number; 0 for the first.
        until: What :func:`projections.subscriptions.groups.settled_matches` said.
        limit: At most so many.

    Raises:
        InvalidSubscription: The limit is below 1.
    """
    ids = None if subscription_ids is None else list(subscription_ids)
    with own_errors():
        rows = await session.fetch(_READ, group, ids, after, until, limit)
    return [_match(tuple(row.values())) for row in rows]


def _match(values: tuple[Any, ...]) -> Match:
    # Without an id there is no event: it was dropped after it had matched.
    envelope = None if values[6] is None else EventEnvelope(*values[2:])
    return Match(values[0], values[1], envelope)


async def replay_length(
    session: Session, group: str, subscription_id: int, *, after: int, until: int, limit: int
) -> int | None:
    """
    How many matches a subscription has between two numbers, counted up to a limit.

    Returns:
        None where one who has seen all up to ``after`` can not go on from there: the subscription is gone, no match
        ever had that number, or what came after it has been dropped.
    """
    found: int | None = await session.fetchval(_LENGTH, group, subscription_id, after, until, limit)
    return found
