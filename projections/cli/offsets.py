"""``projections offsets``: where projections stand, and moving them."""

from __future__ import annotations

from datetime import datetime

import click
from rich.table import Table

import offsets as stored
from journal import BEGINNING
from projections.terminal.connection import confirm, visit
from projections.terminal.group import ListGroup
from projections.terminal.options import dsn_option, echo_done, echo_json, json_option
from projections.terminal.output import in_table, print_table

__all__ = ["offsets"]

_yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group(cls=ListGroup)
def offsets() -> None:
    """List, show, verify, set and clear the offsets of projections. Without the name of a command it is `list`."""


@offsets.command(name="list")
@dsn_option
@json_option
def list_(dsn: str | None, as_json: bool) -> None:
    """List how far each range of slices of all projections is: everything before its horizon is handled."""
    _show(dsn, None, as_json=as_json)


@offsets.command()
@click.argument("name")
@dsn_option
@json_option
def show(name: str, dsn: str | None, as_json: bool) -> None:
    """Show how far each range of slices of a projection is: everything before its horizon is handled."""
    _show(dsn, [name], as_json=as_json)


@offsets.command(name="set")
@click.argument("name")
@click.option("--from", "start", required=True, metavar="TIME", help="Such as 2026-01-31T12:00:00Z.")
@_yes_option
@dsn_option
@json_option
def set_(name: str, start: str, yes: bool, dsn: str | None, as_json: bool) -> None:
    """
    Make a projection start at a time: events from then on are handled (again), older ones never.

    Its read model is left as it is, and what was parked is forgotten. Running workers begin anew.
    """
    time = _parsed(start)
    visit(dsn, lambda session: stored.status(session, name))
    confirm(f"Start projection {name!r} at {time.isoformat()}? Its read model is left as it is.", yes=yes)
    visit(dsn, lambda session: stored.set_offset(session, name, time))
    echo_done(
        f"projection {name!r} starts at {time.isoformat()}",
        as_json=as_json,
        name=name,
        starts_at=time.isoformat(),
    )


@offsets.command()
@click.argument("name")
@_yes_option
@dsn_option
@json_option
def clear(name: str, yes: bool, dsn: str | None, as_json: bool) -> None:
    """
    Make a projection start at the beginning: every event is handled again.

    Its read model is left as it is: empty it first, or what adds up adds up twice.
    """
    visit(dsn, lambda session: stored.status(session, name))
    confirm(f"Have projection {name!r} handle every event again? Its read model is left as it is.", yes=yes)
    visit(dsn, lambda session: stored.clear_offset(session, name))
    echo_done(f"projection {name!r} starts at the beginning", as_json=as_json, name=name, starts_at=None)


@offsets.command()
@dsn_option
@json_option
@click.pass_context
def verify(context: click.Context, dsn: str | None, as_json: bool) -> None:
    """
    Look for progress that does not fit the journal, as after one of the two was restored alone.

    Exit code 1 when there is some.
    """
    found = visit(dsn, stored.misfits)
    if as_json:
        echo_json(misfits=[one._asdict() for one in found])
    for one in () if as_json else found:
        click.echo(str(one))
    if found:
        click.echo(
            "restore read models, offsets and journal to one time; or build the read model again: `projections "
            "rebuild`, or empty it and run `projections offsets clear NAME`", err=True,
        )  # fmt: skip
        context.exit(1)
    if not as_json:
        click.echo("the progress of every projection fits the journal")


def _show(dsn: str | None, names: list[str] | None, *, as_json: bool) -> None:
    found = visit(dsn, lambda session: stored.statuses(session, names))
    if as_json:
        echo_json(projections=[_values(status) for status in found])
        return
    table = Table("projection", "entity type", "slices", "horizon", "last handled")
    for status in found:
        for part in status.ranges:
            table.add_row(
                in_table(status.name),
                in_table(status.entity_type),
                str(part.slices),
                _horizon(part),
                _time(part.handled_at),
            )
    print_table(table)


def _parsed(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is no time: write 2026-01-31T12:00:00Z", param_hint="--from"
        ) from error
    if time.tzinfo is None:
        raise click.BadParameter(
            f"{text!r} has no zone: write {time.isoformat()}Z for UTC", param_hint="--from"
        )
    return time


def _horizon(part: stored.RangeStatus) -> str:
    return "at the beginning" if part.horizon <= BEGINNING else _time(part.horizon)


def _time(time: datetime | None) -> str:
    return "never" if time is None else f"{time:%Y-%m-%d %H:%M:%S.%f}"


def _values(status: stored.ProjectionStatus) -> dict[str, object]:
    return {
        "name": status.name,
        "entity_type": status.entity_type,
        "ranges": [
            {
                "min_slice": part.slices.min_slice,
                "max_slice": part.slices.max_slice,
                "horizon": part.horizon.isoformat(),
                "handled_at": part.handled_at and part.handled_at.isoformat(),
            }
            for part in status.ranges
        ],
    }
