"""A delivery log in the memory of one process: for tests, and for trying things out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from projections.webhooks.log.delivery_log import ATTEMPTS, EVENTS, check_entries
from projections.webhooks.log.metrics import (
    BucketCounts,
    Metrics,
    MetricsQuery,
    MetricsRequest,
    attempt_query,
    event_query,
    metrics_of,
)
from projections.webhooks.log.paging import RowStep, Walk, page_of, walk_of
from projections.webhooks.log.records import AttemptWithEvent, LoggedAttempt, LoggedEvent, LogPage
from projections.webhooks.log.requests import AttemptsRequest, EventsRequest, ListRequest

__all__ = ["MemoryLog"]

Row = TypeVar("Row", LoggedEvent, LoggedAttempt)


class MemoryLog:
    """A :class:`DeliveryLog` in memory. It forgets nothing, and reads all that it has for each request."""

    def __init__(self) -> None:
        self._events: dict[str, LoggedEvent] = {}
        self._attempts: dict[str, LoggedAttempt] = {}

    async def list_events(self, request: EventsRequest) -> LogPage[LoggedEvent]:
        """As :meth:`DeliveryLog.list_events` says."""
        walk = walk_of(request, EVENTS)
        chosen = _walked(walk, request, self._events.values(), _place_of_event, _event_filters(request))
        return page_of(walk, [RowStep(_copy(event)) for event in chosen], _place_of_event)

    async def list_attempts(self, request: AttemptsRequest) -> LogPage[AttemptWithEvent]:
        """As :meth:`DeliveryLog.list_attempts` says."""
        walk = walk_of(request, ATTEMPTS)
        chosen = _walked(walk, request, self._attempts.values(), _place_of_attempt, _attempt_filters(request))
        return page_of(
            walk,
            [RowStep(self._with_event(attempt)) for attempt in chosen],
            lambda row: _place_of_attempt(row.attempt),
        )

    async def retrieve_event(self, event_id: str, tenant: str | None = None) -> LoggedEvent | None:
        """As :meth:`DeliveryLog.retrieve_event` says."""
        found = self._events.get(event_id)
        return _copy(found) if found is not None and tenant in {None, "", found.tenant} else None

    async def retrieve_attempt(self, attempt_id: str, tenant: str | None = None) -> AttemptWithEvent | None:
        """As :meth:`DeliveryLog.retrieve_attempt` says."""
        found = self._attempts.get(attempt_id)
        return self._with_event(found) if found is not None and tenant in {None, "", found.tenant} else None

    async def insert_many(self, entries: Sequence[AttemptWithEvent]) -> None:
        """As :meth:`DeliveryLog.insert_many` says."""
        check_entries(entries)
        for event in (entry.event for entry in entries if entry.event is not None):
            self._events.setdefault(event.event_id, _copy(replace(event, time=event.time.astimezone(UTC))))
        for attempt in {entry.attempt.attempt_id: entry.attempt for entry in entries}.values():
            self._log(attempt)

    async def event_metrics(self, request: MetricsRequest) -> Metrics:
        """As :meth:`DeliveryLog.event_metrics` says."""
        query = event_query(request)
        found: Counter[tuple[datetime | None, tuple[str, ...]]] = Counter()
        for event in self._events.values():
            if query.start <= event.time < query.end and _wanted(query, event):
                found.update(
                    {(_bucket(query, event.time), values) for values in _event_dimensions(query, event)}
                )
        return metrics_of(query, {key: BucketCounts(total) for key, total in found.items()})

    async def attempt_metrics(self, request: MetricsRequest) -> Metrics:
        """As :meth:`DeliveryLog.attempt_metrics` says."""
        query = attempt_query(request)
        found: dict[tuple[datetime | None, tuple[str, ...]], list[LoggedAttempt]] = defaultdict(list)
        for attempt in self._attempts.values():
            if query.start <= attempt.time < query.end and _wanted(query, attempt):
                values = tuple(_value(attempt, name) for name in query.dimensions)
                found[_bucket(query, attempt.time), values].append(attempt)
        return metrics_of(query, {key: _counts(attempts) for key, attempts in found.items()})

    def _log(self, given: LoggedAttempt) -> None:
        known = self._attempts.get(given.attempt_id)
        if known is None:
            known = replace(
                given, time=given.time.astimezone(UTC), event_time=given.event_time.astimezone(UTC)
            )
        elif known.tenant == given.tenant:
            known = replace(
                known, status=given.status, code=given.code, response=given.response, took=given.took
            )
        self._attempts[given.attempt_id] = known

    def _with_event(self, attempt: LoggedAttempt) -> AttemptWithEvent:
        event = self._events.get(attempt.event_id)
        if event is None or event.tenant != attempt.tenant:
            return AttemptWithEvent(attempt, None)
        return AttemptWithEvent(attempt, _copy(event))


def _copy(event: LoggedEvent) -> LoggedEvent:
    """What a caller does to its metadata is not done to the log's."""
    return replace(event, metadata=dict(event.metadata or {}), endpoint_ids=tuple(event.endpoint_ids))


