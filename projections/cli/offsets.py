"""``projections offsets``: where projections stand, and moving them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Annotated, Any, get_args

import click
from rich.console import Console

import offsets as stored
from journal import BEGINNING, Database, Log, OwnedSession, Session, slice_ranges
from projections.defining import projection_of
from projections.durations import Duration
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import Arg, Opt, derived
from projections.terminal.confirmation import confirm
from projections.terminal.long_running import FirstRanges
from projections.terminal.options import From, Yes
from projections.terminal.output import NO_PROJECTION, Answer, Columns, PartOf, done, table_or, type_keys
from projections.terminal.targets import load_projections

_COLUMNS: Columns = {
    "projection": "whole.name", "entity type": lambda one: str(one.whole.entity_types), "slices": "part.slices",
    "horizon": lambda one: "at the beginning" if one.part.horizon <= BEGINNING else _time(one.part.horizon),
    "last handled": lambda one: _time(one.part.handled_at),
}  # fmt: skip
_Start = Annotated[datetime | str, From("Handle events from this time on.", "--from")]
_Framework = Opt(
    "Take over what this framework has stored.", "--from", type=click.Choice(get_args(stored.Framework))
)
_Position = Opt(
    "Take over that everything up to and including this number of the journal is handled.",
    type=click.IntRange(0),
)
_Name = Opt(
    "What it is called there: the projection (akka, pekko, eventsourcing), the processor (emmett), the stream of its "
    "position (message-db). Default: as here."
)
_Table = Opt("Where that is stored, where it has no usual name.", metavar="[SCHEMA.]TABLE")
_Kept = Opt(
    "Of akka and pekko over R2DBC: how long they keep the offset of a source after its last event: time-window, or "
    "delete-after.",
    type=Duration(least="0s", most="3650d"),
)


@click.group(cls=ListGroup)
def offsets() -> None:
    """
    List, show, verify, set, clear and import offsets of projections: up to where each has handled the journal.

    Without a command, `list` is run.
    """


@offsets.command(name="list")
@derived(sides="read")
async def list_(session: Session, /) -> Answer:
    """List how far each range of slices of all projections is: everything before its horizon is handled."""
    return _shown(await stored.statuses(session, None))


@offsets.command()
@derived(sides="read")
async def show(session: Session, /, name: str) -> Answer:
    """Show how far each range of slices of a projection is: everything before its horizon is handled."""
    return _shown(await stored.statuses(session, [name]))


@offsets.command(name="set")
@derived(sides="read")
async def set_(database: Database, /, name: str, *, start: _Start, yes: Yes = False) -> Answer:
    """
    Make a projection start at a time: events from then on are handled (again), older ones never.

    Its read model is left as it is, and what was parked is forgotten. Running workers begin again.
    """
    start = BEGINNING if isinstance(start, str) else start
    async with database.session() as session:
        await stored.statuses(session, [name])
    confirm(f"Start projection {name!r} at {start.isoformat()}? Its read model is left as it is.", yes=yes)
    async with database.session() as session, session.transaction():
        await stored.set_offset(session, name, start)
    return done(f"projection {name!r} starts at {start.isoformat()}", name=name, starts_at=start)


@offsets.command()
@derived(sides="read")
async def clear(database: Database, /, name: str, *, yes: Yes = False) -> Answer:
    """
    Make a projection start at the beginning: every event is handled again.

    Its read model is left as it is: empty it first, or what adds up adds up twice.
    """
    async with database.session() as session:
        await stored.statuses(session, [name])
    confirm(f"Have projection {name!r} handle every event again? Its read model is left as it is.", yes=yes)
    async with database.session() as session, session.transaction():
        await stored.clear_offset(session, name)
    return done(f"projection {name!r} starts at the beginning", name=name, starts_at=None)


def _one_origin(options: Mapping[str, Any]) -> None:
    if (options["framework"] is None) == (options["position"] is None):
        raise click.UsageError("pass either --from or --position")


@offsets.command(name="import")
@derived(sides="both", check=_one_origin)
async def import_(
    database: Database,
    journal: Log | None,
    /,
    target: Annotated[str, Arg("MODULE:OBJECT")],
    *,
    framework: Annotated[stored.Framework | None, _Framework] = None,
    position: Annotated[int | None, _Position] = None,
    name: Annotated[str | None, _Name] = None,
    table: Annotated[str | None, _Table] = None,
    kept: Annotated[timedelta, _Kept] = stored.KEPT,
    ranges: FirstRanges = 8,
    dry_run: Annotated[bool, Opt("Look at everything, and store nothing.")] = False,
) -> Answer:
    """
    Have a projection go on where one of another framework stands: what that has handled is not handled again.

    MODULE:OBJECT is ours, as for `projections worker`: it reads the same journal (--journal), writes the same read
    model, and has handled nothing yet. Stop the other one first.

    \b
      projections offsets import my_module:Owners --from akka --journal bank
      projections offsets import my_module:Owners --position 4711 --journal bank
    """  # noqa: D301 - click reads the escape
    found = load_projections([target])
    if len(found) != 1:
        raise click.BadParameter(f"{target!r} has several projections: name one, as MODULE:OBJECT")
    if journal is None:
        raise click.UsageError(
            "pass --journal: the name of the journal of the other system (`projections journals`)"
        )
    ours = projection_of(found[0])
    async with AsyncExitStack() as stack:
        if framework is None:
            assert position is not None  # noqa: S101 - one of them was given
            stands = stored.at_position(position)
        else:
            elsewhere = stored.Elsewhere(framework=framework, name=name or ours.name, table=table, kept=kept)
            stands = await stack.enter_async_context(
                stored.standing(database, journal, ours.entity_types, elsewhere)
            )
        registered = stored.Registered(ours.name, ours.version, ours.entity_types)
        told = stack.enter_context(Console(stderr=True).status("offsets are read ..."))  # on a terminal
        moved = await stored.take_over_offsets(
            database, journal, registered, stands, slice_ranges(ranges), dry_run=dry_run,
            progress=lambda sources: told.update(f"offsets of {sources:,} sources ..."),
        )  # fmt: skip
    values = moved._asdict() | {"name": ours.name, "stored": not dry_run}
    lines = [
        f"{moved.told}",
        f"offsets of {moved.sources:,} sources; {moved.deleted:,} that the journal does not have any more are left out",
        "nothing is stored" if dry_run else f"projection {ours.name!r} goes on there",
    ]
    return Answer(values, lines)


@offsets.command()
@derived(sides="all")
async def verify(session: OwnedSession, journals: Sequence[Log], /) -> Answer:
    """
    Look for progress that does not fit the journal, as after one of the two was restored alone.

    Exit code 1 when there is some.
    """
    found = await stored.misfits(session, journals)
    if not found:
        return Answer({"misfits": found}, ["the progress of every projection fits the journal"])
    return Answer(
        {"misfits": found}, list(map(str, found)), exit_code=1,
        complaint="restore read models, offsets and journal to one time; or build the read model again: `projections "
        "rebuild`, or empty it and run `projections offsets clear NAME`",
    )  # fmt: skip


def _shown(found: list[stored.ProjectionStatus]) -> Answer:
    parts = [PartOf(one, part) for one in found for part in one.ranges]
    return Answer(
        {"projections": [_values(one) for one in found]}, [table_or(NO_PROJECTION, _COLUMNS, parts)]
    )


def _time(time: datetime | None) -> str:
    return "never" if time is None else f"{time:%Y-%m-%d %H:%M:%S.%f}"


def _values(status: stored.ProjectionStatus) -> dict[str, object]:
    ranges = [
        part.slices._asdict() | {"horizon": part.horizon, "handled_at": part.handled_at}
        for part in status.ranges
    ]
    return {
        "name": status.name,
        "journal": status.journal,
        **type_keys(status.entity_types),
        "ranges": ranges,
    }
