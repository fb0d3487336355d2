"""Operations that measure the delivery log."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from projections.webhooks.api.operations import Call, NoBody, Operations, Query, Time, Words
from projections.webhooks.api.problems import Problem
from projections.webhooks.log import Metrics, MetricsRequest

__all__ = ["metrics_operations"]

metrics_operations = Operations("metrics")


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
    return await call.services.log.event_metrics(_request(call))


@metrics_operations.add("GET", "/v1/metrics/attempts")
async def measure_attempts(call: Call[AttemptMetricsQuery, NoBody]) -> Metrics:
    """
    Count attempts, and how they ended.

    Measures are count, successful_count, failed_count, error_rate, first_attempt_count, retry_count,
    manual_retry_count, avg_attempt_number, rate, successful_rate and failed_rate; by tenant, topic, endpoint_id,
    endpoint_type, status, code, manual, attempt_number.
    """
    return await call.services.log.attempt_metrics(_request(call))


def _request(call: Call[Any, NoBody]) -> MetricsRequest:
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
        filters={name: found for name, field in _FILTERS.items() if (found := getattr(query, field, ()))},
    )


_FILTERS = {"topic": "topics"} | {
    name: name for name in ("endpoint_id", "endpoint_type", "status", "code", "manual", "attempt_number")
}
"""Fields of the log, and what the query calls them."""
