"""Settings of the API: every field with its unit, its default, and what it trades."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ApiSettings"]

_NONE = timedelta(0)


class ApiSettings(BaseModel):
    """What a request may cost."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_body_bytes: int = Field(default=1_048_576, ge=1024)
    """A larger body is refused before it is read to its end: 413."""

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
