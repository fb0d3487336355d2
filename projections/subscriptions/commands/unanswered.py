"""``projections subscriptions waiting``: events that conditions of subscriptions failed on."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, NamedTuple

import click

from journal import Database, NotFound, Session
from projections.subscriptions.commands.left_to import left_to_matching
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import Arg, derived
from projections.terminal.confirmation import confirm
from projections.terminal.options import Every, Limit, Yes, one_or_all, tell_more
from projections.terminal.output import (
    Answer,
    Columns,
    at,
    decided,
    listing,
    printable,
    shortened,
    values_of,
)

_WAITING = """
SELECT u.unanswered_id, u.condition_id, c.sql AS condition, u.entity_type, u.source_id, u.seq_nr, u.topic,
    u.db_timestamp, u.set_apart_at, u.error, u.due
FROM projections.unanswered AS u INNER JOIN projections.conditions AS c ON u.condition_id = c.condition_id
WHERE ($1::integer IS NULL OR u.condition_id = $1) AND ($2::bigint IS NULL OR u.unanswered_id = $2)
ORDER BY u.unanswered_id LIMIT $3
"""
_BEHIND = """
SELECT c.condition_id, c.sql, c.quarantined_at,
    (
        SELECT u.since FROM projections.unasked AS u
        WHERE u.page_id >= c.unasked_from AND c.condition_id = ANY (u.condition_ids) ORDER BY u.page_id LIMIT 1
    ) AS since
