"""What a delivery log does, wherever it keeps its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from projections.webhooks.errors import InvalidQuery
from projections.webhooks.log.metrics import Metrics, MetricsRequest
from projections.webhooks.log.records import AttemptWithEvent, LoggedAttempt, LoggedEvent, LogPage
from projections.webhooks.log.requests import AttemptsRequest, EventsRequest, checked_text
from projections.webhooks.times import check_time

__all__ = ["ATTEMPTS", "EVENTS", "LONGEST_ID", "DeliveryLog", "check_entries"]

EVENTS = "evt"
ATTEMPTS = "att"
"""What cursors call the two lists."""

LONGEST_ID = 255
"""Bytes in UTF-8."""


class DeliveryLog(Protocol):
    """
    Events that were for endpoints of webhooks, and the attempts to deliver them.

    Where a method takes tenants, none means all of them: that is for administrators. What is another tenant's is as
    if it were not there.
    """

    async def list_events(self, request: EventsRequest) -> LogPage[LoggedEvent]:
        """
        A page of events, by time and id.

        A page may be short, or empty, and have more behind it: only one without ``next`` is the last. A store looks at
        so many rows for a page and no more, however few of them the filters let pass.

        Raises:
            InvalidPageCursor: The cursor is malformed, of another version, order, filter or tenant, or there are two.
            InvalidQuery: A filter can not be.
        """
        ...

    async def list_attempts(self, request: AttemptsRequest) -> LogPage[AttemptWithEvent]:
        """
        A page of attempts, by time and id; short as one of events may be.

        An event and an endpoint have one tenant.

        Raises:
            InvalidPageCursor: As for events.
            InvalidQuery: A filter can not be.
        """
        ...

    async def retrieve_event(self, event_id: str, tenant: str | None = None) -> LoggedEvent | None:
        """One event; None where there is none of this id, or where it is another tenant's."""
        ...

    async def retrieve_attempt(self, attempt_id: str, tenant: str | None = None) -> AttemptWithEvent | None:
        """One attempt; None where there is none of this id, or where it is another tenant's."""
        ...

    async def insert_many(self, entries: Sequence[AttemptWithEvent]) -> None:
        """
        Write attempts and their events, all or nothing.

        Of an event the first that comes with its id stays. Of an attempt that the log has, the outcome is written anew:
        status, code, response and the time that it took; of one that comes twice here, the last counts.

        Raises:
            InvalidQuery: A value can not be stored.
        """
        ...

    async def event_metrics(self, request: MetricsRequest) -> Metrics:
        """
        How many events there were.

        Raises:
            InvalidQuery: The request can not be, would have more than 100,000 rows, or takes too long.
        """
        ...

    async def attempt_metrics(self, request: MetricsRequest) -> Metrics:
        """
        How many attempts there were, and how they ended.

        Raises:
            InvalidQuery: The request can not be, would have more than 100,000 rows, or takes too long.
        """
        ...


def check_entries(entries: Sequence[AttemptWithEvent]) -> None:
    """
    Check that entries can be stored.

    Raises:
        InvalidQuery: One can not.
    """
    for entry in entries:
        _check_attempt(entry.attempt)
        if entry.event is not None:
            _check_event(entry.event)


def _check_attempt(attempt: LoggedAttempt) -> None:
    _check_id("attempt_id", attempt.attempt_id)
    _check_id("event_id", attempt.event_id)
    for name in ("tenant", "topic", "endpoint_id", "endpoint_type"):
        checked_text(name, getattr(attempt, name))
    for name in ("code", "response"):
        if (value := getattr(attempt, name)) is not None:
            checked_text(name, value)
    if attempt.status not in {"success", "failed"}:
        raise InvalidQuery(f"status is success or failed, not {attempt.status!r}")
    if not 1 <= attempt.attempt_number < 2**31:
        raise InvalidQuery(f"attempt_number is 1 or more, not {attempt.attempt_number}")
    check_time("time", attempt.time)
    check_time("event_time", attempt.event_time)


def _check_event(event: LoggedEvent) -> None:
    _check_id("event_id", event.event_id)
    for name in ("tenant", "topic", "data"):
        checked_text(name, getattr(event, name))
    for endpoint_id in event.endpoint_ids:
        checked_text("endpoint_ids", endpoint_id)
    # A log that came from elsewhere may have none.
    for key, value in (event.metadata or {}).items():
        checked_text("metadata", key)
        checked_text("metadata", value)
    check_time("time", event.time)


def _check_id(name: str, value: str) -> None:
    if not 1 <= len(checked_text(name, value).encode()) <= LONGEST_ID:
        raise InvalidQuery(f"{name} has 1 to {LONGEST_ID} bytes, not {len(value.encode())}")
