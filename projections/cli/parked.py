"""``projections parked``: sources that wait because one of their events could not be handled."""

from __future__ import annotations

from typing import Any, Literal

import click
from rich.table import Table

from journal import ProjectionsError, Session
from offsets import ParkedSource, decide_parked
from offsets import parked as read_parked
from projections.cli.connection import confirm, visit
from projections.cli.options import dsn_option, echo_json, json_option
from projections.cli.output import in_table, print_table, printable

__all__ = ["parked"]


class NotParked(ProjectionsError):
    """The source does not wait for a decision."""


@click.group()
def parked() -> None:
    """
    List, show, retry and drop events that could not be handled.

    The source of such an event waits, so that its order is kept; all other sources go on.
    """


_source_option = click.option("--source", metavar="ID", help="One source.")


def _one_or_all(command: Any) -> Any:
    return _source_option(click.option("--all", "every", is_flag=True, help="All that wait.")(command))


@parked.command(name="list")
@click.argument("name")
@_source_option
@dsn_option
@json_option
def list_(name: str, source: str | None, dsn: str | None, as_json: bool) -> None:
    """List the sources of a projection that wait, the event each waits at, and why."""
    found = visit(dsn, lambda session: read_parked(session, name, source_id=source))
    if as_json:
        echo_json(parked=[_values(one) for one in found])
        return
    table = Table("source", "seq_nr", "event type", "attempts", "parked at", "decision", "error")
    for one in found:
        at = f"{one.parked_at:%Y-%m-%d %H:%M:%S}"
        # The texts are data: what looks like markup in them stays as it is.
        cells = (one.source_id, one.seq_nr, one.event_type, one.attempts, at, one.decision, one.error)
        table.add_row(*(in_table(str(cell)) for cell in cells))
    print_table(table)


@parked.command()
@click.argument("name")
@click.option("--source", metavar="ID", required=True, help="Which source.")
@dsn_option
@json_option
def show(name: str, source: str, dsn: str | None, as_json: bool) -> None:
    """Show a source that waits: its event, why it could not be handled, and where in the handler that was."""
    found = visit(dsn, lambda session: read_parked(session, name, source_id=source))
    if not found:
        raise NotParked(f"source {source!r} of projection {name!r} is not parked")
    if as_json:
        echo_json(**_values(found[0]), traceback=found[0].traceback)
        return
    for label, value in _values(found[0]).items():
        click.echo(f"{label.replace('_', ' ')}: {printable(str(value))}")
    click.echo("traceback:")
    for line in (found[0].traceback or "none was kept").splitlines():
        click.echo(f"  {printable(line)}")


@parked.command()
@click.argument("name")
@_one_or_all
@dsn_option
def retry(name: str, source: str | None, every: bool, dsn: str | None) -> None:
    """Handle the event again, and let the source go on. Running workers do it within about a second."""
    _check(source, every)
    count = visit(dsn, lambda session: _decide(session, name, source, "retry"))
    click.echo(f"sources to be retried: {count}")


@parked.command()
@click.argument("name")
@_one_or_all
@click.option("--yes", is_flag=True, help="Do not ask.")
@dsn_option
def drop(name: str, source: str | None, every: bool, yes: bool, dsn: str | None) -> None:
    """Pass over the event, and let the source go on. The journal keeps it; this projection never handles it."""
    _check(source, every)
    what = f"the parked event of source {source!r}" if source is not None else "every parked event"
    visit(dsn, lambda session: read_parked(session, name))
    confirm(f"Have projection {name!r} pass over {what}?", yes=yes)
    count = visit(dsn, lambda session: _decide(session, name, source, "drop"))
    click.echo(f"sources to go on without their event: {count}")


def _check(source: str | None, every: bool) -> None:
    if (source is None) != every:
        raise click.UsageError("pass either --source ID or --all")


async def _decide(session: Session, name: str, source: str | None, decision: Literal["retry", "drop"]) -> int:
    count = await decide_parked(session, name, source, decision)
    if source is not None and count == 0:
        raise NotParked(f"source {source!r} of projection {name!r} is not waiting for a decision")
    return count


def _values(one: ParkedSource) -> dict[str, object]:
    """What a list shows; tracebacks are long."""
    values = one._asdict() | {"parked_at": one.parked_at.isoformat()}
    del values["traceback"]
    return values