def _place_of_event(event: LoggedEvent) -> tuple[datetime, str]:
    return event.time, event.event_id


def _place_of_attempt(attempt: LoggedAttempt) -> tuple[datetime, str]:
    return attempt.time, attempt.attempt_id


def _walked(
    walk: Walk,
    request: ListRequest,
    rows: Iterable[Row],
    place: Callable[[Row], tuple[datetime, str]],
    wanted: Callable[[Row], bool],
) -> list[Row]:
    """What a store reads for a page: in the order of reading, and one row more than the page has."""
    gte, lte, gt, lt = request.times()
    chosen = [
        row
        for row in rows
        if (gte is None or row.time >= gte)
        and (lte is None or row.time <= lte)
        and (gt is None or row.time > gt)
        and (lt is None or row.time < lt)
        and wanted(row)
        and _is_ahead(walk, place(row))
    ]
    chosen.sort(key=place, reverse=not walk.ascending)
    return chosen[: walk.rows + 1]


def _is_ahead(walk: Walk, place: tuple[datetime, str]) -> bool:
    if walk.start is None:
        return True
    start = walk.start.time, walk.start.id
    if place == start:
        return walk.start.inclusive
    return place > start if walk.ascending else place < start


def _event_filters(request: EventsRequest) -> Callable[[LoggedEvent], bool]:
    tenants, event_ids, topics = (request.values(name) for name in ("tenants", "event_ids", "topics"))
    endpoint_ids = request.values("endpoint_ids")
    return lambda event: (
        (tenants is None or event.tenant in tenants)
        and (event_ids is None or event.event_id in event_ids)
        and (topics is None or event.topic in topics)
        and (endpoint_ids is None or not set(endpoint_ids).isdisjoint(event.endpoint_ids))
    )


def _attempt_filters(request: AttemptsRequest) -> Callable[[LoggedAttempt], bool]:
    tenants, event_ids, topics = (request.values(name) for name in ("tenants", "event_ids", "topics"))
    endpoint_ids, endpoint_types = (request.values(name) for name in ("endpoint_ids", "endpoint_types"))
    return lambda attempt: (
        (tenants is None or attempt.tenant in tenants)
        and (event_ids is None or attempt.event_id in event_ids)
        and (topics is None or attempt.topic in topics)
        and (endpoint_ids is None or attempt.endpoint_id in endpoint_ids)
        and (endpoint_types is None or attempt.endpoint_type in endpoint_types)
        and (not request.status or attempt.status == request.status)
    )


def _wanted(query: MetricsQuery, row: LoggedEvent | LoggedAttempt) -> bool:
    if query.tenants is not None and row.tenant not in query.tenants:
        return False
    return all(not set(values).isdisjoint(_values(row, name)) for name, values in query.filters.items())


def _bucket(query: MetricsQuery, time: datetime) -> datetime | None:
    return None if query.granularity is None else query.granularity.start(time)


def _event_dimensions(query: MetricsQuery, event: LoggedEvent) -> Iterator[tuple[str, ...]]:
    """An event that was for several endpoints counts for each of those that are wanted."""
    if "endpoint_id" not in query.dimensions:
        yield tuple(str(getattr(event, name)) for name in query.dimensions)
        return
    wanted = query.filters.get("endpoint_id")
    for endpoint_id in dict.fromkeys(event.endpoint_ids):
        if wanted is None or endpoint_id in wanted:
            yield tuple(
                endpoint_id if name == "endpoint_id" else str(getattr(event, name))
                for name in query.dimensions
            )


def _values(row: LoggedEvent | LoggedAttempt, name: str) -> Sequence[str]:
    if isinstance(row, LoggedEvent) and name == "endpoint_id":
        return row.endpoint_ids
    return [_value(row, name)]


def _value(row: LoggedEvent | LoggedAttempt, name: str) -> str:
    value = getattr(row, name)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _counts(attempts: Sequence[LoggedAttempt]) -> BucketCounts:
    return BucketCounts(
        total=len(attempts),
        successful=sum(each.status == "success" for each in attempts),
        first=sum(each.attempt_number == 1 and not each.manual for each in attempts),
        retries=sum(each.attempt_number > 1 for each in attempts),
        manual=sum(each.manual for each in attempts),
        numbers=sum(each.attempt_number for each in attempts),
    )
