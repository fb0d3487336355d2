"""Operations on the delivery log: events that were for endpoints, attempts to deliver them, and metrics of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, PlainSerializer

from journal import NotFound, find_event
from projections.webhooks.api.endpoint_operations import EndpointView
from projections.webhooks.api.json_text import kept
from projections.webhooks.api.operations import Call, ListPage, NoBody, Operations, Query, Time, View, Words
from projections.webhooks.api.problems import Problem
from projections.webhooks.log import (
    AttemptsRequest,
    AttemptWithEvent,
    EventsRequest,
    LoggedEvent,
    Metrics,
    MetricsRequest,
)
from projections.webhooks.messages import MESSAGE, message_of
from projections.webhooks.tenant_rows import Json

log_operations = Operations("log")
metrics_operations = Operations("metrics")
_OF_ENDPOINT = "/v1/endpoints/{endpoint_id}/attempts"

Seconds = Annotated[timedelta, PlainSerializer(lambda value: value.total_seconds(), return_type=float)]
Included = Annotated[
    tuple[Literal["event", "event.data", "response_data", "endpoint"], ...], Field(max_length=8)
]


class EventView(View):
    """An event that was for at least one endpoint."""

    event_id: str
    tenant: str
    topic: str
    time: datetime
    endpoint_ids: tuple[str, ...]
    """The endpoints that it was for."""
    eligible_for_retry: bool
    metadata: dict[str, str]
    data: Json = None
    """Where it was asked for: byte by byte as it was sent; left out once it was erased."""
    erased_at: datetime | None = None
    """When its data were erased."""


class AttemptView(View):
    """One try to deliver an event to an endpoint."""

    attempt_id: str
    tenant: str
    event_id: str
    event_time: datetime
    topic: str
    endpoint_id: str
    endpoint_type: str
    attempt_number: int
    manual: bool
    """Somebody asked for it."""
    status: Literal["success", "failed"]
    time: datetime
    code: str | None
    """The HTTP status, or a word for why there was none."""
    took: Seconds | None
    """Seconds."""
    response_data: str | None = None
    """Where it was asked for: what the endpoint answered."""
    event: EventView | None = None
    """Where it was asked for; null once it is no longer kept."""
    endpoint: EndpointView | None = None
    """Where it was asked for, and the endpoint still exists."""


class EventPage(ListPage[EventView]):
    """A page of events."""

    prev: str | None


class AttemptPage(ListPage[AttemptView]):
    """A page of attempts."""

    prev: str | None


class LogQuery(Query):
    """A page of the log, by time."""

    endpoint_id: Words = ()
    topics: Words = ()
    since: Time | None = None
    """From then on."""
    until: Time | None = None
    """Before then."""
    order_by: Literal["time"] = "time"
    dir: Literal["asc", "desc"] = "desc"
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    next: str | None = None
    """What a page said; all else but the limit must be as it was for that page."""
    prev: str | None = None

    def request(self, tenants: tuple[str, ...]) -> dict[str, Any]:
        """What both lists of the log are asked for."""
        return {
            "tenants": tenants, "endpoint_ids": self.endpoint_id, "topics": self.topics, "gte": self.since,
            "lt": self.until, "order": self.dir, "limit": self.limit,
            "next": self.next, "prev": self.prev,
        }  # fmt: skip


class EventsQuery(LogQuery):
    """A page of events, by when they were."""

    event_id: Words = ()
    include: Annotated[tuple[Literal["data"], ...], Field(max_length=2)] = ()


class AttemptsOfEndpointQuery(LogQuery):
    """A page of attempts, by when they were made."""

    event_id: Words = ()
    status: Literal["success", "failed"] | None = None
    include: Included = ()


class AttemptsQuery(AttemptsOfEndpointQuery):
    """A page of attempts, by when they were made."""

    endpoint_type: Words = ()


class AttemptQuery(Query):
    """What to show of an attempt."""

    include: Included = ()


@log_operations.add("GET", "/v1/events", problems=(400,))
async def list_events(call: Call[EventsQuery, NoBody]) -> EventPage:
    """List events that were for endpoints."""
    query = call.query
    request = EventsRequest(
        event_ids=query.event_id, data="data" in query.include, **query.request(call.tenants)
    )
    page = await call.services.log.list_events(request)
    data = tuple(_event_view(event, data="data" in query.include) for event in page.data)
    return EventPage(data=data, next=page.next, prev=page.prev)


@log_operations.add("GET", "/v1/events/{event_id}", problems=(404,))
async def get_event(call: Call[Query, NoBody]) -> EventView:
    """
    Show an event and its data.

    A message is there as soon as it was sent. While it has no endpoint_ids, either no endpoint wanted it, or it has not
    been handed to them yet, or the log has forgotten it.
    """
    event = await call.services.log.retrieve_event(call.place["event_id"], call.tenant) or await _sent(call)
    if event is None:
        raise Problem(404, "unknown_event", "there is no such event in the log")
    return _event_view(event, data=True)


async def _sent(call: Call[Query, NoBody]) -> LoggedEvent | None:
    """A message that the log has not, as it was sent."""
    try:
        event_id = UUID(call.place["event_id"])
    except ValueError:
        return None
    async with call.services.database.session() as session:
        envelope = await find_event(session, event_id)
    message = message_of(envelope) if envelope is not None and envelope.entity_type == MESSAGE else None
    if envelope is None or message is None or call.tenant not in {None, message.tenant}:
        return None
    return LoggedEvent(
        event_id=str(event_id), tenant=message.tenant, topic=message.topic, time=envelope.db_timestamp,
        eligible_for_retry=message.eligible_for_retry, metadata=message.metadata, data=envelope.payload_json,
    )  # fmt: skip


@log_operations.add("GET", "/v1/attempts", problems=(400,))
async def list_attempts(call: Call[AttemptsQuery, NoBody]) -> AttemptPage:
    """List attempts to deliver events."""
    return await _page(call, call.query.request(call.tenants) | {"endpoint_types": call.query.endpoint_type})


@log_operations.add("GET", "/v1/attempts/{attempt_id}", problems=(404,))
async def get_attempt(call: Call[AttemptQuery, NoBody]) -> AttemptView:
    """Show an attempt."""
    return await _one(call)


@log_operations.add("GET", _OF_ENDPOINT, problems=(400, 404))
async def list_endpoint_attempts(call: Call[AttemptsOfEndpointQuery, NoBody]) -> AttemptPage:
    """List attempts at an endpoint."""
    endpoint = await call.services.endpoints.get(call.tenant, call.place["endpoint_id"])
    return await _page(call, call.query.request(call.tenants) | {"endpoint_ids": [endpoint.endpoint_id]})


@log_operations.add("GET", f"{_OF_ENDPOINT}/{{attempt_id}}", problems=(404,))
async def get_endpoint_attempt(call: Call[AttemptQuery, NoBody]) -> AttemptView:
    """Show an attempt at an endpoint."""
    return await _one(call)


async def _page(call: Call[Any, NoBody], request: Mapping[str, Any]) -> AttemptPage:
    query = call.query
    page = await call.services.log.list_attempts(
        AttemptsRequest(
            event_ids=query.event_id,
            status=query.status,
            response="response_data" in query.include,
            event_data="event.data" in query.include,
            **request,
        )
    )
    endpoints = await _endpoints(call, {each.attempt.endpoint_id for each in page.data})
    data = tuple(_attempt_view(each, query.include, endpoints) for each in page.data)
    return AttemptPage(data=data, next=page.next, prev=page.prev)


async def _one(call: Call[AttemptQuery, NoBody]) -> AttemptView:
    """An attempt at another endpoint than the path's is not there."""
    found = await call.services.log.retrieve_attempt(call.place["attempt_id"], call.tenant)
    if found is None or found.attempt.endpoint_id != call.place.get("endpoint_id", found.attempt.endpoint_id):
        raise Problem(404, "unknown_attempt", "there is no such attempt in the log")
    endpoints = await _endpoints(call, {found.attempt.endpoint_id})
    return _attempt_view(found, call.query.include, endpoints)


