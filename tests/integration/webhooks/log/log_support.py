"""Rows of a delivery log, and lists of it to their end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from projections.webhooks.log import (
    AttemptsRequest,
    AttemptWithEvent,
    EventsRequest,
    LoggedAttempt,
    LoggedEvent,
    LogPage,
)
from tests.fixtures.writable_log import WritableLog

T = TypeVar("T")

EMPTY = "TRUNCATE projections.webhook_events, projections.webhook_attempts, projections.webhook_log_ids"
"""Takes all rows of a delivery log away."""

BASE = datetime(2000, 1, 1, tzinfo=UTC)
MICRO = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def event(name: str, **given: Any) -> LoggedEvent:
    """An event of that name."""
    values: dict[str, Any] = {
        "tenant": "tenant",
        "topic": "order.created",
        "time": BASE,
        "endpoint_ids": ("endpoint",),
        "metadata": {"trace": name},
        "data": '{"b": 1.0, "a": 100000000000000000000}',
    }
    return LoggedEvent(event_id=name, **values | given)


def attempt(of: LoggedEvent, name: str | None = None, **given: Any) -> LoggedAttempt:
    """An attempt to deliver an event to its first endpoint."""
    values: dict[str, Any] = {
        "endpoint_id": of.endpoint_ids[0],
        "status": "success",
        "time": of.time,
        "code": "200",
        "response": "fine",
        "took": timedelta(milliseconds=12),
    }
    return LoggedAttempt(
        attempt_id=name or f"attempt of {of.event_id}", tenant=of.tenant, event_id=of.event_id, event_time=of.time,
        topic=of.topic, **values | given,
    )  # fmt: skip


def entry(name: str, *, outcome: dict[str, Any] | None = None, **given: Any) -> AttemptWithEvent:
    """An event and an attempt of it."""
    made = event(name, **given)
    return AttemptWithEvent(attempt(made, **outcome or {}), made)


def names(page: LogPage[Any]) -> list[str]:
    """The ids of the events on a page."""
    rows = [row.attempt if isinstance(row, AttemptWithEvent) else row for row in page.data]
    return [row.event_id for row in rows]


class Lister:
    """One of the two lists, with or without a filter; rows are numbered, and with a filter every second one matches."""

    def __init__(self, *, events: bool, endpoint: str | None) -> None:
        self.events = events
        self.endpoint = endpoint

    async def fill(self, log: WritableLog, count: int) -> list[str]:
        """Rows that match, so many, a second apart; their names from old to new."""
        entries = []
        for number in range(count):
            entries.append(entry(f"e{number:03}", endpoint_ids=("wanted",), time=BASE + number * SECOND))
            if self.endpoint is not None:
                entries.append(entry(f"x{number:03}", endpoint_ids=("other",), time=BASE + number * SECOND))
        await log.insert_many(entries)
        return [f"e{number:03}" for number in range(count)]

    async def page(self, log: WritableLog, **asked: Any) -> LogPage[Any]:
        """A page of it."""
        if self.endpoint is not None:
            asked["endpoint_ids"] = [self.endpoint]
        if self.events:
            return await log.list_events(EventsRequest(**asked))
        return await log.list_attempts(AttemptsRequest(**asked))

    async def pages(self, log: WritableLog, **asked: Any) -> list[LogPage[Any]]:
        """All pages, forward."""
        return await forward(lambda **more: self.page(log, **asked | more))


async def forward(page: Callable[..., Awaitable[LogPage[T]]]) -> list[LogPage[T]]:
    """All pages of a list, from the first to the one that has no next."""
    found = [await page()]
    while found[-1].next is not None:
        assert len(found) < 2000, "a list without end"
        found.append(await page(next=found[-1].next))
    return found


def renamed(row: AttemptWithEvent, name: str) -> AttemptWithEvent:
    """The same under another attempt's id."""
    return replace(row, attempt=replace(row.attempt, attempt_id=name))
