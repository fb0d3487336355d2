"""``projections webhooks stats`` and ``metrics``: the state of endpoints, and the delivery log, counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any

import click

from journal import Database, InvalidValue, OwnedSession
from projections.durations import duration_text
from projections.monitoring import vacancies
from projections.terminal.ages import age
from projections.terminal.commands import Opt, derived
from projections.terminal.options import Tenant
from projections.terminal.output import (
    Answer,
    Columns,
    at,
    counted,
    listing,
    picked,
    printable,
    seconds,
    short_id,
    table_of,
    values_of,
)
from projections.webhooks.commands.options import whole_endpoint_id
from projections.webhooks.log import DataPoint, Metrics, MetricsRequest, PostgresLog
from projections.webhooks.log.metrics import ATTEMPT_DIMENSIONS, ATTEMPT_MEASURES, granularity_of
from projections.webhooks.stats import EndpointStats, endpoint_stats

_DIMENSIONS = tuple("endpoint" if one == "endpoint_id" else one for one in ATTEMPT_DIMENSIONS)
_OF_ATTEMPTS = ("count", "successful_count", "failed_count", "error_rate", "avg_attempt_number")
_OF_EVENTS = ("count", "rate")

_By = Opt("A line for each; may be repeated.", "--by", type=click.Choice(_DIMENSIONS))


def _bucket(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Check a span of time that the log is cut into: of the calendar, and so not a duration."""
    if value is not None:
        try:
            granularity_of(value)
        except InvalidValue:
            raise click.BadParameter(
                f"{value!r} is not one span of the calendar: write 1s to 60s, 1m to 60m, 1h to 24h, 1d to 31d, "
                "1w to 4w, or 1M to 12M"
            ) from None
    return value


_Every = Opt(
    "A line for each such span of time, in UTC, zeros too.", callback=_bucket, metavar="5m|1h|1d|1w|1M"
)
_Since = Opt("Only from this time on; 2h is two hours ago.")
_Until = Opt("Only before this time. Default: now.")
_Measure = Opt(
    f"What to show; may be repeated. One of: {', '.join(ATTEMPT_MEASURES)}.",
    "--measure", type=click.Choice(ATTEMPT_MEASURES), metavar="NAME",
)  # fmt: skip


@click.command()
@derived
async def metrics(
    database: Database,
    /,
    *,
    dimensions: Annotated[tuple[str, ...], _By] = (),
    every: Annotated[str | None, _Every] = None,
    since: Annotated[datetime | str, _Since] = "24h",
    until: Annotated[datetime | None, _Until] = None,
    of_events: Annotated[bool, Opt("Count events, instead of attempts.", "--events")] = False,
    measures: Annotated[tuple[str, ...], _Measure] = (),
    tenants: Annotated[
        tuple[str, ...], Opt("Only of this tenant; may be repeated.", "--tenant", metavar="TENANT")
    ] = (),
    endpoint_ids: Annotated[
        tuple[str, ...], Opt("Only of this endpoint; may be repeated.", "--endpoint", metavar="ENDPOINT")
    ] = (),
    topics: Annotated[
        tuple[str, ...], Opt("Only of this topic; may be repeated.", "--topic", metavar="TOPIC")
    ] = (),
) -> Answer:
    """
    Count attempts, or events, of the log.

    \b
      projections webhooks metrics --by endpoint --by code             what each endpoint answers
      projections webhooks metrics --every 1h --since 1d               hour by hour
      projections webhooks metrics --events --by topic --since 7d
      projections webhooks metrics --by tenant --measure successful_rate

    Rates are per second, of the whole span that a line stands for; error_rate is the share that failed, 0 to 1. An
    event that is for several endpoints counts for each, --by endpoint.
    """  # noqa: D301 - click reads the escape
    assert isinstance(since, datetime)  # noqa: S101 - the option's type has read it
    endpoints = [await whole_endpoint_id(database, given) for given in endpoint_ids]
    request = MetricsRequest(
        start=since, end=until or datetime.now(UTC), granularity=every, tenants=tenants,
        measures=measures or (_OF_EVENTS if of_events else _OF_ATTEMPTS),
        dimensions=["endpoint_id" if one == "endpoint" else one for one in dimensions],
        filters={"endpoint_id": endpoints, "topic": topics},
    )  # fmt: skip
    log = PostgresLog(database)
    found = await (log.event_metrics(request) if of_events else log.attempt_metrics(request))
    values = picked(found, "granularity", "truncated", "row_limit") | {
        "data": [
            {"time_bucket": one.time_bucket, "dimensions": one.dimensions, **one.measures}
            for one in found.data
        ]
    }
    if not found.data:
        return Answer(values, ["the log has nothing from that time"])
    columns, titles = _columns(found), {_title(name) for name in found.data[0].measures}
    more = f"there is more: only {found.row_limit:,} lines are shown"
    return Answer(values, [table_of(columns, found.data, titles), *([more] if found.truncated else [])])