async def _endpoints(call: Call[Any, NoBody], endpoint_ids: set[str]) -> dict[str, EndpointView]:
    """Those that still exist."""
    found: dict[str, EndpointView] = {}
    if "endpoint" in call.query.include:
        for endpoint_id in endpoint_ids:
            try:
                endpoint = await call.services.endpoints.get(call.caller.tenant, endpoint_id)
            except NotFound:
                continue
            found[endpoint_id] = EndpointView.of(endpoint)
    return found


def _event_view(event: LoggedEvent, *, data: bool) -> EventView:
    facts = asdict(event) | {"metadata": {str(key): str(value) for key, value in event.metadata.items()}}
    del facts["data"]
    return EventView(**facts, **({"data": kept(event.data)} if data and event.data is not None else {}))


def _attempt_view(
    each: AttemptWithEvent, include: tuple[str, ...], endpoints: Mapping[str, EndpointView]
) -> AttemptView:
    attempt, event = each.attempt, each.event
    parts: dict[str, Any] = {}
    if "response_data" in include:
        parts["response_data"] = attempt.response
    if "event" in include or "event.data" in include:
        parts["event"] = None if event is None else _event_view(event, data="event.data" in include)
    if attempt.endpoint_id in endpoints:
        parts["endpoint"] = endpoints[attempt.endpoint_id]
    return AttemptView(**asdict(attempt), **parts)


