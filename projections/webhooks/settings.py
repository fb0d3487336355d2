"""Settings of who delivers: every field with its unit, its default, and what it trades."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field

from journal import PollPacing
from projections.failing import Backoff

_NONE = timedelta(0)


class DeliverySettings(BaseModel):
    """How a process delivers."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    max_in_flight: int = Field(default=200, ge=1, le=10_000)
    """Requests on their way at a time: each holds a connection and its event in memory."""

    tenant_share: float = Field(default=0.5, gt=0, le=1)
    """What one tenant may have of the places, and of :attr:`max_bytes`, that the others leave; of lookups and of the
    places at a host too. With 0.5 the first has half of them at most, and two that take all they can get have a
    third each, so that endpoints which hang hold up their own tenant alone. While no other tenant has an active
    endpoint there is none to hold up: it may have all, and one that comes then waits until some are given back."""

    verified_only: bool = False
    """Send nothing to an endpoint whose URL has not shown that it wants webhooks (:func:`verify_endpoint`); the same at
    all processes."""

    max_bytes: int = Field(default=64 * 2**20, ge=1)
    """What requests on their way may carry together: more is claimed when some have ended. The last may be too much, by
    up to 16 MiB. Halved when the process has no memory left."""

    claim_size: int = Field(default=100, ge=1, le=1000)
    """Deliveries that are taken in one transaction."""

    margin: timedelta = Field(default=timedelta(seconds=15), gt=_NONE)
    """How long after an endpoint's deadline an attempt counts as lost whose outcome is unknown."""

    pacing: PollPacing = PollPacing(timedelta(milliseconds=10), timedelta(milliseconds=500))
    """How often the database is asked for deliveries that are due: latency against queries."""

    listen: bool = True
    """Be woken by notifications too. Through a pooler there are none, and polling does it."""

    reap_every: timedelta = Field(default=timedelta(seconds=5), gt=_NONE)
    """How often attempts of processes that died are looked for."""

    grace: timedelta = Field(default=timedelta(seconds=20), gt=_NONE)
    """How long a stop waits for requests on their way; those that take longer are given back, and sent again."""

    patience: timedelta = Field(default=timedelta(seconds=10), gt=_NONE)
    """How long the database may take to answer. It takes milliseconds: a connection that says nothing for this time is
    dead, and another one is opened."""

    restart: Backoff = Backoff(timedelta(milliseconds=200), timedelta(seconds=10))
    """Pauses before a lost database is asked again."""
