"""``projections webhooks metrics``: the delivery log, counted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from journal import Database
from projections.terminal.options import dsn_option, echo_json, json_option
from projections.webhooks.commands.options import past
from projections.webhooks.commands.printing import at, echo_table, short_id
from projections.webhooks.commands.visiting import visit_database, whole_endpoint_id
from projections.webhooks.log import DataPoint, Metrics, MetricsRequest, PostgresLog
from projections.webhooks.log.metrics import ATTEMPT_DIMENSIONS, ATTEMPT_MEASURES

__all__ = ["metrics"]

_SHORT = {"endpoint": "endpoint_id"}
_DIMENSIONS = tuple("endpoint" if one == "endpoint_id" else one for one in ATTEMPT_DIMENSIONS)
_ENDPOINT = frozenset(_SHORT.values())
_OF_ATTEMPTS = ("count", "successful_count", "failed_count", "error_rate", "avg_attempt_number")
_OF_EVENTS = ("count", "rate")


@click.command()
@click.option(
    "--by",
    "dimensions",
    multiple=True,
    type=click.Choice(_DIMENSIONS),
    help="A line for each; may be repeated.",
)
@click.option(
    "--every", metavar="5m|1h|1d|1w|1M", help="A line for each such span of time, in UTC, zeros too."
)
@click.option(
    "--since", callback=past, default="24h", show_default=True, metavar="2h|TIME",
    help="From then on: 2h ago, or that moment.",
)  # fmt: skip
@click.option("--until", callback=past, metavar="2h|TIME", help="Before then. Default: now.")
@click.option("--events", "of_events", is_flag=True, help="Count events, instead of attempts.")
@click.option(
    "--measure", "measures", multiple=True, type=click.Choice(ATTEMPT_MEASURES), metavar="NAME",
    help=f"What to show; may be repeated. One of: {', '.join(ATTEMPT_MEASURES)}.",
)  # fmt: skip
@click.option("--tenant", "tenants", multiple=True, metavar="TENANT", help="Only of this; may be repeated.")
@click.option("--endpoint", "endpoint_ids", multiple=True, metavar="ENDPOINT", help="Likewise.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Likewise.")
@dsn_option
@json_option
def metrics(  # noqa: PLR0917 - click passes all by name
    dimensions: Sequence[str],
    every: str | None,
    since: datetime,
    until: datetime | None,
    of_events: bool,
    measures: Sequence[str],
    tenants: Sequence[str],
    endpoint_ids: Sequence[str],
    topics: Sequence[str],
    dsn: str | None,
    as_json: bool,
) -> None:
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
    log = PostgresLog.event_metrics if of_events else PostgresLog.attempt_metrics

    async def work(database: Database) -> Metrics:
        endpoints = [await whole_endpoint_id(database, given) for given in endpoint_ids]
        request = MetricsRequest(
            start=since, end=until or datetime.now(UTC), granularity=every, tenants=tenants,
            measures=measures or (_OF_EVENTS if of_events else _OF_ATTEMPTS),
            dimensions=[_SHORT.get(one, one) for one in dimensions],
            filters={"endpoint_id": endpoints, "topic": topics},
        )  # fmt: skip
        return await log(PostgresLog(database), request)

    found = visit_database(dsn, work)
    if as_json:
        echo_json(
            data=[_values(one) for one in found.data], granularity=found.granularity,
            truncated=found.truncated, row_limit=found.row_limit,
        )  # fmt: skip
    elif found.data:
        _echo(found)
    else:
        click.echo("there is nothing in the log of that time")


def _echo(found: Metrics) -> None:
    first = found.data[0]
    when = ("from",) if found.granularity else ()
    rows = (
        (
            *(at(one.time_bucket) for _ in when),
            *(short_id(value) if name in _ENDPOINT else value for name, value in one.dimensions.items()),
            *(_number(name, value) for name, value in one.measures.items()),
        )
        for one in found.data
    )  # fmt: skip
    titles = {name: name.removesuffix("_count").replace("_", " ") for name in first.measures}
    dimensions = (
        "endpoint" if name == "endpoint_id" else name.replace("_", " ") for name in first.dimensions
    )
    echo_table((*when, *dimensions, *titles.values()), rows, set(titles.values()))
    if found.truncated:
        click.echo(f"there is more: only {found.row_limit:,} lines are shown")


def _number(name: str, value: float) -> str:
    if name == "error_rate":
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def _values(one: DataPoint) -> dict[str, object]:
    bucket = None if one.time_bucket is None else one.time_bucket.isoformat()
    return {"time_bucket": bucket, "dimensions": dict(one.dimensions), **one.measures}
