"""``projections groups dead``: dead letters, the batches whose retries are used up."""

from __future__ import annotations

from typing import Annotated, Any

import click

from journal import Database, Session
from projections.subscriptions import DeadLetters, FailedBatch, MatchedEvent
from projections.subscriptions.commands.left_to import left_to_consumers
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import Arg, derived
from projections.terminal.confirmation import confirm
from projections.terminal.options import Every, Limit, Yes, one_or_all, tell_more
from projections.terminal.output import (
    Answer,
    Columns,
    decided,
    listing,
    printable,
    table_of,
    values_of,
)

_Number = Annotated[int, Arg("ID")]
_SomeNumber = Annotated[int | None, Arg("[ID]")]
_COLUMNS: Columns = {
    "group": "group", "id": lambda one: str(one.retry_id), "handler": "handler", "events": "events",
    "attempts": "attempts", "failed at": "failed_at", "error": lambda one: (one.error.splitlines() or [""])[0],
}  # fmt: skip
_EVENT_COLUMNS: Columns = {
    "match": lambda one: str(one.match_id), "source": "envelope.source_id", "seq_nr": "envelope.seq_nr",
    "topic": "topic", "payload": "envelope.payload_json",
}  # fmt: skip


@click.group(cls=ListGroup)
def dead() -> None:
    """
    List, show, retry and drop dead letters: batches whose retries are used up.

    They hold up nothing, and are kept, with their events, until somebody decides.

    \b
      projections groups dead list                  of all groups
      projections groups dead list billing          of one
      projections groups dead show billing 17       one, with its error and its events
      projections groups dead retry billing 17      have it handled again; --all for all
      projections groups dead drop billing 17       its handler never gets it; --all for all

    Without a command, `list` is run.
    """  # noqa: D301 - click reads the escape


@dead.command(name="list")
@derived
async def list_(session: Session, /, group: str | None = None, *, limit: Limit = 100) -> Answer:
    """List dead letters, of one group or of all, those that failed first."""
    found = await DeadLetters(session).list(group, limit=limit)
    return listing(
        "dead", found, _COLUMNS, *tell_more(found, limit), nothing="there are no dead letters", values=_values,
        more=len(found) == limit,
    )  # fmt: skip


@dead.command()
@derived
async def show(session: Session, /, group: str, number: _Number) -> Answer:
    """Show a dead letter: its error, and its events with their payloads."""
    found, events = await DeadLetters(session).show(group, number)
    return Answer(
        {**_values(found), "events": [_event_values(one) for one in events]},
        [
            f"{found.retry_id}: handler {printable(found.handler)!r} has failed {found.attempts} times",
            *(f"  {printable(line)}" for line in found.error.splitlines()),
            table_of(_EVENT_COLUMNS, events),
        ],
    )


@dead.command()
@derived(check=one_or_all("number", "ID"))
async def retry(
    session: Session, /, group: str, number: _SomeNumber = None, *, every: Every = False
) -> Answer:
    """
    Have a dead letter handled again, by the handler that failed on it, with all of its retries.

    A running consumer that has this handler does it within a moment; else it waits for one.
    """
    answer = decided("retried", "dead letters", await DeadLetters(session).retry(group, number))
    return await left_to_consumers(session, answer, group)


@dead.command()
@derived(check=one_or_all("number", "ID"))
async def drop(
    database: Database, /, group: str, number: _SomeNumber = None, *, every: Every = False, yes: Yes = False
) -> Answer:
    """Drop a dead letter: its handler never gets it again. The journal keeps its events."""
    async with database.session() as session:  # asks only about what there is
        await (
            DeadLetters(session).list(group, limit=1)
            if number is None
            else DeadLetters(session).show(group, number)
        )
    what = "every dead letter" if number is None else f"dead letter {number}"
    confirm(f"Drop {what} of group {group!r}? The handler never gets it again.", yes=yes)
    async with database.session() as session, session.transaction():
        return decided("dropped", "dead letters", await DeadLetters(session).drop(group, number))


def _values(one: FailedBatch) -> dict[str, Any]:
    """A dead letter is never due; its events stand apart."""
    return values_of(one, {"due_at", "events"}) | {"event_count": one.events}


def _event_values(one: MatchedEvent) -> dict[str, Any]:
    e = one.envelope
    return {
        "match_id": one.match_id,
        "subscription_ids": one.subscription_ids,
        "source_id": e.source_id,
        "seq_nr": e.seq_nr,
        "db_timestamp": e.db_timestamp,
        "event_id": e.event_id,
        "topic": one.topic,
        "payload": e.payload_json,
    }
