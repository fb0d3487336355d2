"""
The state of all endpoints of webhooks together.

Computed by the database from what it has stored. :func:`projections.webhooks.endpoint_stats` tells of each.
"""

from __future__ import annotations

from typing import NamedTuple

from journal import Session

_TOTALS = "SELECT * FROM projections.webhook_totals_v1()"


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


async def webhook_totals(session: Session) -> WebhookTotals:
    """The state of all endpoints together. Costs about as much as counting what is not delivered."""
    (row,) = await session.fetch(_TOTALS)
    return WebhookTotals(*row.values())
