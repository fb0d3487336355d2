"""``projections partitions``: the time partitions, what keeps them, and how they are to be kept."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import click
from rich.table import Column, Table

from journal import Session
from journal.partitions import (
    TABLES,
    Partition,
    PartitionSettings,
    change_partition_settings,
    partition_settings,
)
from journal.partitions import partitions as read_partitions
from projections.durations import duration_text
from projections.terminal.connection import visit
from projections.terminal.durations import Duration
from projections.terminal.options import dsn_option, echo_json, json_option
from projections.terminal.output import in_table, print_table, printable

__all__ = ["partition_values", "partitions", "span"]

_MANY = 3
"""So many of those that keep a partition are named in a table."""


@click.command()
@click.argument("table", required=False, type=click.Choice(TABLES))
@click.option(
    "--interval", type=Duration(), metavar="30m|12h|1d", help="From now on, a partition holds so much time."
)
@click.option("--ahead", type=click.IntRange(1, 1000), help="So many intervals to come have a partition.")
@click.option(
    "--retention",
    type=Duration(word="forever"),
    metavar="12h|90d|forever",
    help="A partition is kept so long after its time, and until everyone has read it.",
)
@click.option(
    "--archive-first/--no-archive-first",
    default=None,
    help="Only runs that archive partitions may drop them (`projections maintain --archive`).",
)
@click.option("--exact", is_flag=True, help="Count the rows, which reads all of them, instead of estimating.")
@dsn_option
@json_option
def partitions(  # noqa: PLR0917 - click passes all by name
    table: str | None,
    interval: timedelta | None,
    ahead: int | None,
    retention: timedelta | Literal["forever"] | None,
    archive_first: bool | None,
    exact: bool,
    dsn: str | None,
    as_json: bool,
) -> None:
    """
    Show the time partitions, and what keeps each; or change how those of a table are kept.

    TABLE is events, the journal; matches, what matched for groups of subscribers; webhook_events or
    webhook_attempts, the delivery log of webhooks. Without options, partitions are listed: bounds, rows
    (estimated), size, whether in slice order, and of those whose time is over, what keeps them in the database. The
    default partition takes what no other does; it should be small.

    \b
    With options, settings are changed, for `projections maintain`, workers and pg_cron alike:
      projections partitions events --interval 12h --ahead 14
      projections partitions events --retention 90d
      projections partitions matches --retention 2d
    """  # noqa: D301 - click reads the escape
    change = any(value is not None for value in (interval, ahead, retention, archive_first))
    if change and table is None:
        raise click.UsageError(f"say whose settings: projections partitions {'|'.join(TABLES)} ...")

    async def work(session: Session) -> tuple[list[PartitionSettings], list[Partition]]:
        if change and table is not None:
            await change_partition_settings(
                session,
                table,
                interval=interval,
                ahead=ahead,
                retention=retention,
                archive_first=archive_first,
            )
        settings = await partition_settings(session)
        return settings, [] if change else await read_partitions(session, exact=exact)

    settings, found = visit(dsn, work)
    settings = [each for each in settings if table in {None, each.table}]
    found = [each for each in found if table in {None, each.table}]
    if as_json:
        shown = {} if change else {"partitions": [partition_values(each) for each in found]}
        echo_json(settings=[_settings_values(each) for each in settings], **shown)
        return
    if not change:
        print_table(_table(found, exact=exact))
    for each in settings:
        click.echo(_settings_line(each))


def _table(found: list[Partition], *, exact: bool) -> Table:
    numbers = (Column(name, justify="right") for name in ("rows" if exact else "rows ~", "size"))
    table = Table("table", "partition", "from", "to", *numbers, "in slice order", "kept by")
    for each in found:
        bounds = ("default", "") if each.is_default else map(_time, (each.from_timestamp, each.to_timestamp))
        cells = (f"{each.rows:,}", _size(each.bytes), "yes" if each.clustered else "")
        table.add_row(each.table, in_table(each.name), *bounds, *cells, in_table(_kept_by(each)))
    return table


def _kept_by(partition: Partition) -> str:
    named = [printable(str(holder)) for holder in partition.holders[:_MANY]]
    more = len(partition.holders) - len(named)
    return ", ".join([*named, *([f"{more:,} more"] if more else [])])


def _time(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}".removesuffix(":00")


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def span(partition: Partition) -> str:
    """A partition's time as a line of text shows it."""
    return f"{_time(partition.from_timestamp) or 'the beginning'} to {_time(partition.to_timestamp)} UTC"


def partition_values(partition: Partition) -> dict[str, object]:
    """A partition as JSON."""
    return {
        "table": partition.table,
        "name": partition.name,
        "from": partition.from_timestamp and partition.from_timestamp.isoformat(),
        "to": partition.to_timestamp and partition.to_timestamp.isoformat(),
        "default": partition.is_default,
        "rows": partition.rows,
        "bytes": partition.bytes,
        "clustered": partition.clustered,
        "kept_by": [
            {"kind": holder.kind, "name": holder.name, "reason": holder.reason}
            for holder in partition.holders
        ],
    }


def _settings_values(settings: PartitionSettings) -> dict[str, object]:
    return {
        "table": settings.table,
        "interval_seconds": int(settings.interval.total_seconds()),
        "ahead": settings.ahead,
        "retention_seconds": settings.retention and settings.retention.total_seconds(),
        "archive_first": settings.archive_first,
    }


def _settings_line(settings: PartitionSettings) -> str:
    kept = (
        "kept for ever"
        if settings.retention is None
        else f"kept for {duration_text(settings.retention)} and until read"
    )
    archive = ", dropped only when archived" if settings.archive_first else ""
    interval = duration_text(settings.interval)
    return f"{settings.table}: {interval} in a partition, {settings.ahead} ahead, {kept}{archive}"
