"""The state of endpoints, of each and of all: what waits, what is dead, what attempts came to; from the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

from journal import Session
from projections.webhooks.tenant_rows import DESCRIBED, HIDDEN

# In the order of ids where it is a page, else by tenants: in both as PostgreSQL keeps them, whatever its locale.
_STATS = """
SELECT s.*, clock_timestamp() AS at FROM projections.endpoint_stats_v1($1, $2, $3, $4) AS s
WHERE ($5::text IS NULL OR s.endpoint_id = $5) AND ($6::text IS NULL OR s.endpoint_id COLLATE "C" > $6)
ORDER BY CASE WHEN $6::text IS NULL THEN s.tenant END COLLATE "C", s.endpoint_id COLLATE "C" LIMIT $7
"""
_TOTALS = "SELECT * FROM projections._webhook_totals_v1()"
_NEWEST_DEAD = """
SELECT d.delivery_id, d.endpoint_id, d.event_id, d.topic, d.attempts, d.last_code, d.finished_at
FROM unnest($1::text[]) AS e (endpoint_id)
CROSS JOIN LATERAL (
    SELECT * FROM projections.webhook_deliveries AS own
    WHERE own.endpoint_id = e.endpoint_id AND own.state = 'dead' ORDER BY own.delivery_id DESC LIMIT $2
) AS d
ORDER BY d.delivery_id DESC LIMIT $3
"""


@dataclass(frozen=True, slots=True)
class EndpointStats:
    """How well one endpoint receives. Times in seconds."""

    __pydantic_config__ = DESCRIBED

    endpoint_id: str
    tenant: Annotated[str, HIDDEN]
    url: Annotated[str, HIDDEN]
    state: Literal["active", "paused", "disabled"]
    reason: Annotated[str | None, HIDDEN]
    """Why it is not active."""
    pending: int
    """To be sent, now or at the next attempt."""
    waiting: int
    """Behind others, in an order."""
    in_flight: int
    dead: int
    failures: int
    """Attempts that have failed since the last success."""
    failing_since: datetime | None
    blocked_until: datetime | None
    """It is sent nothing before: its circuit is open, or it has asked for a pause."""
    lag: float
    """Age of the oldest delivery that has not arrived and is not dead."""
    succeeded: int
    """Of the attempts that were looked at."""
    failed: int
    median: float | None
    """Of the attempts' durations."""
    slowest_percent: float | None
    """99 of 100 attempts took less."""
    verified: bool
    """Whether its URL has shown that it wants webhooks."""
    expired: int
    """Deliveries that have expired since it was made."""
    at: Annotated[datetime, HIDDEN]
    """When this was so, by the database's clock."""

    @property
    def host(self) -> str:
        """Of its URL, with the port where there is one, without what may be a secret: the rest of it."""
        try:
            return urlsplit(self.url).netloc.rpartition("@")[2]
        except ValueError:
            return "?"

    @property
    def attempts(self) -> int:
        """How many were looked at."""
        return self.succeeded + self.failed

    @property
    def success(self) -> float | None:
        """The share of attempts that succeeded, 0 to 1; None without any."""
        return self.succeeded / self.attempts if self.attempts else None

    @property
    def held(self) -> bool:
        """Whether it was sent nothing then."""
        return self.blocked_until is not None and self.blocked_until > self.at


async def endpoint_stats(
    session: Session,
    tenant: str | None = None,
    *,
    window: timedelta = timedelta(hours=1),
    sample: int | None = None,
    most: int | None = None,
    endpoint_id: str | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> list[EndpointStats]:
    """
    The state of endpoints, by tenant and id.

    Of each, the attempts of the ``window`` before now count: the newest ``sample`` of them. There are ``most`` at most,
    those with troubles rather than others; or a page of ``limit``, in the order of ids, of those after one: the first
    page is after ``""``. None is all.
    """
    rows = await session.fetch(_STATS, tenant, window, sample, most, endpoint_id, after, limit)
    return [EndpointStats(*row.values()) for row in rows]


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
    expired: int
    """Deliveries that have expired, of the endpoints that there are."""
    expired_certificates: int
    """Endpoints that are not disabled and whose client certificate has expired."""
    certificate_expires_in: float | None
    """How long until the first of their other client certificates expires; None: there is none."""

    @property
    def endpoints(self) -> int:
        """How many there are."""
        return self.active + self.paused + self.disabled


async def webhook_totals(session: Session) -> WebhookTotals:
    """The state of all endpoints together. Costs about as much as counting what is not delivered."""
    (row,) = await session.fetch(_TOTALS)
    return WebhookTotals(*row.values())


class DeadDelivery(NamedTuple):
    """A delivery whose attempts are used up."""

    delivery_id: int
    endpoint_id: str
    event_id: str
    topic: str
    attempts: int
    last_code: str | None
    finished_at: datetime


async def newest_dead(
    session: Session, endpoint_ids: Sequence[str], each: int, limit: int
) -> Sequence[DeadDelivery]:
    """Dead letters of endpoints, the newest first: ``each`` of one of them at most, and ``limit`` in all."""
    rows = await session.fetch(_NEWEST_DEAD, list(endpoint_ids), each, limit)
    return [DeadDelivery(*row.values()) for row in rows]
