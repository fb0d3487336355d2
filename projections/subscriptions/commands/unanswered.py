"""``projections subscriptions waiting``: events that conditions of subscriptions failed on."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import click
from rich.table import Column, Table

from journal import ProjectionsError, Row, Session
from projections.terminal.connection import confirm, visit
from projections.terminal.failed import echo_decided, limit_option, tell_more, yes_option
from projections.terminal.group import ListGroup
from projections.terminal.options import dsn_option, echo_json, json_option
from projections.terminal.output import in_table, print_table, printable, shortened

__all__ = ["waiting"]

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
_PAYLOAD = """
SELECT e.payload::text FROM projections.events AS e WHERE e.source_id = $1 AND e.seq_nr = $2 AND e.db_timestamp = $3
"""
_RETRY = "SELECT projections.retry_unanswered_v1($1)"
_DROP = "SELECT projections.drop_unanswered_v1($1)"


class NotWaiting(ProjectionsError):
    """No event of this number waits for a condition."""


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


_number = click.argument("number", metavar="ID", type=int)


@click.group(cls=ListGroup)
def waiting() -> None:
    """
    List, show, retry and drop events that a condition failed on.

    They hold up nothing, keep their place in the journal, and wait until somebody decides:

    \b
      projections subscriptions waiting list        all of them; list 3 has those of condition 3
      projections subscriptions waiting show 17     one with its payload
      projections subscriptions waiting retry 17    have the condition asked about it again
      projections subscriptions waiting drop 17     no subscription of the condition gets it
      projections subscriptions release 3           have condition 3 asked about all that wait for it

    Without the name of a command it is `list`.
    """  # noqa: D301 - click reads the escape


@waiting.command(name="list")
@click.argument("condition_id", metavar="[CONDITION_ID]", type=int, required=False)
@limit_option
@dsn_option
@json_option
def list_(condition_id: int | None, limit: int, dsn: str | None, as_json: bool) -> None:
    """List the events that wait, those that have waited longest first, and the conditions that are stopped."""
    found, behind = visit(dsn, lambda session: _list(session, condition_id, limit))
    if as_json:
        rows = {"waiting": [_values(one) for one in found], "behind": [_values(one) for one in behind]}
        echo_json(**rows, more=len(found) == limit)
        return
    if found:
        print_table(_table(found))
        tell_more(len(found), limit)
    for condition in behind:
        click.echo(_note(condition))
    if not found and not behind:
        click.echo("no event waits for a condition")


@waiting.command()
@_number
@dsn_option
@json_option
def show(number: int, dsn: str | None, as_json: bool) -> None:
    """Show an event that waits: its condition, why that failed, and its payload."""
    one, payload = visit(dsn, lambda session: _one(session, number))
    if as_json:
        echo_json(**_values(one), payload=payload)
        return
    click.echo(f"{one.unanswered_id}: condition {one.condition_id}: {printable(one.condition)}")
    click.echo(f"  {printable(one.error)}")
    gone = "its event was dropped with its partition"
    click.echo(
        f"  {printable(one.source_id)} {one.seq_nr} {printable(one.topic)}: {printable(payload or gone)}"
    )


@waiting.command()
@_number
@dsn_option
@json_option
def retry(number: int, dsn: str | None, as_json: bool) -> None:
    """
    Have a condition asked again about an event that it failed on.

    Whoever matches does so within a moment; if it fails again, the event waits again. To have it asked about all that
    wait for it, `projections subscriptions release` the condition.
    """
    visit(dsn, lambda session: _decide(session, _RETRY, number))
    echo_decided("retried", "events", 1, as_json=as_json)


@waiting.command()
@_number
@yes_option
@dsn_option
@json_option
def drop(number: int, yes: bool, dsn: str | None, as_json: bool) -> None:
    """Drop an event that waits for a condition: its subscriptions never get it. The journal keeps it."""
    visit(dsn, lambda session: _one(session, number))
    confirm(f"Drop event {number}? No subscription of the condition ever gets it.", yes=yes)
    visit(dsn, lambda session: _decide(session, _DROP, number))
    echo_decided("dropped", "events", 1, as_json=as_json)


async def _list(
    session: Session, condition_id: int | None, limit: int
) -> tuple[list[_Waiting], list[_Behind]]:
    behind = [
        _Behind(row["condition_id"], row["sql"], row["quarantined_at"] is not None, row["since"])
        for row in await session.fetch(_BEHIND, condition_id)
        if row["quarantined_at"] is not None or row["since"] is not None
    ]
    return [_of(row) for row in await session.fetch(_WAITING, condition_id, None, limit)], behind


async def _one(session: Session, number: int) -> tuple[_Waiting, str | None]:
    rows = await session.fetch(_WAITING, None, number, 1)
    if not rows:
        raise _not_waiting(number)
    one = _of(rows[0])
    payload: str | None = await session.fetchval(_PAYLOAD, one.source_id, one.seq_nr, one.db_timestamp)
    return one, payload


async def _decide(session: Session, sql: str, number: int) -> None:
    if not await session.fetchval(sql, number):
        raise _not_waiting(number)


def _not_waiting(number: int) -> NotWaiting:
    return NotWaiting(
        f"no event {number} waits for a condition, or not any more: `projections subscriptions waiting list` lists them"
    )


def _of(row: Row) -> _Waiting:
    return _Waiting(*(row[name] for name in _Waiting._fields))


def _table(found: list[_Waiting]) -> Table:
    number = Column("id", justify="right")
    table = Table(number, "condition", "source", "seq_nr", "topic", "set apart at", "state", "error")
    for one in found:
        at = f"{one.set_apart_at:%Y-%m-%d %H:%M:%S}"
        state = "due" if one.due else "failed"
        cells = (
            one.unanswered_id,
            one.condition_id,
            one.source_id,
            one.seq_nr,
            one.topic,
            at,
            state,
            one.error,
        )
        # The texts are data: what looks like markup in them stays as it is.
        table.add_row(*(in_table(str(cell)) for cell in cells))
    return table


def _note(one: _Behind) -> str:
    what = f"condition {one.condition_id} ({shortened(one.condition)})"
    since = "none has come yet" if one.since is None else f"from {one.since:%Y-%m-%d %H:%M:%S} on"
    if one.stopped:
        return f"{what} is stopped, and its events wait, {since}: projections subscriptions release {one.condition_id}"
    return f"{what} is catching up with its events, {since}"


def _values(one: _Waiting | _Behind) -> dict[str, Any]:
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in one._asdict().items()
    }
