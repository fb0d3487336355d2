"""Batches that a handler failed on: kept until they succeed, or as dead letters until somebody decides."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from journal import EventEnvelope, NotFound, OwnedSession, Session
from journal.limits import check_limit
from projections.errors import storable
from projections.subscriptions.errors import own_errors
from projections.subscriptions.groups import GroupRange, cursors
from projections.subscriptions.matched_event import MatchedEvent
from projections.subscriptions.reading import MatchPlace

_FAIL = "SELECT projections.fail_batch_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
_TAKE = "SELECT * FROM projections.take_retries_v1($1, $2, $3, $4)"
_FINISH = "SELECT projections.finish_retry_v1($1, $2, $3, $4, $5)"
_RETRY = "SELECT projections.retry_batches_v1($1, $2, $3)"
_DROP = "SELECT projections.drop_batches_v1($1, $2, $3)"
_COLUMNS = """
g.name AS group_name, r.retry_id, r.handler, r.first_match_id, r.last_match_id, r.attempts, r.error, r.due_at,
r.failed_at, json_array_length(r.matches) AS events
"""
_BATCHES = "projections.group_retries AS r INNER JOIN projections.subscription_groups AS g ON r.group_id = g.group_id"
_LIST = f"""
SELECT {_COLUMNS} FROM {_BATCHES}
WHERE ($1::text IS NULL OR g.name = $1) AND (r.due_at IS NULL) = $2 ORDER BY r.failed_at, r.retry_id LIMIT $3
"""
_SHOW = f"""
SELECT r.matches::text AS matches, {_COLUMNS} FROM {_BATCHES}
WHERE g.name = $1 AND r.retry_id = $2 AND r.due_at IS NULL
"""

_FIELDS = EventEnvelope._fields[:-1]
"""What is kept of an event: all but how its reader came to it."""


class FailedBatch(NamedTuple):
    """
    A batch that a handler failed on.

    Args:
        group: Its group.
        retry_id: Its number.
        handler: The name of the handler that failed.
        first_match_id: Its first match.
        last_match_id: Its last match.
        attempts: How often it has been tried.
        error: The last error.
        due_at: When it is to be tried again; None: it is a dead letter, and waits for somebody.
        failed_at: The time of the last failure.
        events: How many events it has.
    """

    group: str
    retry_id: int
    handler: str
    first_match_id: int
    last_match_id: int
    attempts: int
    error: str
    due_at: datetime | None
    failed_at: datetime
    events: int


class Retry(NamedTuple):
    """
    A failed batch that was taken to be handled again.

    Args:
        retry_id: Its number.
        handler: The name of the handler that gets it.
        attempts: How often it has been tried.
        matches: Its text as it is kept.
        taken_until: It is due again then; whoever reports its outcome names the time that it was taken until.
    """

    retry_id: int
    handler: str
    attempts: int
    matches: str
    taken_until: datetime


class DeadLetters:
    """
    Dead letters of groups: batches that are not tried any more, because all retries are used up.

    Args:
        session: A session on the database of the groups.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(
        self, group: str | None = None, *, waiting: bool = False, limit: int = 100
    ) -> Sequence[FailedBatch]:
        """
        The dead letters of a group, or of all groups.

        Args:
            group: The group; None for all.
            waiting: Instead of dead letters, batches that failed and will be tried again.
            limit: The largest number to return, 1 to 1,000: those that failed first.

        Raises:
            InvalidValue: The limit is out of range.
            NotFound: There is no such group.
        """
        check_limit(limit)
        rows = await self._session.fetch(_LIST, group, not waiting, limit)
        if group is not None and not rows:
            await cursors(self._session, group)  # raises where there is no such group
        return [FailedBatch(*row.values()) for row in rows]

    async def show(self, group: str, retry_id: int) -> tuple[FailedBatch, Sequence[MatchedEvent]]:
        """
        One dead letter of a group, and its events as its handler gets them.

        Args:
            group: The group whose handler failed.
            retry_id: The number of the dead letter.

        Raises:
            NotFound: There is no such group, or it has no such dead letter, or no longer.
        """
        row = await self._session.fetchrow(_SHOW, group, retry_id)
        if row is None:
            await cursors(self._session, group)
            raise _not_dead(group, retry_id)
        matches, *values = row.values()
        return FailedBatch(*values), decode_batch(matches)

    async def retry(self, group: str, retry_id: int | None = None, *, waiting: bool = False) -> int:
        """
        Have one dead letter of a group, or all, handled again now, with all retries.

        Of two who decide about the same one at once, the second is refused: what waits to be handled again is not dead.

        Args:
            group: The group whose handler failed.
            retry_id: The number of the dead letter; None for all of the group.
            waiting: Also where the one that is named is not a dead letter yet, and still has retries before it.

        Returns:
            How many that are.

        Raises:
            NotFound: There is no such group, or it has no such dead letter, or no longer.
        """
        return await self._decide(_RETRY, group, retry_id, waiting=waiting)

    async def drop(self, group: str, retry_id: int | None = None, *, waiting: bool = False) -> int:
        """
        Drop one dead letter of a group, or all: their handlers never get them again. The journal keeps the events.

        Args:
            group: The group whose handler failed.
            retry_id: The number of the dead letter; None for all of the group.
            waiting: Also where the one that is named is not a dead letter yet, and still has retries before it.

        Returns:
            How many that are.

        Raises:
            NotFound: There is no such group, or it has no such dead letter, or no longer.
        """
        return await self._decide(_DROP, group, retry_id, waiting=waiting)

    async def _decide(self, sql: str, group: str, retry_id: int | None, *, waiting: bool) -> int:
        with own_errors():
            count = int(await self._session.fetchval(sql, group, retry_id, waiting))
        if retry_id is not None and not count:
            raise _not_dead(group, retry_id)
        return count


