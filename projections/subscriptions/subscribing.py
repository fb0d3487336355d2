"""Subscribing: which events are for a group."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from journal import EntityTypes, InvalidEvent, Session, encode
from journal.database import fetch_on, fetch_on_sync
from projections.interests import CONTAINS, InvalidFilter, InvalidTopic, check_contents, parse_topics
from projections.subscriptions.checks import check_number, check_storable
from projections.subscriptions.errors import InvalidSubscription, own_errors

# Casts, as drivers differ in the types that they send; the caller's connection may have a codec of its own for jsonb.
_SUBSCRIBE = """
SELECT projections.subscribe_v1(
    CAST($1 AS text), CAST($2 AS text), CAST(CAST($3 AS text) AS jsonb), CAST($4 AS interval),
    CAST($5 AS text[]), CAST($6 AS text[]), CAST($7 AS boolean), CAST(CAST($8 AS text) AS timestamptz))
"""
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
"""No event is older."""
_UNSUBSCRIBE = "SELECT projections.unsubscribe_v1(CAST($1 AS bigint))"
_REGISTER = "SELECT projections.register_handler_v1($1, $2, $3)"
_KEEP = "SELECT projections.keep_subscriptions_v1($1)"
_KEEP_KNOWN = """
SELECT s.subscription_id, s.created_at
FROM unnest((SELECT projections.keep_subscriptions_v1($1))) AS k (subscription_id)
INNER JOIN projections.subscriptions AS s ON k.subscription_id = s.subscription_id
"""
_KNOWN = """
SELECT s.subscription_id, s.created_at FROM projections.subscriptions AS s WHERE s.subscription_id = ANY ($1)
"""
_MADE = "SELECT s.created_at FROM projections.subscriptions AS s WHERE s.subscription_id = $1"


async def subscribe(
    connection: Any,
    group: str,
    *,
    topics: Sequence[str] | None = None,
    entity_types: Sequence[str] | EntityTypes | None = None,
    contains: Mapping[str, Any] | None = None,
    condition: str | None = None,
    params: Mapping[str, Any] | None = None,
    expires_after: timedelta | None = None,
    reliable: bool = True,
    start: datetime | str | None = None,
) -> int:
    """
    Subscribe a group to events that are committed from now on, or from a time on; without any filter, to all of them.

    Asking for the same again returns the same subscription, which starts where it did, kept for the longer of both
    times.

    Args:
        connection: As for :func:`journal.append`; the subscription is there once its transaction commits.
        group: The group, which is made if it is not known.
        topics: Event types, or patterns of them: ``*`` stands for one
            segment, ``**`` for one or more.
        entity_types: Kinds of sources; all where it is left out, or ``ALL_TYPES``.
        contains: Keys and values that the payload must contain, nested ones too, as PostgreSQL's ``@>`` compares them.
        condition: A boolean SQL expression over the event ``e`` and the subscription ``s``. Texts are shared by all
            subscriptions that use them: give values that differ in ``params``, and write ``s.params ->> 'name'``.
        params: Values for the condition.
        expires_after: Remove the subscription when nobody has kept it for this time; by default it stays.
        reliable: For a new group: whether consumers read for it; else it only listens.
        start: From which time on: ``"now"``, ``"beginning"`` or a time with its zone; by default as the group was made
            with, and that is now where it was not said. What was committed before now is matched in pages, alongside
            what comes; until that is done, what comes waits for it.

    Returns:
        The subscription's number.

    Raises:
        InvalidValue: A value or the condition is invalid; the message says which, and why.
    """
    asked = _arguments(
        group, topics, entity_types, contains, condition, params, expires_after, reliable, start
    )
    with own_errors():
        return int((await fetch_on(connection, _SUBSCRIBE, asked))[0][0])


def subscribe_sync(
    connection: Any,
    group: str,
    *,
    topics: Sequence[str] | None = None,
    entity_types: Sequence[str] | EntityTypes | None = None,
    contains: Mapping[str, Any] | None = None,
    condition: str | None = None,
    params: Mapping[str, Any] | None = None,
    expires_after: timedelta | None = None,
    reliable: bool = True,
    start: datetime | str | None = None,
) -> int:
    """
    Subscribe a group on a synchronous connection, as for :func:`journal.append_sync`.

    Arguments, result and errors are those of :func:`subscribe`.
    """
    asked = _arguments(
        group, topics, entity_types, contains, condition, params, expires_after, reliable, start
    )
    with own_errors():
        return int(fetch_on_sync(connection, _SUBSCRIBE, asked)[0][0])


def _arguments(  # noqa: PLR0917 - as the function in the database has them
    group: str,
    topics: Sequence[str] | None,
    entity_types: Sequence[str] | EntityTypes | None,
    contains: Mapping[str, Any] | None,
    condition: str | None,
    params: Mapping[str, Any] | None,
    expires_after: timedelta | None,
    reliable: bool,  # noqa: FBT001 - likewise
    start: datetime | str | None,
) -> tuple[Any, ...]:
    for names, what in ((topics, "topics"), (entity_types, "entity_types")):
        _check_names(names, what)
    check_storable(group, "group")
    if condition is not None:
        check_storable(condition, "condition")
    if not isinstance(expires_after, timedelta | None):
        raise InvalidSubscription(f"expires_after must be a timedelta, not {expires_after!r:.80}")
    if expires_after is not None and expires_after <= timedelta(0):
        raise InvalidSubscription(f"expires_after must be longer than 0, not {expires_after}")
    condition, given = _with_contents(condition, params, contains)
    return (
        group,
        condition,
        _json(given, contains),
        expires_after,
        None if topics is None else list(topics),
        _types(entity_types),
        reliable,
        start_of(start),
    )


def start_of(given: datetime | str | None) -> str | None:
    """From when on somebody wants events, as the database takes it; drivers differ in how they send infinity."""
    if given is None:
        return None
    return "infinity" if given == "now" else past_time(given, "start", "'now', 'beginning',").isoformat()


def past_time(given: datetime | str, what: str, words: str = "'beginning',") -> datetime:
    """
    A time in the past as the database takes it; InvalidSubscription: neither a time with its zone nor "beginning".

    The message names it as ``what`` does, and alongside times the words.
    """
    if given == "beginning":
        return _BEGINNING
    if not isinstance(given, datetime) or given.tzinfo is None:
        raise InvalidSubscription(f"{what} must be {words} or a datetime with its zone, not {given!r:.80}")
    return given


def _check_names(names: Sequence[Any] | EntityTypes | None, what: str) -> None:
    if names is None or isinstance(names, EntityTypes):
        return
    if isinstance(names, str):
        raise InvalidSubscription(f"{what} must be a list of strings, not one string: [{names[:80]!r}]")
    if not names:
        raise InvalidSubscription(f"{what} names nothing: leave it out for all")
    for name in names:
        if not isinstance(name, str) or not name or "\0" in name:
            raise InvalidSubscription(f"{what} has {name!r:.80}: each must be a string that is not empty")
    if what == "topics":
        try:
            parse_topics(names)
        except InvalidTopic as error:
            raise InvalidSubscription(str(error)) from None


def _with_contents(
    condition: str | None, params: Mapping[str, Any] | None, contains: Mapping[str, Any] | None
) -> tuple[str | None, Mapping[str, Any]]:
    """The condition and its params, with what the payload must contain as a part of both."""
    given = {} if params is None else params
    if not isinstance(given, Mapping):
        raise InvalidSubscription(f"params must be a mapping, not {type(given).__name__}")
    if contains is None:
        return condition, given
    if not isinstance(contains, Mapping):
        raise InvalidSubscription(f"contains must be a mapping, not {type(contains).__name__}")
    if "contains" in given:
        raise InvalidSubscription("params has 'contains', which the argument of this name takes: rename it")
    # Brackets of another kind than those that conditions have: one too many of these does not pair with ours. The line
    # break ends a comment.
    both = (
        CONTAINS if condition is None else f"{CONTAINS} AND CASE WHEN {condition}\n THEN TRUE ELSE FALSE END"
    )
    return both, {**given, "contains": contains}


def _json(params: Mapping[str, Any], contains: Mapping[str, Any] | None) -> str:
    try:
        text = encode(dict(params), "params")
        if contains is not None:
            check_contents(json.loads(text)["contains"])
    except (InvalidEvent, InvalidFilter) as error:
        raise InvalidSubscription(str(error)) from error
    return text


def _types(given: Sequence[str] | EntityTypes | None) -> list[str] | None:
    if given is None or isinstance(given, EntityTypes):
        return None if given is None else given.sql
    try:
        return EntityTypes.each(given).sql
    except InvalidEvent as error:
        raise InvalidSubscription(str(error)) from error


async def made_at(session: Session, subscription_id: int) -> datetime:
    """When a subscription was made: numbers are given out again after a fail-over, number and time together are not."""
    made: datetime = await session.fetchval(_MADE, subscription_id)
    return made


async def register_handler(session: Session, group: str, name: str, subscription_id: int) -> int:
    """Say that consumers of a group have a handler, and which subscription it is for; returns its number."""
    return int(await session.fetchval(_REGISTER, group, name, subscription_id))


async def unsubscribe(connection: Any, subscription_id: int) -> bool:
    """
    Remove a subscription; what has matched stays to be read.

    Args:
        connection: As for :func:`journal.append`; the subscription is gone once its transaction commits.
        subscription_id: Its number, as :func:`subscribe` has returned it.

    Returns:
        Whether there was one.

    Raises:
        InvalidValue: It is not a number of a subscription.
    """
    return bool((await fetch_on(connection, _UNSUBSCRIBE, [check_number(subscription_id)]))[0][0])


def unsubscribe_sync(connection: Any, subscription_id: int) -> bool:
    """
    Remove a subscription on a synchronous connection, as for :func:`journal.append_sync`.

    Arguments, result and errors are those of :func:`unsubscribe`.
    """
    return bool(fetch_on_sync(connection, _UNSUBSCRIBE, [check_number(subscription_id)])[0][0])


async def keep_subscriptions(session: Session, subscription_ids: Sequence[int]) -> list[int]:
    """Say that subscriptions are in use; returns those that exist. Call it more often than they expire."""
    return list(await session.fetchval(_KEEP, list(subscription_ids)))


async def keep_known(
    session: Session, subscription_ids: Sequence[int], *, keep: bool = True
) -> dict[int, datetime]:
    """Say that subscriptions are in use, or only look; returns those that exist, and when each was made."""
    rows = await session.fetch(_KEEP_KNOWN if keep else _KNOWN, list(subscription_ids))
    return {row["subscription_id"]: row["created_at"] for row in rows}
