"""``projections maintain``: the partitions of the log, made ahead and put in slice order."""

from __future__ import annotations

import asyncio
import re
import sys
from datetime import timedelta

import click

from journal.clustering import ClusteredPartition, cluster
from journal.drivers import connect
from journal.embedded import database_dsn
from journal.maintenance import MaintainedPartition
from journal.maintenance import maintain as maintain_journal
from projections.cli.options import dsn_option, echo_json, json_option

__all__ = ["maintain"]

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def _duration(_: click.Context, __: click.Parameter, value: str) -> timedelta:
    """Read ``30m``, ``12h`` or ``1d``."""
    found = re.fullmatch(r"([1-9]\d{0,4})([mhd])", value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no duration: write 30m, 12h or 1d")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


@click.command()
@dsn_option
@click.option(
    "--interval",
    callback=_duration,
    default="1d",
    show_default=True,
    metavar="30m|12h|1d",
    help="Time that one partition holds.",
)
@click.option(
    "--ahead", type=click.IntRange(1, 1000), default=7, show_default=True, help="Intervals to come."
)
@click.option("--cluster", "clusters", is_flag=True, help="Put closed partitions in slice order.")
@click.option(
    "--closed-for",
    callback=_duration,
    default="1h",
    show_default=True,
    metavar="30m|12h|1d",
    help="With --cluster: leave partitions alone whose time ended more recently.",
)
@click.option(
    "--patience",
    callback=_duration,
    default="5m",
    show_default=True,
    metavar="30m|12h|1d",
    help="With --cluster: how long to wait for transactions that began before a partition was copied.",
)
@json_option
@click.pass_context
def maintain(  # noqa: PLR0917 - one of each option
    context: click.Context,
    dsn: str | None,
    interval: timedelta,
    ahead: int,
    clusters: bool,
    closed_for: timedelta,
    patience: timedelta,
    as_json: bool,
) -> None:
    """
    Make the partitions of the log that are missing; run it every day.

    Makes those of the coming intervals, and moves events of past intervals out of the default partition.
    Writers and readers go on meanwhile. Connect as the role that owns the schema.

    With --cluster, partitions whose time is over are then rewritten in slice order, each once, so that a rebuild
    that reads a range of slices reads only pages of its own. It needs the disk for a second copy of the largest.

    Exit code 1 when something could not be done: run it again later; nothing is lost until then.
    """
    clustered: list[ClusteredPartition] = []
    with database_dsn(dsn) as database:
        partitions = asyncio.run(_maintain(database, interval, ahead))
        if clusters:
            clustered = asyncio.run(_cluster(database, closed_for, patience))
    if as_json:
        more = {"clustered": [_clustered_values(partition) for partition in clustered]} if clusters else {}
        echo_json(partitions=[_values(partition) for partition in partitions], **more)
    else:
        lines = [*map(_line, partitions), *map(_clustered_line, clustered)]
        click.echo("\n".join(lines) or "nothing to do")
    if any(p.problem for p in partitions) or any(p.problem for p in clustered):
        context.exit(1)


async def _maintain(dsn: str, interval: timedelta, ahead: int) -> list[MaintainedPartition]:
    async with connect(dsn) as database:
        return await maintain_journal(database, interval=interval, ahead=ahead)


async def _cluster(dsn: str, closed_for: timedelta, patience: timedelta) -> list[ClusteredPartition]:
    progress = _tell if sys.stderr.isatty() else None
    async with connect(dsn) as database:
        return await cluster(database, closed_for=closed_for, patience=patience, progress=progress)


def _tell(partition: ClusteredPartition, stage: str) -> None:
    click.echo(f"{partition.name}, {partition.bytes_before / 1e6:,.0f} MB: {stage} ...", err=True)


def _clustered_values(partition: ClusteredPartition) -> dict[str, object]:
    return {
        "name": partition.name,
        "from": partition.from_timestamp.isoformat(),
        "to": partition.to_timestamp.isoformat(),
        "events": partition.events,
        "bytes_before": partition.bytes_before,
        "bytes_after": partition.bytes_after,
        "seconds": round(partition.seconds, 3),
        "problem": partition.problem,
    }


def _clustered_line(partition: ClusteredPartition) -> str:
    if partition.problem or partition.bytes_after is None:
        return f"not in slice order: {partition.name}: {partition.problem}"
    sizes = f"{partition.bytes_before / 1e6:,.1f} to {partition.bytes_after / 1e6:,.1f} MB"
    return (
        f"in slice order: {partition.name}: {partition.events:,} events, {sizes}, {partition.seconds:.1f} s"
    )


def _values(partition: MaintainedPartition) -> dict[str, object]:
    return {
        "from": partition.from_timestamp.isoformat(),
        "to": partition.to_timestamp.isoformat(),
        "moved": partition.moved,
        "problem": partition.problem,
    }


def _line(partition: MaintainedPartition) -> str:
    bounds = f"{partition.from_timestamp:%Y-%m-%d %H:%M} to {partition.to_timestamp:%Y-%m-%d %H:%M} UTC"
    return (
        f"not made: {bounds}: {partition.problem}"
        if partition.problem
        else f"{bounds}: {partition.moved:,} events moved"
    )