def _not_dead(group: str, retry_id: int) -> NotFound:
    return NotFound(f"batch {retry_id} is not a dead letter of group {group!r}, or no longer one", "not_dead")


async def fail_batch(
    session: Session,
    group: str,
    handler: str,
    matches: str,
    *,
    attempts: int,
    error: str,
    delay: timedelta | None,
    held: GroupRange | None = None,
    page: MatchPlace | None = None,
) -> None:
    """
    Keep a batch that a handler failed on, as :func:`encode_batch` wrote it, to be handled again after ``delay``.

    Without a delay it is dead. Nothing is kept when the range that it was read for is another's by now (RangeLost),
    who gets the batch from the log; or when the database has other matches by now than those that were read up to
    ``page`` (DatabaseWentBack). NotFound: the group was removed.
    """
    reader: tuple[Any, ...] = (None,) * 4
    if held is not None:
        reader = (held.slices.min_slice, held.epoch, held.owner, held.cursor)
    place = (None, None) if page is None else (page.match_id, page.matched_at)
    with own_errors():
        await session.execute(
            _FAIL,
            group,
            handler,
            attempts,
            storable(error, 2000),
            delay,
            matches,
            *reader,
            *place,
            None if held is None else held.handler_id,
        )


async def finish_retry(
    session: Session,
    retry: Retry,
    *,
    attempts: int | None = None,
    error: str | None = None,
    delay: timedelta | None = None,
) -> bool:
    """
    Store the outcome of a batch that was taken; returns whether it was still the caller's, else nothing is stored.

    Without an error it is removed; else it is handled again after ``delay``, and dead without one.
    """
    told = None if error is None else storable(error, 2000)
    return bool(await session.fetchval(_FINISH, retry.retry_id, retry.taken_until, attempts, told, delay))


async def halve_retry(
    session: OwnedSession,
    group: str,
    retry: Retry,
    halves: Iterable[str],
    *,
    attempts: int,
    error: str,
    delay: timedelta,
) -> bool:
    """
    Keep halves of a batch that was taken instead of it, each to be handled again after ``delay``.

    Returns whether it was still the caller's, else nothing is stored. NotFound: the group was removed.
    """
    async with session.transaction():
        if not await finish_retry(session, retry):
            return False
        for half in halves:
            await fail_batch(session, group, retry.handler, half, attempts=attempts, error=error, delay=delay)
    return True


async def take_retries(
    session: Session, group: str, handlers: Sequence[str], lease: timedelta, limit: int
) -> list[Retry]:
    """
    Take batches that are due for these handlers, up to a number.

    They are due again after ``lease``, should nobody say their outcome.
    """
    rows = await session.fetch(_TAKE, group, list(handlers), lease, limit)
    return [
        Retry(row["retry_id"], row["handler"], row["attempts"], row["matches"], row["taken_until"])
        for row in rows
    ]


def encode_batch(batch: Iterable[MatchedEvent]) -> str:
    """A batch as text, whole: its events outlive their partition of the journal."""
    return json.dumps([_encode(matched) for matched in batch])


def _encode(matched: MatchedEvent) -> dict[str, Any]:
    fields = dict(zip(_FIELDS, matched.envelope, strict=False))
    return {
        "match_id": matched.match_id,
        "subscription_ids": matched.subscription_ids,
        **fields,
        "db_timestamp": matched.envelope.db_timestamp.isoformat(),
        "event_id": str(matched.envelope.event_id),
        "matched_at": None if matched.matched_at is None else matched.matched_at.isoformat(),
    }


def decode_batch(text: str) -> list[MatchedEvent]:
    """What :func:`encode_batch` had."""
    return [_decode(fields) for fields in json.loads(text)]


def _decode(fields: dict[str, Any]) -> MatchedEvent:
    fields["db_timestamp"] = datetime.fromisoformat(fields["db_timestamp"])
    fields["event_id"] = UUID(fields["event_id"])
    envelope = EventEnvelope(*(fields[name] for name in _FIELDS))
    matched_at = fields.get("matched_at")
    return MatchedEvent(
        fields["match_id"], fields["subscription_ids"], envelope,
        None if matched_at is None else datetime.fromisoformat(matched_at),
    )  # fmt: skip
