"""Statistics: attempts over time, how they ended, and how well each endpoint receives."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from projections.extras import from_extra
from projections.webhooks.api.endpoint_operations import list_endpoint_stats, list_endpoints
from projections.webhooks.api.log_operations import measure_attempts
from projections.webhooks.log.metrics import DataPoint
from projections.webhooks.page.visit import Visit

with from_extra("webhooks"):
    from starlette.responses import Response

_COUNTS = (("measures", "successful_count"), ("measures", "failed_count"))
_HEIGHT = 120


class _Span(NamedTuple):
    title: str
    time: timedelta
    granularity: str
    minutes: str
    """Of statistics of endpoints: a week at most."""


SPANS = {
    "day": _Span("24 hours", timedelta(days=1), "1h", "1440"),
    "week": _Span("7 days", timedelta(days=7), "6h", "10080"),
    "month": _Span("30 days", timedelta(days=30), "1d", "10080"),
}


class Bar(NamedTuple):
    """Attempts of a span of time, and how high they are drawn."""

    time: datetime
    succeeded: int
    failed: int
    succeeded_height: float
    failed_height: float


async def shown(visit: Visit) -> Response:
    """Statistics of a day, a week or a month."""
    given = visit.request.query_params.get("span", "day")
    span = SPANS.get(given, SPANS["day"])
    until = datetime.now(UTC) + timedelta(seconds=1)
    time = [("since", (until - span.time).isoformat()), ("until", until.isoformat())]
    series = await visit.ask(measure_attempts, [*time, *_COUNTS, ("granularity", span.granularity)])
    codes = await visit.ask(measure_attempts, [*time, ("dimensions", "code")])
    page = [("next", visit.request.query_params.get("next", "")), ("limit", "50")]
    endpoints = await visit.ask(list_endpoints, page)
    stats = await visit.ask(list_endpoint_stats, [*page, ("minutes", span.minutes)])
    return visit.render(
        "statistics.html", bars=_bars(series.data), height=_HEIGHT, spans=SPANS, chosen=given, span=span,
        codes=sorted(codes.data, key=lambda each: -each.measures["count"]), stats=stats,
        urls={each.endpoint_id: each.url for each in endpoints.data}, here="statistics",
    )  # fmt: skip


def _bars(points: Sequence[DataPoint]) -> list[Bar]:
    counts = [
        (each.time_bucket, int(each.measures["successful_count"]), int(each.measures["failed_count"]))
        for each in points
        if each.time_bucket is not None
    ]
    most = max((succeeded + failed for _, succeeded, failed in counts), default=0) or 1
    return [
        Bar(time, succeeded, failed, round(succeeded * _HEIGHT / most, 2), round(failed * _HEIGHT / most, 2))
        for time, succeeded, failed in counts
    ]
