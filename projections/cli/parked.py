"""``projections parked``: sources that wait because one of their events could not be handled."""

from __future__ import annotations

import click
from rich.table import Table

from offsets import ParkedSource, drop_parked, list_parked, retry_parked, show_parked
from projections.terminal.connection import confirm, visit
from projections.terminal.failed import (
    all_option,
    echo_decided,
    limit_option,
    one_or_all,
    tell_more,
    yes_option,
)
from projections.terminal.group import ListGroup
from projections.terminal.options import dsn_option, echo_json, json_option
from projections.terminal.output import in_table, print_table, printable

__all__ = ["parked"]

_name = click.argument("name")
_one = click.argument("source", required=False)


@click.group(cls=ListGroup)
def parked() -> None:
    """
    List, show, retry and drop events that could not be handled.

    The source of such an event waits, so that its order is kept; all other sources go on.

    \b
      projections parked list                       of all projections
      projections parked list orders                of one
      projections parked show orders SOURCE         one, with the traceback of its handler
      projections parked retry orders SOURCE        handle its event again; --all for all sources
      projections parked drop orders SOURCE         pass over its event; likewise

    Without the name of a command it is `list`.
    """  # noqa: D301 - click reads the escape


@parked.command(name="list")
@click.argument("name", required=False)
@click.option("--source", metavar="SOURCE", help="Only this source.")
@limit_option
@dsn_option
@json_option
def list_(name: str | None, source: str | None, limit: int, dsn: str | None, as_json: bool) -> None:
    """List the sources that wait, of one projection or of all: the event each waits at, and why."""
    found = visit(dsn, lambda session: list_parked(session, name, source_id=source, limit=limit))
    if as_json:
        echo_json(parked=[_values(one) for one in found], more=len(found) == limit)
        return
    if not found:
        click.echo("no source is parked")
        return
    table = Table(
        "projection", "source", "seq_nr", "event type", "attempts", "parked at", "decision", "error"
    )
    for one in found:
        at = f"{one.parked_at:%Y-%m-%d %H:%M:%S}"
        # The texts are data: what looks like markup in them stays as it is.
        cells = (
            one.projection, one.source_id, one.seq_nr, one.event_type, one.attempts, at, one.decision, one.error,
        )  # fmt: skip
        table.add_row(*(in_table(str(cell)) for cell in cells))
    print_table(table)
    tell_more(len(found), limit)


@parked.command()
@_name
@click.argument("source")
@dsn_option
@json_option
def show(name: str, source: str, dsn: str | None, as_json: bool) -> None:
    """Show a source that waits: its event, why it could not be handled, and where in the handler that was."""
    found = visit(dsn, lambda session: show_parked(session, name, source))
    if as_json:
        echo_json(**_values(found), traceback=found.traceback)
        return
    for label, value in _values(found).items():
        click.echo(f"{label.replace('_', ' ')}: {printable(str(value))}")
    click.echo("traceback:")
    for line in (found.traceback or "none was kept").splitlines():
        click.echo(f"  {printable(line)}")


@parked.command()
@_name
@_one
@all_option
@dsn_option
@json_option
def retry(name: str, source: str | None, every: bool, dsn: str | None, as_json: bool) -> None:
    """Handle the event again, and let the source go on. Running workers do it within about a second."""
    one_or_all("SOURCE", source, every=every)
    count = visit(dsn, lambda session: retry_parked(session, name, source))
    echo_decided("retried", "parked events", count, as_json=as_json)


@parked.command()
@_name
@_one
@all_option
@yes_option
@dsn_option
@json_option
def drop(  # noqa: PLR0917 - click passes all by name
    name: str, source: str | None, every: bool, yes: bool, dsn: str | None, as_json: bool
) -> None:
    """Pass over the event, and let the source go on. The journal keeps it; this projection never handles it."""
    one_or_all("SOURCE", source, every=every)
    what = f"the parked event of source {source!r}" if source is not None else "every parked event"
    visit(dsn, lambda session: list_parked(session, name, limit=1))  # asks only about one that there is
    confirm(f"Have projection {name!r} pass over {what}?", yes=yes)
    count = visit(dsn, lambda session: drop_parked(session, name, source))
    echo_decided("dropped", "parked events", count, as_json=as_json)


def _values(one: ParkedSource) -> dict[str, object]:
    """What a list shows; tracebacks are long."""
    values = one._asdict() | {"parked_at": one.parked_at.isoformat()}
    del values["traceback"]
    return values
