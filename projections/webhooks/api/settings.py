"""Settings of the API: every field with its unit, its default, and what it trades."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field

_NONE = timedelta(0)


class ApiSettings(BaseModel):
    """Limits of the HTTP API: sizes and times of a request, and how much a tenant may have and ask for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_body_bytes: int = Field(default=1_048_576, ge=1024)
    """A larger body is refused before it is read to its end: 413. Without data, one has up to 128 KiB."""

    max_url_bytes: int = Field(default=8192, ge=256)
    """Of path and query together; beyond it: 414."""

    max_header_bytes: int = Field(default=16_384, ge=1024)
    """Of all names and values together; beyond it: 431."""

    body_timeout: timedelta = Field(default=timedelta(seconds=10), gt=_NONE)
    """A body that has not arrived within it is given up: 408."""

    statement_timeout: timedelta = Field(default=timedelta(seconds=10), ge=timedelta(milliseconds=1))
    """The database gives up a statement that takes longer: 503. Meanwhile it holds a connection of
    the pool; lists with many filters may need longer on a large log."""

    bulk_time: timedelta = Field(default=timedelta(seconds=5), gt=_NONE)
    """A request to try many deliveries again begins no new step after it, and says that there are more."""

    endpoints_per_tenant: int = Field(default=100, ge=1)
    """How many a tenant can make by itself; administrators make more. Beyond it: 422, as for what follows."""

    schedules_per_tenant: int = Field(default=100, ge=1)
    """How many schedules a tenant can make by itself; administrators make more."""

    keys_per_tenant: int = Field(default=1000, ge=1)
    """How many requests with an ``Idempotency-Key`` a tenant can make in 24 hours, for which their answers are kept;
    messages are not counted."""

    tenant_rate: float | None = Field(default=20, gt=0)
    """Requests of a tenant in a second, to each process; each 16 KiB of a body count as one more. Beyond it: 429. None:
    any number. What a tenant's requests make others wait is bounded by it: a message is for up to all its endpoints."""

    challenge_pause: timedelta = Field(default=timedelta(seconds=10), gt=_NONE)
    """Between challenges that a tenant can have sent to URLs of its endpoints, by each process; sooner: 429. They go to
    whatever URL a tenant names: its owner, who may not want them, gets no more than these."""

    challenge_timeout: timedelta = Field(default=timedelta(seconds=5), gt=_NONE)
    """How long the answer to a challenge is waited for, where the endpoint's own time-out is longer."""

    origins: frozenset[str] = frozenset()
    """Where pages are, alongside the host that they ask, that may change something without a bearer token, such as
    ``https://app.example.com``: for an ``auth`` of your own that goes by cookies. Others are refused: 403."""
