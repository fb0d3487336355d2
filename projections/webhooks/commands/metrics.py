"""``projections webhooks metrics``: the delivery log, counted."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import click

from journal import Database
from projections.terminal.answers import Answer, picked
from projections.terminal.commands import Opt, derived
from projections.terminal.output import Columns, at, short_id, table_of
from projections.terminal.times import Time
from projections.webhooks.commands.options import whole_endpoint_id
from projections.webhooks.log import DataPoint, Metrics, MetricsRequest, PostgresLog
from projections.webhooks.log.metrics import ATTEMPT_DIMENSIONS, ATTEMPT_MEASURES

__all__ = ["metrics"]

_DIMENSIONS = tuple("endpoint" if one == "endpoint_id" else one for one in ATTEMPT_DIMENSIONS)
_OF_ATTEMPTS = ("count", "successful_count", "failed_count", "error_rate", "avg_attempt_number")
_OF_EVENTS = ("count", "rate")

_By = Opt("A line for each; may be repeated.", "--by", type=click.Choice(_DIMENSIONS))
_Every = Opt("A line for each such span of time, in UTC, zeros too.", metavar="5m|1h|1d|1w|1M")
_Since = Opt("From then on: 2h ago, or that moment.", type=Time(ago=True), metavar="2h|TIME")
_Until = Opt("Before then. Default: now.", type=Time(ago=True), metavar="2h|TIME")
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
        tuple[str, ...], Opt("Only of this; may be repeated.", "--tenant", metavar="TENANT")
    ] = (),
    endpoint_ids: Annotated[tuple[str, ...], Opt("Likewise.", "--endpoint", metavar="ENDPOINT")] = (),
    topics: Annotated[tuple[str, ...], Opt("Likewise.", "--topic", metavar="TOPIC")] = (),
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
        return Answer(values, ["there is nothing in the log of that time"])
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
