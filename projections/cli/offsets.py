"""``projections offsets``: where projections stand, and moving them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import click

import offsets as stored
from journal import BEGINNING, Database, Log, OwnedSession, Session
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import derived
from projections.terminal.confirmation import confirm
from projections.terminal.options import From, Yes
from projections.terminal.output import NO_PROJECTION, Answer, Columns, PartOf, done, table_or, type_keys

__all__ = ["offsets"]

_COLUMNS: Columns = {
    "projection": "whole.name", "entity type": lambda one: str(one.whole.entity_types), "slices": "part.slices",
    "horizon": lambda one: "at the beginning" if one.part.horizon <= BEGINNING else _time(one.part.horizon),
    "last handled": lambda one: _time(one.part.handled_at),
}  # fmt: skip
_Start = Annotated[datetime | str, From("Handle events from this time on.", "--from")]


@click.group(cls=ListGroup)
def offsets() -> None:
    """List, show, verify, set and clear the offsets of projections. Without the name of a command it is `list`."""


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
        await stored.status(session, name)
    confirm(f"Start projection {name!r} at {start.isoformat()}? Its read model is left as it is.", yes=yes)
    async with database.transaction() as session:
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
        await stored.status(session, name)
    confirm(f"Have projection {name!r} handle every event again? Its read model is left as it is.", yes=yes)
    async with database.transaction() as session:
        await stored.clear_offset(session, name)
    return done(f"projection {name!r} starts at the beginning", name=name, starts_at=None)


@offsets.command()
@derived(sides="both")
async def verify(session: OwnedSession, journal: Log | None, /) -> Answer:
    """
    Look for progress that does not fit the journal, as after one of the two was restored alone.

    Exit code 1 when there is some.
    """
    found = await stored.misfits(session, journal)
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
    return {"name": status.name, **type_keys(status.entity_types), "ranges": ranges}
