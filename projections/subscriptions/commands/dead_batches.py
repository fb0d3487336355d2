"""``projections groups dead``: batches that a handler of a group has failed on for the last time."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.table import Column, Table
from rich.text import Text

from projections.subscriptions import FailedBatch, MatchedEvent, drop_dead, list_dead, retry_dead, show_dead
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

__all__ = ["dead"]

_group = click.argument("group")
_one = click.argument("batch", metavar="[ID]", type=int, required=False)


@click.group(cls=ListGroup)
def dead() -> None:
    """
    List, show, retry and drop batches that handlers have given up: all retries are used up.

    They hold up nothing, and are kept, with their events, until somebody decides.

    \b
      projections groups dead list                  of all groups
      projections groups dead list billing          of one
      projections groups dead show billing 17       one, with its error and its events
      projections groups dead retry billing 17      have it handled again; --all for all
      projections groups dead drop billing 17       remove it; likewise

    Without the name of a command it is `list`.
    """  # noqa: D301 - click reads the escape


@dead.command(name="list")
@click.argument("group", required=False)
@limit_option
@dsn_option
@json_option
def list_(group: str | None, limit: int, dsn: str | None, as_json: bool) -> None:
    """List dead letters, of one group or of all, those that failed first."""
    found = visit(dsn, lambda session: list_dead(session, group, limit=limit))
    if as_json:
        echo_json(dead=[_values(one) for one in found], more=len(found) == limit)
    elif found:
        print_table(_table(found))
        tell_more(len(found), limit)
    else:
        click.echo("there are no dead letters")


@dead.command()
@_group
@click.argument("batch", metavar="ID", type=int)
@dsn_option
@json_option
def show(group: str, batch: int, dsn: str | None, as_json: bool) -> None:
    """Show a dead letter: its error, and its events with their payloads."""
    found, events = visit(dsn, lambda session: show_dead(session, group, batch))
    if as_json:
        echo_json(**_values(found), events=[_event_values(one) for one in events])
        return
    click.echo(f"{found.retry_id}: handler {printable(found.handler)!r} has failed {found.attempts} times")
    click.echo("".join(f"  {printable(line)}\n" for line in found.error.splitlines()), nl=False)
    print_table(_event_table(events))


@dead.command()
@_group
@_one
@all_option
@dsn_option
@json_option
def retry(group: str, batch: int | None, every: bool, dsn: str | None, as_json: bool) -> None:
    """
    Have a dead letter handled again, by the handler that failed, with all of its retries before it is dead again.

    A running consumer that has this handler does it within a moment; else it waits for one.
    """
    one_or_all("ID", batch, every=every)
    count = visit(dsn, lambda session: retry_dead(session, group, batch))
    echo_decided("retried", "batches", count, as_json=as_json)


@dead.command()
@_group
@_one
@all_option
@yes_option
@dsn_option
@json_option
def drop(  # noqa: PLR0917 - click passes all by name
    group: str, batch: int | None, every: bool, yes: bool, dsn: str | None, as_json: bool
) -> None:
    """Remove a dead letter: its handler never gets it again. The journal keeps its events."""
    one_or_all("ID", batch, every=every)
    if batch is None:
        visit(dsn, lambda session: list_dead(session, group, limit=1))
    else:
        visit(dsn, lambda session: show_dead(session, group, batch))
    what = "every dead batch" if batch is None else f"batch {batch}"
    confirm(f"Drop {what} of group {group!r}? The handler never gets it again.", yes=yes)
    count = visit(dsn, lambda session: drop_dead(session, group, batch))
    echo_decided("dropped", "batches", count, as_json=as_json)


def _table(found: list[FailedBatch]) -> Table:
    numbers = (Column(name, justify="right") for name in ("events", "attempts"))
    table = Table("group", "id", "handler", *numbers, "failed at", "error")
    for one in found:
        lines = one.error.splitlines() or [""]
        at = f"{one.failed_at:%Y-%m-%d %H:%M:%S}"
        table.add_row(
            *map(_cell, (one.group, one.retry_id, one.handler, one.events, one.attempts, at, lines[0]))
        )
    return table


def _event_table(events: list[MatchedEvent]) -> Table:
    table = Table("match", "source", "seq_nr", "topic", "payload")
    for one in events:
        e = one.envelope
        table.add_row(*map(_cell, (one.match_id, e.source_id, e.seq_nr, one.topic, e.payload_json)))
    return table


def _cell(value: object) -> Text:
    """The texts are data: what looks like markup in them stays as it is."""
    return in_table(str(value))


def _values(one: FailedBatch) -> dict[str, Any]:
    values = one._asdict()
    del values["due_at"]  # it is dead
    count = values.pop("events")
    return {**values, "event_count": count, "failed_at": one.failed_at.isoformat()}


def _event_values(one: MatchedEvent) -> dict[str, Any]:
    e = one.envelope
    return {
        "match_id": one.match_id,
        "subscription_ids": one.subscription_ids,
        "source_id": e.source_id,
        "seq_nr": e.seq_nr,
        "db_timestamp": e.db_timestamp.isoformat(),
        "event_id": str(e.event_id),
        "topic": one.topic,
        "payload": json.loads(e.payload_json),
    }
