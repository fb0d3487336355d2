"""``projections groups dead``, ``replay`` and ``forget``: batches that a handler has failed on for the last time."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.table import Column, Table
from rich.text import Text

from journal import Session
from projections.cli.connection import confirm, visit
from projections.cli.options import dsn_option, echo_json, json_option
from projections.cli.output import in_table, print_table, printable
from projections.monitoring.dead_letters import Decision, NoDeadLetter, decide_dead
from projections.subscriptions import cursors
from projections.subscriptions.matched import MatchedEvent
from projections.subscriptions.retrying import FailedBatch, dead_letters, failed_events

__all__ = ["dead", "forget", "replay"]

_LISTED = 1000


@click.command()
@click.argument("name")
@click.option(
    "--show", "retry_id", type=int, metavar="ID", help="One of them, whole: its error and its events."
)
@dsn_option
@json_option
def dead(name: str, retry_id: int | None, dsn: str | None, as_json: bool) -> None:
    """
    List the batches of a group that its handlers have given up: all retries are used up.

    They hold up nothing, and are kept, with their events, until somebody decides:

    \b
      projections groups dead billing               list them
      projections groups dead billing --show 17     one with its error and its events
      projections groups replay billing 17          have it handled again; --all for all
      projections groups forget billing 17          remove it

    Of more than 1,000 those that failed first are listed.
    """  # noqa: D301 - click reads the escape
    if retry_id is None:
        found = visit(dsn, lambda session: _dead(session, name))
        if as_json:
            echo_json(dead=[_values(one) for one in found])
        elif found:
            print_table(_table(found))
        else:
            click.echo(f"group {printable(name)!r} has no dead letters")
        return
    batch, events = visit(dsn, lambda session: _one(session, name, retry_id))
    if as_json:
        echo_json(**_values(batch), events=[_event_values(one) for one in events])
        return
    click.echo(f"{batch.retry_id}: handler {printable(batch.handler)!r} has failed {batch.attempts} times")
    click.echo("".join(f"  {printable(line)}\n" for line in batch.error.splitlines()), nl=False)
    print_table(_event_table(events))


@click.command()
@click.argument("name")
@click.argument("retry_id", metavar="[ID]", type=int, required=False)
@click.option("--all", "every", is_flag=True, help="All that are dead.")
@dsn_option
def replay(name: str, retry_id: int | None, every: bool, dsn: str | None) -> None:
    """
    Have a dead batch of a group handled again, by the handler that failed, with all of its retries before it.

    A running consumer that has this handler does it within a moment; else it waits for one.
    """
    if (retry_id is None) != every:
        raise click.UsageError("pass either an ID or --all")
    count = visit(dsn, lambda session: decide_dead(session, name, retry_id, Decision.REPLAY))
    click.echo(f"batches to be handled again: {count:,}")


@click.command()
@click.argument("name")
@click.argument("retry_id", metavar="ID", type=int)
@click.option("--yes", is_flag=True, help="Do not ask.")
@dsn_option
def forget(name: str, retry_id: int, yes: bool, dsn: str | None) -> None:
    """Remove a dead batch of a group: its handler never gets it again. The journal keeps its events."""
    visit(dsn, lambda session: _one(session, name, retry_id))
    confirm(f"Remove batch {retry_id} of group {name!r}? Its handler never gets it again.", yes=yes)
    visit(dsn, lambda session: decide_dead(session, name, retry_id, Decision.FORGET))
    click.echo(f"batch {retry_id} is removed")


async def _dead(session: Session, name: str) -> list[FailedBatch]:
    await cursors(session, name)  # raises where there is no such group
    return await dead_letters(session, name, limit=_LISTED)


async def _one(session: Session, name: str, retry_id: int) -> tuple[FailedBatch, list[MatchedEvent]]:
    for batch in await _dead(session, name):
        if batch.retry_id == retry_id:
            return batch, await failed_events(session, retry_id)
    raise NoDeadLetter(f"batch {retry_id} is no dead letter of group {name!r}, or not any more")


def _table(found: list[FailedBatch]) -> Table:
    numbers = (Column(name, justify="right") for name in ("events", "attempts"))
    table = Table("id", "handler", *numbers, "failed at", "error")
    for one in found:
        lines = one.error.splitlines() or [""]
        at = f"{one.failed_at:%Y-%m-%d %H:%M:%S}"
        table.add_row(*map(_cell, (one.retry_id, one.handler, one.events, one.attempts, at, lines[0])))
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