def _columns(found: Metrics) -> Columns:
    first = found.data[0]
    columns: Columns = {"from": lambda one: at(one.time_bucket)} if found.granularity else {}
    dimensions: Columns = {
        "endpoint" if name == "endpoint_id" else name.replace("_", " "): partial(_dimension, name)
        for name in first.dimensions
    }
    return {**columns, **dimensions, **{_title(name): partial(_measure, name) for name in first.measures}}


def _title(measure: str) -> str:
    return measure.removesuffix("_count").replace("_", " ")


def _dimension(name: str, one: DataPoint) -> str:
    value = one.dimensions[name]
    return short_id(value) if name == "endpoint_id" else value


def _measure(name: str, one: DataPoint) -> str:
    value = one.measures[name]
    if name == "error_rate":
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


_Window = Annotated[timedelta, Opt("The time before now whose attempts are counted.")]


@click.command()
@derived(watched=True)
async def stats(
    session: OwnedSession, /, *, tenant: Tenant = None, window: _Window = timedelta(hours=1)
) -> Answer:
    """
    Show what nobody does, and the state of endpoints, a line for each.

    \b
      undelivered           deliveries that are due, wait for their next attempt, or wait for others of their order
      oldest undelivered    the age of the oldest of them
      dead letters          deliveries whose attempts are used up: `projections webhooks dead`
      expired               deliveries that were not made by their expiry, since the endpoint was made
      attempts              requests within --window
      success rate          the share of these attempts that was answered 2xx
      median, p99 duration  how long these attempts took: half of them, and 99 of 100, took less
      failing for           how long all attempts have failed, and how many

    An endpoint is active, paused or disabled; held, where it has asked for a pause, or its circuit is open; failing,
    where its last attempts have failed.
    """  # noqa: D301 - click reads the escape
    found = await endpoint_stats(session, tenant, window=window)
    nobody = [] if tenant else await vacancies(session)
    answer = listing(
        "endpoints", found, _STATS_COLUMNS, *([f"attempts of the last {duration_text(window)}"] if found else []),
        nothing="there is no endpoint: `projections webhooks endpoints add TENANT URL` makes one",
        values=_stats_values, window_seconds=window,
        numbers={"oldest undelivered", "success rate", "median duration", "p99 duration"},
        vacancies=[values_of(one) for one in nobody],
    )  # fmt: skip
    return replace(answer, shown=[*(printable(str(one)) for one in nobody), *answer.shown])


def _state(one: EndpointStats) -> str:
    if one.state != "active":
        return f"{one.state}: {one.reason}" if one.reason else str(one.state)
    if one.held:
        return f"held until {one.blocked_until:%H:%M:%S}"
    return "failing" if one.failures else "active"


def _failing(one: EndpointStats) -> str | None:
    if one.failing_since is None:
        return None
    return f"{age((one.at - one.failing_since).total_seconds())}, {counted(one.failures, 'attempt')}"


_STATS_COLUMNS: Columns = {
    "endpoint": lambda one: short_id(one.endpoint_id), "tenant": "tenant", "host": "host", "state": _state,
    "undelivered": lambda one: one.pending + one.waiting + one.in_flight,
    "oldest undelivered": lambda one: age(one.lag), "dead letters": "dead", "expired": "expired",
    "attempts": "attempts", "success rate": lambda one: None if one.success is None else f"{one.success:.1%}",
    "median duration": lambda one: seconds(one.median),
    "p99 duration": lambda one: seconds(one.slowest_percent), "failing for": _failing,
}  # fmt: skip


def _stats_values(one: EndpointStats) -> dict[str, Any]:
    return picked(
        one, "endpoint_id", "tenant", "url", "verified", "state", "reason", "pending", "waiting", "in_flight", "dead",
        "expired", "failures", "failing_since", "blocked_until", "held", "succeeded", "failed",
        lag_seconds="lag", success_rate="success", median_seconds="median", p99_seconds="slowest_percent",
    )  # fmt: skip
