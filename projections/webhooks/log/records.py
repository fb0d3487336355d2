"""What the delivery log has: events that were for endpoints, and the attempts to deliver them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, Literal, TypeAlias, TypeVar

__all__ = ["AttemptWithEvent", "LogPage", "LoggedAttempt", "LoggedEvent", "Status"]

Status: TypeAlias = Literal["success", "failed"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEvent:
    """An event that was for at least one endpoint."""

    event_id: str
    tenant: str
    topic: str
    time: datetime
    """Aware, to the microsecond."""
    endpoint_ids: tuple[str, ...] = ()
    """The endpoints that it was for."""
    eligible_for_retry: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    data: str = "{}"
    """JSON as it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAttempt:
    """One try to deliver an event to an endpoint."""

    attempt_id: str
    tenant: str
    event_id: str
    event_time: datetime
    topic: str
    endpoint_id: str
    status: Status
    time: datetime
    endpoint_type: str = "webhook"
    attempt_number: int = 1
    manual: bool = False
    """Somebody asked for it."""
    code: str | None = None
    """The HTTP status, or a word for why there was none."""
    response: str | None = None
    """What the endpoint answered."""
    took: timedelta | None = None


@dataclass(frozen=True, slots=True)
class AttemptWithEvent:
    """An attempt, and its event."""

    attempt: LoggedAttempt
    event: LoggedEvent | None
    """None where the log does not have it any more."""


@dataclass(frozen=True, slots=True)
class LogPage(Generic[T]):
    """
    A page of a list.

    Args:
        data: The rows, in the order that was asked for; few or none may be followed by more pages.
        next: The cursor of the page after it; None where there is none.
        prev: The cursor of the page before it; None where there is none.
    """

    data: tuple[T, ...]
    next: str | None = None
    prev: str | None = None
