"""``projections remove``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import click

import offsets
from journal import Database, Log
from projections.monitoring import projection_lags
from projections.terminal.commands import Opt, derived
from projections.terminal.confirmation import confirm
from projections.terminal.options import Yes
from projections.terminal.output import Answer, counted, done

_Force = Annotated[bool, Opt("Also while workers run it: they handle nothing more of it.")]


@click.command()
@derived(sides="all")
async def remove(
    database: Database, journals: Sequence[Log], /, name: str, *, yes: Yes = False, force: _Force = False
) -> Answer:
    """
    Remove a projection that is given up: its ranges, its offsets, and its parked sources.

    Until then it keeps events that it has not handled from being dropped, and its lag grows. Its read model is left
    as it is, and so is the journal: a projection that is run under this name later begins with the first event.

    Of one that reads several journals, NAME@JOURNAL is the part that reads one: only that is removed, and workers read
    the other journals.

    It is refused while workers run it: stop them, or start them without it. With --force each of those says that the
    projection is gone, and handles nothing more of it until it is started again.
    """
    async with database.session() as session:
        found = await projection_lags(session, [name], by_slice=False, journal=journals)
    ranges, handled = sum(len(one.ranges) for one in found), sum(one.handled for one in found)
    backlog, parked = sum(one.backlog for one in found), sum(one.parked for one in found)
    confirm(
        f"Remove projection {' and '.join(repr(one.name) for one in found)} with {counted(ranges, 'range')}, its "
        f"offsets ({handled:,} events handled, {backlog:,} not) and {parked:,} parked sources? Its read model is left "
        "as it is.",
        yes=yes,
    )
    async with database.session() as session, session.transaction():
        removed = await offsets.remove(session, name, force=force)
    return done(
        f"projection {name!r} is removed: {removed.ranges:,} ranges, offsets of {removed.sources:,} sources, "
        f"{removed.parked:,} parked sources, {removed.rebuilds:,} rebuilds",
        name=name,
        **removed._asdict(),
    )
