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
    """
    An event that was for at least one endpoint.

    Args:
        event_id: Its id, which is the only one whatever the time and the tenant.
        tenant: Whose it is.
        topic: What it is about.
        time: When it was; aware, to the microsecond.
        endpoint_ids: The endpoints that it was for.
        eligible_for_retry: Whether it is tried again when an attempt failed.
        metadata: What was said about it beside its data.
        data: Its payload: JSON as it was written.
    """

    event_id: str
    tenant: str
    topic: str
    time: datetime
    endpoint_ids: tuple[str, ...] = ()
    eligible_for_retry: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    data: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAttempt:
    """
    One try to deliver an event to an endpoint.

    Args:
        attempt_id: Its id, which is the only one whatever the time and the tenant.
        tenant: Whose the event and the endpoint are.
        event_id: The event.
        event_time: When that was.
        topic: What that is about.
        endpoint_id: The endpoint.
        endpoint_type: What kind of endpoint that is.
        attempt_number: Which try of this delivery it is, from 1 on.
        manual: Whether somebody asked for it.
        status: How it ended.
        time: When it was; aware, to the microsecond.
        code: The HTTP status, or a word for why there was none.
        response: What the endpoint answered.
        took: How long it took.
    """

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
    code: str | None = None
    response: str | None = None
    took: timedelta | None = None


@dataclass(frozen=True, slots=True)
class AttemptWithEvent:
    """
    An attempt, and its event.

    Args:
        attempt: The attempt.
        event: Its event; None where the log does not have it any more.
    """

    attempt: LoggedAttempt
    event: LoggedEvent | None


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