FROM projections.conditions AS c
WHERE c.unasked_from IS NOT NULL AND ($1::integer IS NULL OR c.condition_id = $1)
ORDER BY c.condition_id
"""
_KNOWN = "SELECT EXISTS (SELECT FROM projections.conditions AS c WHERE c.condition_id = $1)"
_PAYLOAD = """
SELECT e.payload::text FROM projections.events AS e WHERE e.source_id = $1 AND e.seq_nr = $2 AND e.db_timestamp = $3
"""
_RETRY = "SELECT projections._retry_unanswered_v1($1)"
_DROP = "SELECT projections._drop_unanswered_v1($1)"
_RETRY_ALL = """
SELECT count(*) FILTER (WHERE projections._retry_unanswered_v1(u.unanswered_id))
FROM projections.unanswered AS u WHERE NOT u.due
"""
_DROP_ALL = """
SELECT count(*) FILTER (WHERE projections._drop_unanswered_v1(u.unanswered_id)) FROM projections.unanswered AS u
"""


class _Waiting(NamedTuple):
    unanswered_id: int
    condition_id: int
    condition: str
    entity_type: str
    source_id: str
    seq_nr: int
    topic: str
    db_timestamp: datetime
    set_apart_at: datetime
    error: str
    due: bool
    """Whether the condition is asked again by itself, as soon as it is not stopped."""


class _Behind(NamedTuple):
    condition_id: int
    condition: str
    stopped: bool
    """Else it catches up."""
    since: datetime | None
    """The time of the first event that it has not been asked about; None: there is none yet."""


_Number = Annotated[int, Arg("ID")]
_SomeNumber = Annotated[int | None, Arg("[ID]")]
_Condition = Annotated[int | None, Arg("[CONDITION_ID]")]
_COLUMNS: Columns = {
    "id": lambda one: str(one.unanswered_id), "condition": lambda one: str(one.condition_id), "source": "source_id",
    "seq_nr": "seq_nr", "topic": "topic", "set apart at": "set_apart_at",
    "state": lambda one: "due" if one.due else "failed", "error": "error",
}  # fmt: skip


@click.group(cls=ListGroup)
def waiting() -> None:
    """
    List, show, retry and drop events that a condition failed on.

    They hold up nothing, keep their place in the journal, and wait until somebody decides:

    \b
      projections subscriptions waiting list        all of them; list 3 has those of condition 3
      projections subscriptions waiting show 17     one with its payload
      projections subscriptions waiting retry 17    have the condition asked about it again; --all for all
      projections subscriptions waiting drop 17     no subscription of the condition gets it; --all for all
      projections subscriptions release 3           have condition 3 asked about all that wait for it

    Without a command, `list` is run.
    """  # noqa: D301 - click reads the escape


@waiting.command(name="list")
@derived
async def list_(session: Session, /, condition_id: _Condition = None, *, limit: Limit = 100) -> Answer:
    """List the events that wait, those that have waited longest first, and the conditions that are stopped."""
    if condition_id is not None and not await session.fetchval(_KNOWN, condition_id):
        raise NotFound(
            f"there is no condition {condition_id}: `projections subscriptions list` shows them",
            "unknown_condition",
        )
    found = [_Waiting(*row.values()) for row in await session.fetch(_WAITING, condition_id, None, limit)]
    behind = [
        _Behind(row["condition_id"], row["sql"], row["quarantined_at"] is not None, row["since"])
        for row in await session.fetch(_BEHIND, condition_id)
        if row["quarantined_at"] is not None or row["since"] is not None
    ]
    notes = [*tell_more(found, limit), *map(_note, behind)]
    nothing = "no event waits for a condition"
    return listing(
        "waiting", found, _COLUMNS, *notes, nothing=nothing, behind=behind, more=len(found) == limit
    )


@waiting.command()
@derived
async def show(session: Session, /, number: _Number) -> Answer:
    """Show an event that waits: its condition, why that failed, and its payload."""
    one = await _one(session, number)
    payload: str | None = await session.fetchval(_PAYLOAD, one.source_id, one.seq_nr, one.db_timestamp)
    event = f"{printable(one.source_id)} {one.seq_nr} {printable(one.topic)}"
    return Answer(
        {**values_of(one), "payload": payload},
        [
            f"{one.unanswered_id}: condition {one.condition_id}: {printable(one.condition)}",
            f"  {printable(one.error)}",
            f"  {event}: {printable(payload or 'its event was dropped with its partition')}",
        ],
    )


@waiting.command()
@derived(check=one_or_all("number", "ID"))
async def retry(session: Session, /, number: _SomeNumber = None, *, every: Every = False) -> Answer:
    """
    Have a condition asked again about an event that it failed on.

    Whoever matches does so within a moment; if it fails again, the event waits again. To have it asked about all that
    wait for it, `projections subscriptions release` the condition.
    """
    answer = decided("retried", "events", await _decide(session, _RETRY, _RETRY_ALL, number))
    return await left_to_matching(session, answer)


@waiting.command()
@derived(check=one_or_all("number", "ID"))
async def drop(
    database: Database, /, number: _SomeNumber = None, *, every: Every = False, yes: Yes = False
) -> Answer:
    """Drop an event that waits for a condition: its subscriptions never get it. The journal keeps it."""
    if number is not None:
        async with database.session() as session:
            await _one(session, number)
    what = "every event that waits" if number is None else f"event {number}"
    confirm(f"Drop {what}? No subscription of the condition ever gets it.", yes=yes)
    async with database.session() as session, session.transaction():
        return decided("dropped", "events", await _decide(session, _DROP, _DROP_ALL, number))


async def _one(session: Session, number: int) -> _Waiting:
    rows = await session.fetch(_WAITING, None, number, 1)
    if not rows:
        raise _not_waiting(number)
    return _Waiting(*rows[0].values())


async def _decide(session: Session, one: str, every: str, number: int | None) -> int:
    """Decide about one event, or about all; returns how many."""
    if number is None:
        return int(await session.fetchval(every))
    if not await session.fetchval(one, number):
        raise _not_waiting(number)
    return 1


def _not_waiting(number: int) -> NotFound:
    return NotFound(
        f"no event {number} waits for a condition, or no longer: `projections subscriptions waiting list` lists them",
        "not_waiting",
    )


def _note(one: _Behind) -> str:
    what = f"condition {one.condition_id} ({shortened(one.condition)})"
    since = "none has come yet" if one.since is None else f"from {at(one.since)} on"
    if one.stopped:
        return f"{what} is stopped, and its events wait, {since}: projections subscriptions release {one.condition_id}"
    return f"{what} is catching up with its events, {since}"
