"""``projections subscriptions``: what groups have subscribed to, and conditions that were stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple

import click

from journal import Database, NotAllowed, NotFound, Session
from projections.subscriptions import cursors, unsubscribe
from projections.subscriptions.catching_up import history_progress
from projections.subscriptions.commands.catching_up import history_notes, history_values
from projections.subscriptions.commands.left_to import left_to_matching
from projections.subscriptions.commands.unanswered import waiting
from projections.subscriptions.stopped_conditions import release_condition
from projections.terminal.ages import age
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import Arg, derived
from projections.terminal.confirmation import confirm
from projections.terminal.options import Yes
from projections.terminal.output import (
    Answer,
    Columns,
    done,
    facts,
    listing,
    printable,
    row_of,
    shortened,
    values_of,
)

_LIST = """
SELECT s.subscription_id, g.name AS group, coalesce(nullif(s.topics, '{}'), s.patterns) AS topics, s.entity_types,
    s.condition_id, c.sql AS condition, s.params::text AS params, s.expires_after, s.active_at, s.created_at,
    CASE
        WHEN c.quarantined_at IS NOT NULL THEN 'quarantined'
        WHEN s.active_at + s.expires_after < clock_timestamp() THEN 'expired'
        WHEN s.starts_at IS NOT NULL THEN 'catching up'
        ELSE 'active'
    END AS state, c.error
FROM projections.subscriptions AS s
INNER JOIN projections.subscription_groups AS g ON s.group_id = g.group_id
LEFT JOIN projections.conditions AS c ON s.condition_id = c.condition_id
WHERE ($1::text IS NULL OR g.name = $1) AND ($2::bigint IS NULL OR s.subscription_id = $2)
ORDER BY g.name, s.subscription_id
"""


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


_Number = Annotated[int, Arg("ID")]
_COLUMNS: Columns = {
    "id": lambda one: str(one.subscription_id),
    "group": "group",
    "topics": lambda one: one.topics or "all",
    "entity types": lambda one: one.entity_types or "all",
    "condition": lambda one: shortened(one.condition),
    "params": lambda one: "-" if one.params == "{}" else shortened(one.params),
    "expires after": lambda one: (
        "never" if one.expires_after is None else age(one.expires_after.total_seconds())
    ),
    "last active": "active_at",
    "state": "state",
}


@click.group(cls=ListGroup)
def subscriptions() -> None:
    """
    List, show and remove what groups have subscribed to; release conditions that were stopped.

    \b
      projections subscriptions                 all of them
      projections subscriptions list billing    those of one group
      projections subscriptions show 17         one, with its whole condition
      projections subscriptions waiting list    what waits for conditions: also show, retry and drop
      projections subscriptions release 3       have condition 3 asked again
      projections subscriptions remove 17       remove subscription 17

    Without a command, `list` is run. `projections subscribe` makes subscriptions.
    """  # noqa: D301 - click reads the escape


@subscriptions.command(name="list")
@derived
async def list_(session: Session, /, group: str | None = None) -> Answer:
    """
    List subscriptions, of one group or of all: which events each asks for, and until when it is kept.

    A subscription is active; expired, when nobody has kept it for as long as it said, so that it goes soon; or
    quarantined: its condition failed, or took too long, for most events, and is stopped. What comes meanwhile waits
    for it. The error stands below; fix what is wrong, then `projections subscriptions release` it, or remove the
    subscription. One that is catching up starts in the past: below stands how far it is. --json has conditions and
    params whole.
    """
    if group is not None:
        await cursors(session, group)  # raises where there is no such group
    found = [_Subscription(*row.values()) for row in await session.fetch(_LIST, group, None)]
    nothing = "there is no subscription yet: `projections subscribe GROUP` makes one"
    progress = await history_progress(session, group)
    return listing(
        "subscriptions", found, _COLUMNS, *_notes(found), *history_notes(progress), nothing=nothing,
        values=_values, catching_up=history_values(progress),
    )  # fmt: skip


@subscriptions.command()
@derived
async def show(session: Session, /, subscription_id: _Number) -> Answer:
    """Show a subscription with its whole condition and params, and how far it is where it starts in the past."""
    one = await _find(session, subscription_id)
    progress = [
        each for each in await history_progress(session, one.group) if each.subscription_id == subscription_id
    ]
    known = row_of(_COLUMNS, one)
    known |= {"condition": one.condition or "-", "params": one.params, "created": one.created_at}
    values = _values(one) | {"catching_up": history_values(progress)}
    return facts(values, known, *_notes([one]), *history_notes(progress))


@subscriptions.command()
@derived
async def release(session: Session, /, condition_id: Annotated[int, Arg("CONDITION_ID")]) -> Answer:
    """
    Have a condition asked again that was stopped, or that has failed on events.

    It is asked about all that waits for it, in the order of the events, and then about what comes: its subscriptions
    lose nothing. If it fails again, the event waits again.
    """
    if not await release_condition(session, condition_id):
        raise NotAllowed(
            f"condition {condition_id} is not stopped, and no event waits for it: `projections subscriptions` shows "
            "those that are, `projections subscriptions waiting` events",
            "wrong_state",
        )
    answer = done(f"condition {condition_id} is asked again", condition_id=condition_id, released=True)
    return await left_to_matching(session, answer)


@subscriptions.command()
@derived
async def remove(database: Database, /, subscription_id: _Number, *, yes: Yes = False) -> Answer:
    """Remove a subscription: nothing matches for it any more. What has matched stays to be read by its group."""
    async with database.session() as session:
        group = (await _find(session, subscription_id)).group
    confirm(f"Remove subscription {subscription_id} of group {group!r}?", yes=yes)
    async with database.session() as session, session.transaction():
        if not await unsubscribe(session, subscription_id):
            raise _unknown(subscription_id)
    text = f"subscription {subscription_id} of group {printable(group)!r} is removed"
    return done(text, subscription_id=subscription_id, removed=True)


subscriptions.add_command(waiting)


async def _find(session: Session, subscription_id: int) -> _Subscription:
    rows = await session.fetch(_LIST, None, subscription_id)
    if not rows:
        raise _unknown(subscription_id)
    return _Subscription(*rows[0].values())


def _unknown(subscription_id: int) -> NotFound:
    return NotFound(f"there is no subscription {subscription_id}", "unknown_subscription")


def _notes(found: list[_Subscription]) -> Iterator[str]:
    errors = {one.condition_id: one for one in found if one.state == "quarantined"}
    for number, one in errors.items():
        yield (
            f"condition {number} ({shortened(one.condition)}) is stopped: {printable(one.error or '')}; "
            f"have it asked again: projections subscriptions release {number}"
        )


def _values(one: _Subscription) -> dict[str, Any]:
    return values_of(one, durations={"expires_after"}) | {"params": json.loads(one.params)}
