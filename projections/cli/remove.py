"""``projections remove``."""

from __future__ import annotations

from typing import Annotated

import click

import offsets
from journal import Database, Log
from projections.monitoring import projection_lag
from projections.terminal.commands import Opt, derived
from projections.terminal.confirmation import confirm
from projections.terminal.options import Yes
from projections.terminal.output import Answer, counted, done

_Force = Annotated[bool, Opt("Also while workers run it: they handle nothing more of it.")]


@click.command()
@derived(sides="both")
async def remove(
    database: Database, journal: Log | None, /, name: str, *, yes: Yes = False, force: _Force = False
) -> Answer:
    """
    Remove a projection that is given up: its ranges, its offsets, and its parked sources.

    Until then it keeps events that it has not handled from being dropped, and its lag grows. Its read model is left
    as it is, and so is the journal: a projection that is run under this name later begins with the first event.

    It is refused while workers run it: stop them, or start them without it. With --force each of those says that the
    projection is gone, and handles nothing more of it until it is started again.
    """
    async with database.session() as session:
        found = await projection_lag(session, name, journal=journal)
    confirm(
        f"Remove projection {name!r} with {counted(len(found.ranges), 'range')}, its offsets ({found.handled:,} events "
        f"handled, {found.backlog:,} not) and {found.parked:,} parked sources? Its read model is left as it is.",
        yes=yes,
    )
    async with database.transaction() as session:
        removed = await offsets.remove(session, name, force=force)
    return done(
        f"projection {name!r} is removed: {removed.ranges:,} ranges, offsets of {removed.sources:,} sources, "
        f"{removed.parked:,} parked sources, {removed.rebuilds:,} rebuilds",
        name=name,
        **removed._asdict(),
    )
