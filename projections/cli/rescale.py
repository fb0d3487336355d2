"""``projections rescale``."""

from __future__ import annotations

import click

import offsets
from journal import NUMBER_OF_SLICES, OwnedSession
from projections.terminal.connection import visit_session
from projections.terminal.options import dsn_option, echo_json, json_option

__all__ = ["rescale"]


@click.command()
@click.argument("name")
@click.option(
    "--ranges", type=click.IntRange(1, NUMBER_OF_SLICES), required=True, help="How many, 1 to 1024."
)
@dsn_option
@json_option
def rescale(name: str, ranges: int, dsn: str | None, as_json: bool) -> None:
    """
    Cut the slices of a projection into another number of ranges, while it runs.

    Progress is kept: nothing is lost, and nothing is handled twice. Batches in flight roll back, and the workers
    share the new ranges within about a second. Ranges are what workers share: cut at least as many as there are
    to be workers, and no more than some four for each.
    """
    before = visit_session(dsn, lambda session: _rescale(session, name, ranges))
    if as_json:
        echo_json(name=name, ranges_before=before, ranges=ranges)
    elif before == ranges:
        click.echo(f"projection {name!r} has {_count(ranges)} already")
    else:
        click.echo(f"projection {name!r} had {_count(before)}, and has {ranges} now")


async def _rescale(session: OwnedSession, name: str, ranges: int) -> int:
    before = await offsets.status(session, name)
    await offsets.rescale(session, name, ranges)
    return len(before.ranges)


def _count(ranges: int) -> str:
    return "1 range" if ranges == 1 else f"{ranges} ranges"
