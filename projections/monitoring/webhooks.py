"""
The state of all endpoints of webhooks together, their dead letters, and what an operator may do about them.

Computed by the database from what it has stored. How each of them fares is in :mod:`projections.webhooks.stats`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from journal import DatabaseError, ProjectionsError, Session

_TOTALS = "SELECT * FROM projections.webhook_totals_v1()"
_DEAD = """
SELECT d.* FROM unnest($1::text[]) AS e (endpoint_id)
CROSS JOIN LATERAL (
    SELECT d.delivery_id, d.endpoint_id, d.event_id, d.topic, d.attempts, d.last_code, d.finished_at
    FROM projections.webhook_deliveries AS d
    WHERE d.endpoint_id = e.endpoint_id AND d.state = 'dead' ORDER BY d.delivery_id DESC LIMIT $2
) AS d
ORDER BY d.delivery_id DESC LIMIT $3
"""
_SET_STATE = "SELECT projections.set_endpoint_state_v1(NULL, $1, $2, $3, $4)"
_CHANGED = ("PJ091", "PJ097")  # it is gone, or in another state

State = Literal["active", "paused", "disabled"]


class EndpointChanged(ProjectionsError):
    """An endpoint is not any more what it was when somebody decided about it."""


class WebhookTotals(NamedTuple):
    """The state of all endpoints together; times in seconds."""

    active: int
    paused: int
    disabled: int
    failing: int
    """Endpoints that are active, have something to send, and whose last attempts have failed."""
    pending: int
    """Deliveries to be made, now or at their next attempt."""
    waiting: int
    """Deliveries behind others, in the order that their endpoint asks for."""
    in_flight: int
    dead: int
    lag: float
    """Age of the oldest delivery of an active endpoint that has not arrived and is not dead."""
    overdue: float
    """How long a delivery has been due that nothing holds back."""
    failing_for: float
    """For how long the attempts of an endpoint have failed; 0 when none does."""
    ticks_lag: float
    """How long the tick of a schedule has been due that has waited longest."""
    ticks_skipped: int
    """Ticks that were missed, for no process could send, and that their schedules do not want later."""

    @property
    def endpoints(self) -> int:
        """How many there are."""
        return self.active + self.paused + self.disabled


class DeadDelivery(NamedTuple):
    """A delivery whose attempts are used up."""

    delivery_id: int
    endpoint_id: str
    event_id: str
    topic: str
    attempts: int
    code: str | None
    """Of the last attempt: an HTTP status, or what went wrong."""
    died_at: datetime | None


async def webhook_totals(session: Session) -> WebhookTotals:
    """The state of all endpoints together. Costs about as much as counting what is not delivered."""
    (row,) = await session.fetch(_TOTALS)
    return WebhookTotals(*row.values())


async def dead_deliveries(
    session: Session, endpoint_ids: Sequence[str], each: int, limit: int
) -> list[DeadDelivery]:
    """
    Dead letters of endpoints, the newest first.

    Args:
        session: Where; inside or outside of a transaction.
        endpoint_ids: Of which.
        each: At most so many of each of them.
        limit: At most so many in all.
    """
    rows = await session.fetch(_DEAD, list(endpoint_ids), each, limit)
    return [DeadDelivery(*row.values()) for row in rows]


async def change_endpoint_state(
    session: Session, endpoint_id: str, before: State, after: State, reason: str | None = None
) -> None:
    """
    Pause, resume or enable an endpoint that is as somebody saw it.

    Args:
        session: In a transaction. Its role needs projections_writer too: the journal is told.
        endpoint_id: The endpoint, by its id.
        before: What it was seen as.
        after: What it is to be.
        reason: Why, for those who look at it.

    Raises:
        EndpointChanged: It is something else by now, or is gone.
    """
    try:
        await session.fetchval(_SET_STATE, endpoint_id, after, reason, [before])
    except DatabaseError as error:
        if error.sqlstate not in _CHANGED:
            raise
        raise EndpointChanged(f"endpoint {endpoint_id!r:.80} is not {before} any more") from None
