"""``projections subscriptions``: what groups have subscribed to, and conditions that were stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import click
from rich.table import Column, Table

from journal import ProjectionsError, Session
from projections.subscriptions import cursors, unsubscribe
from projections.subscriptions.commands.unanswered import waiting
from projections.terminal.ages import age
from projections.terminal.connection import confirm, visit
from projections.terminal.group import ListGroup
from projections.terminal.options import dsn_option, echo_done, echo_json, json_option
from projections.terminal.output import in_table, print_table, printable, shortened

__all__ = ["subscriptions"]

_LIST = """
SELECT s.subscription_id, g.name AS group, s.topics, s.patterns, s.entity_types, s.condition_id, c.sql AS condition,
    s.params::text AS params, s.expires_after, s.active_at, s.created_at, c.error,
    CASE
        WHEN c.quarantined_at IS NOT NULL THEN 'quarantined'
        WHEN s.active_at + s.expires_after < clock_timestamp() THEN 'expired'
        ELSE 'active'
    END AS state
FROM projections.subscriptions AS s
INNER JOIN projections.subscription_groups AS g ON s.group_id = g.group_id
LEFT JOIN projections.conditions AS c ON s.condition_id = c.condition_id
WHERE $1::text IS NULL OR g.name = $1 ORDER BY g.name, s.subscription_id
"""
_FIND = """
SELECT g.name FROM projections.subscriptions AS s
INNER JOIN projections.subscription_groups AS g ON s.group_id = g.group_id WHERE s.subscription_id = $1
"""
_RELEASE = "SELECT projections.release_condition_v1($1)"


class UnknownSubscription(ProjectionsError):
    """There is no subscription of this number."""


class NotQuarantined(ProjectionsError):
    """The condition is not stopped, and nothing waits for it; or there is none of this number."""


class _Subscription(NamedTuple):
    subscription_id: int
    group: str
    topics: list[str] | None
    """As they were given."""
    entity_types: list[str] | None
    condition_id: int | None
    condition: str | None
    params: str
    expires_after: timedelta | None
    active_at: datetime
    created_at: datetime
    state: str
    error: str | None
    """Of its condition."""


@click.group(cls=ListGroup)
def subscriptions() -> None:
    """
    List what groups have subscribed to; release conditions that were stopped; remove subscriptions.

    \b
      projections subscriptions                 all of them
      projections subscriptions list billing    those of one group
      projections subscriptions waiting list    what waits for conditions: also show, retry and drop
      projections subscriptions release 3       have condition 3 asked again
      projections subscriptions remove 17       remove subscription 17

    Without the name of a command it is `list`. `projections subscribe` makes subscriptions.
    """  # noqa: D301 - click reads the escape


@subscriptions.command(name="list")
@click.argument("group", required=False)
@dsn_option
@json_option
def list_(group: str | None, dsn: str | None, as_json: bool) -> None:
    """
    List subscriptions, of one group or of all: which events each asks for, and until when it is kept.

    A subscription is active; expired, when nobody has kept it for as long as it said, so that it goes soon; or
    quarantined: its condition failed, or took too long, for most events, and is stopped. What comes meanwhile waits
    for it. The error stands below; mend what is wrong, then `projections subscriptions release` it, or remove the
    subscription. --json has conditions and params whole.
    """
    found = visit(dsn, lambda session: _list(session, group))
    if as_json:
        echo_json(subscriptions=[_values(one) for one in found])
        return
    if not found:
        click.echo("there is no subscription yet: `projections subscribe GROUP` makes one")
        return
    print_table(_table(found))
    for line in _notes(found):
        click.echo(line)


@subscriptions.command()
@click.argument("condition_id", metavar="CONDITION_ID", type=int)
@dsn_option
@json_option
def release(condition_id: int, dsn: str | None, as_json: bool) -> None:
    """
    Have a condition asked again that was stopped, or that has failed on events.

    It is asked about all that waits for it, in the order of the events, and then about what comes: its subscriptions
    lose nothing. If it fails again, the event waits again.
    """
    visit(dsn, lambda session: _release(session, condition_id))
    echo_done(
        f"condition {condition_id} is asked again", as_json=as_json, condition_id=condition_id, released=True
    )


@subscriptions.command()
@click.argument("subscription_id", metavar="ID", type=int)
@click.option("--yes", is_flag=True, help="Do not ask.")
@dsn_option
@json_option
def remove(subscription_id: int, yes: bool, dsn: str | None, as_json: bool) -> None:
    """Remove a subscription: nothing matches for it any more. What has matched stays to be read by its group."""
    group = visit(dsn, lambda session: _group_of(session, subscription_id))
    confirm(f"Remove subscription {subscription_id} of group {group!r}?", yes=yes)
    visit(dsn, lambda session: _remove(session, subscription_id))
    echo_done(
        f"subscription {subscription_id} of group {printable(group)!r} is removed",
        as_json=as_json,
        subscription_id=subscription_id,
        removed=True,
    )


subscriptions.add_command(waiting)


async def _list(session: Session, group: str | None) -> list[_Subscription]:
    if group is not None:
        await cursors(session, group)  # raises where there is no such group
    return [
        _Subscription(
            row["subscription_id"], row["group"], row["topics"] or row["patterns"], row["entity_types"],
            row["condition_id"], row["condition"], row["params"], row["expires_after"], row["active_at"],
            row["created_at"], row["state"], row["error"],
        )
        for row in await session.fetch(_LIST, group)
    ]  # fmt: skip


async def _release(session: Session, condition_id: int) -> None:
    if not await session.fetchval(_RELEASE, condition_id):
        raise NotQuarantined(
            f"condition {condition_id} is not stopped, and no event waits for it: `projections subscriptions` shows "
            "those that are, `projections subscriptions waiting` events"
        )


async def _group_of(session: Session, subscription_id: int) -> str:
    group: str | None = await session.fetchval(_FIND, subscription_id)
    if group is None:
        raise UnknownSubscription(f"there is no subscription {subscription_id}")
    return group


async def _remove(session: Session, subscription_id: int) -> None:
    if not await unsubscribe(session, subscription_id):
        raise UnknownSubscription(f"subscription {subscription_id} is gone already")


def _table(found: list[_Subscription]) -> Table:
    columns = (
        "group",
        "topics",
        "entity types",
        "condition",
        "params",
        "expires after",
        "last active",
        "state",
    )
    table = Table(Column("id", justify="right"), *columns)
    for one in found:
        cells = (
            str(one.subscription_id), one.group, _names(one.topics), _names(one.entity_types),
            shortened(one.condition), "-" if one.params == "{}" else shortened(one.params),
            "never" if one.expires_after is None else age(one.expires_after.total_seconds()),
            f"{one.active_at:%Y-%m-%d %H:%M:%S}", one.state,
        )  # fmt: skip
        # The texts are data: what looks like markup in them stays as it is.
        table.add_row(*(in_table(cell) for cell in cells))
    return table


def _names(names: list[str] | None) -> str:
    return "all" if names is None else ", ".join(names)


def _notes(found: list[_Subscription]) -> Iterator[str]:
    errors = {one.condition_id: one for one in found if one.state == "quarantined"}
    for number, one in errors.items():
        yield (
            f"condition {number} ({shortened(one.condition)}) is stopped: {printable(one.error or '')}; "
            f"have it asked again: projections subscriptions release {number}"
        )


def _values(one: _Subscription) -> dict[str, Any]:
    expires = None if one.expires_after is None else one.expires_after.total_seconds()
    values = one._asdict()
    del values["expires_after"]
    return {
        **values,
        "params": json.loads(one.params),
        "expires_after_seconds": expires,
        "active_at": one.active_at.isoformat(),
        "created_at": one.created_at.isoformat(),
    }