class EventMetricsQuery(Query):
    """What to measure, of which events."""

    since: Time
    """From this time on."""
    until: Time
    """Up to this time, without it."""
    granularity: Annotated[str, Field(max_length=8)] | None = None
    """By spans of time: 30s, 5m, 1h, 1d, 1w, 1M and the like; without it, all as one."""
    measures: Words = ("count",)
    dimensions: Words = ()
    """By which; tenant is for administrators."""
    topics: Words = ()
    endpoint_id: Words = ()


class AttemptMetricsQuery(EventMetricsQuery):
    """What to measure, of which attempts."""

    endpoint_type: Words = ()
    status: Words = ()
    code: Words = ()
    manual: Annotated[tuple[bool, ...], Field(max_length=2)] = ()
    attempt_number: Annotated[tuple[Annotated[int, Field(ge=1, lt=2**31)], ...], Field(max_length=100)] = ()


@metrics_operations.add("GET", "/v1/metrics/events")
async def measure_events(call: Call[EventMetricsQuery, NoBody]) -> Metrics:
    """Count events: count, rate (a second); by tenant, topic, endpoint_id."""
    return await call.services.log.event_metrics(_metrics_request(call))


@metrics_operations.add("GET", "/v1/metrics/attempts")
async def measure_attempts(call: Call[AttemptMetricsQuery, NoBody]) -> Metrics:
    """
    Count attempts, and how they ended.

    Measures are count, successful_count, failed_count, error_rate, first_attempt_count, retry_count,
    manual_retry_count, avg_attempt_number, rate, successful_rate and failed_rate; by tenant, topic, endpoint_id,
    endpoint_type, status, code, manual, attempt_number.
    """
    return await call.services.log.attempt_metrics(_metrics_request(call))


def _metrics_request(call: Call[Any, NoBody]) -> MetricsRequest:
    query: EventMetricsQuery = call.query
    if call.caller.tenant is not None and "tenant" in query.dimensions:
        raise Problem(422, "invalid_query", "dimensions: tenant is for administrators")
    return MetricsRequest(
        start=query.since,
        end=query.until,
        measures=query.measures,
        dimensions=query.dimensions,
        granularity=query.granularity,
        tenants=call.tenants,
        filters={
            name: found for name, field in _METRICS_FILTERS.items() if (found := getattr(query, field, ()))
        },
    )


_METRICS_FILTERS = {"topic": "topics"} | {
    name: name for name in ("endpoint_id", "endpoint_type", "status", "code", "manual", "attempt_number")
}
"""Fields of the log, and what the query calls them."""
