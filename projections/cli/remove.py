"""``projections remove``."""

from __future__ import annotations

import click

import offsets
from projections.monitoring import projection_lag
from projections.terminal.connection import confirm, visit
from projections.terminal.options import dsn_option, echo_json, json_option

__all__ = ["remove"]


@click.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also while workers run it: they handle nothing more of it.")
@dsn_option
@json_option
def remove(name: str, yes: bool, force: bool, dsn: str | None, as_json: bool) -> None:
    """
    Remove a projection that is given up: its ranges, its offsets, and its parked sources.

    Until then it keeps events that it has not handled from being dropped, and its lag grows. Its read model is left
    as it is, and so is the journal: a projection that is run under this name later begins with the first event.

    It is refused while workers run it: stop them, or start them without it. With --force each of those says that the
    projection is gone, and handles nothing more of it until it is started again.
    """
    found = visit(dsn, lambda session: projection_lag(session, name))
    ranges = "1 range" if len(found.ranges) == 1 else f"{len(found.ranges):,} ranges"
    confirm(
        f"Remove projection {name!r} with {ranges}, its offsets ({found.handled:,} events handled, "
        f"{found.backlog:,} not) and {found.parked:,} parked sources? Its read model is left as it is.",
        yes=yes,
    )
    removed = visit(dsn, lambda session: offsets.remove(session, name, force=force))
    if as_json:
        echo_json(name=name, **removed._asdict())
        return
    click.echo(
        f"projection {name!r} is removed: {removed.ranges:,} ranges, offsets of {removed.sources:,} sources, "
        f"{removed.parked:,} parked sources, {removed.rebuilds:,} rebuilds"
    )
