"""``projections maintain``: the partitions of the log."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

import click

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
@json_option
@click.pass_context
def maintain(context: click.Context, dsn: str | None, interval: timedelta, ahead: int, as_json: bool) -> None:
    """
    Make the partitions of the log that are missing; run it every day.

    Makes those of the coming intervals, and moves events of past intervals out of the default partition.
    Writers and readers go on meanwhile. Connect as the role that owns the schema.

    Exit code 1 when one could not be made: run it again later; nothing is lost until then.
    """
    with database_dsn(dsn) as database:
        partitions = asyncio.run(_maintain(database, interval, ahead))
    if as_json:
        echo_json(partitions=[_values(partition) for partition in partitions])
    else:
        click.echo("\n".join(map(_line, partitions)) or "nothing to do")
    if any(partition.problem for partition in partitions):
        context.exit(1)


async def _maintain(dsn: str, interval: timedelta, ahead: int) -> list[MaintainedPartition]:
    async with connect(dsn) as database:
        return await maintain_journal(database, interval=interval, ahead=ahead)


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
