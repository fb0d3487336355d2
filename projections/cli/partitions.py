"""``projections partitions``: the time partitions, what keeps them, and how they are to be kept."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import click

from journal import Session
from journal.partitions import (
    Partition,
    PartitionSettings,
    change_partition_settings,
    partition_settings,
)
from journal.partitions import partitions as read_partitions
from journal.partitions import schedule as schedule_maintenance
from projections.durations import Duration, duration_text
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import Opt, derived
from projections.terminal.output import Answer, Columns, picked, table_of

_MANY = 3
"""How many of those that keep a partition a table names."""

_Interval = Annotated[
    timedelta | None,
    Opt("The time that each partition holds which is made from now on."),
]
_Ahead = Annotated[
    int | None, Opt("How many coming intervals have a partition.", type=click.IntRange(1, 1000))
]
_Retention = Annotated[
    timedelta | Literal["forever"] | None,
    Opt(
        "A partition is kept this long after its time, and until everyone has read it.",
        type=Duration(word="forever"), metavar="DURATION|forever",
    ),
]  # fmt: skip
_ArchiveFirst = Annotated[
    bool | None,
    Opt(
        "Only runs that archive partitions may drop them (`projections maintain --archive`).",
        "--archive-first/--no-archive-first",
    ),
]
_Exact = Annotated[bool, Opt("Count the rows, which reads all of them, instead of estimating.")]


def _check(options: Mapping[str, Any]) -> None:
    if all(options[name] is None for name in ("interval", "ahead", "retention", "archive_first")):
        raise click.UsageError("nothing to change: pass an option, such as --interval or --retention")


@click.group(cls=ListGroup)
def partitions() -> None:
    """
    List the time partitions, and what keeps each; change how those of a table are kept, and who may change that.

    \b
      projections partitions                       of all tables
      projections partitions list events --exact
      projections partitions change events --interval 12h --ahead 14
      projections partitions change events --retention 90d
      projections partitions change matches --retention 2d
      projections partitions schedule              have pg_cron run `projections maintain`

    TABLE is events, the journal; matches, what matched for groups of subscribers; webhook_events or
    webhook_attempts, the delivery log of webhooks. Without a command, `list` is run.
    """  # noqa: D301 - click reads the escape


@partitions.command(name="list")
@derived
async def list_(session: Session, /, table: str | None = None, *, exact: _Exact = False) -> Answer:
    """
    List the time partitions of TABLE, or of all tables, and the settings by which they are kept.

    Listed are bounds, rows (estimated), size, whether in slice order, and of those whose time is over, what keeps them
    in the database. The default partition holds rows for whose time there is no other; it should be small.
    """
    settings = await _settings(session, table)
    found = [each for each in await read_partitions(session, exact=exact) if table in {None, each.table}]
    columns = {("rows" if exact and name == "rows ~" else name): one for name, one in _COLUMNS.items()}
    values = {**settings.values, "partitions": [partition_values(each) for each in found]}
    return Answer(values, [table_of(columns, found, {"size"}), *settings.shown])


@partitions.command()
@derived(check=_check)
async def change(
    session: Session,
    /,
    table: str,
    *,
    interval: _Interval = None,
    ahead: _Ahead = None,
    retention: _Retention = None,
    archive_first: _ArchiveFirst = None,
) -> Answer:
    """
    Change how the partitions of TABLE are kept, for `projections maintain`, workers and pg_cron alike.

    Settings that are left out stay as they are. Connect as the role that owns the schema.
    """
    await change_partition_settings(
        session, table, interval=interval, ahead=ahead, retention=retention, archive_first=archive_first
    )
    return await _settings(session, table)


@partitions.command()
@derived
async def schedule(session: Session, /) -> Answer:
    """
    Have pg_cron do what `projections maintain` does, one step a minute; running it again changes nothing.

    Where pg_cron is in another database, the statement to run there is printed. Connect as the role that owns the
    schema.
    """
    job = await schedule_maintenance(session)
    where = "pg_cron is not in this database: run this in the one that it is in"
    note = "scheduled: one step a minute" if job.scheduled else where
    return Answer(picked(job, "statement", "scheduled"), [f"{job.statement};"], note=note)


async def _settings(session: Session, table: str | None) -> Answer:
    found = await partition_settings(session, table)
    return Answer({"settings": [*map(_settings_values, found)]}, [*map(_settings_line, found)])


def _kept_by(partition: Partition) -> str:
    named = [str(holder) for holder in partition.holders[:_MANY]]
    more = len(partition.holders) - len(named)
    return ", ".join([*named, *([f"{more:,} more"] if more else [])])


def _time(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}".removesuffix(":00")


_COLUMNS: Columns = {
    "table": "table", "partition": "name",
    "from": lambda one: "default" if one.is_default else _time(one.from_timestamp),
    "to": lambda one: _time(one.to_timestamp), "rows ~": "rows", "size": lambda one: f"{one.bytes / 1e6:,.1f} MB",
    "in slice order": lambda one: "yes" if one.clustered else "", "kept by": _kept_by,
}  # fmt: skip


def span(partition: Partition) -> str:
    """A partition's time as a line of text shows it."""
    return f"{_time(partition.from_timestamp) or 'the beginning'} to {_time(partition.to_timestamp)} UTC"


def partition_values(partition: Partition) -> dict[str, object]:
    """A partition as JSON."""
    renamed = {"from": "from_timestamp", "to": "to_timestamp", "default": "is_default"}
    holders = [picked(holder, "kind", "name", "reason") for holder in partition.holders]
    return picked(partition, "table", "name", "rows", "bytes", "clustered", **renamed) | {"kept_by": holders}


def _settings_values(settings: PartitionSettings) -> dict[str, object]:
    renamed = {"interval_seconds": "interval", "retention_seconds": "retention"}
    return picked(settings, "table", "ahead", "archive_first", **renamed)


def _settings_line(settings: PartitionSettings) -> str:
    kept = (
        "kept forever"
        if settings.retention is None
        else f"kept for {duration_text(settings.retention)} and until read"
    )
    archive = ", dropped only when archived" if settings.archive_first else ""
    interval = duration_text(settings.interval)
    return f"{settings.table}: {interval} in a partition, {settings.ahead} ahead, {kept}{archive}"
