"""Batches that a handler failed on: kept in the database until they succeed, or until somebody decides."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from journal import EventEnvelope, Session
from projections.errors import storable
from projections.subscriptions.errors import own_errors
from projections.subscriptions.groups import GroupRange
from projections.subscriptions.matched import MatchedEvent
from projections.subscriptions.reading import Place

_FAIL = "SELECT projections.fail_batch_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
_TAKE = "SELECT * FROM projections.take_retries_v1($1, $2, $3, $4)"
_FINISH = "SELECT projections.finish_retry_v1($1, $2, $3, $4, $5)"
_FORGET = "SELECT projections.forget_retry_v1($1)"
_REPLAY = "SELECT projections.replay_retry_v1($1)"
_LIST = """
SELECT r.retry_id, r.handler, r.first_match_id, r.last_match_id, r.attempts, r.error, r.due_at, r.failed_at,
    json_array_length(r.matches) AS events
FROM projections.group_retries AS r INNER JOIN projections.subscription_groups AS g ON r.group_id = g.group_id
WHERE g.name = $1 AND (r.due_at IS NULL) = $2 ORDER BY r.failed_at, r.retry_id LIMIT $3
"""
_EVENTS = "SELECT r.matches::text FROM projections.group_retries AS r WHERE r.retry_id = $1"

_FIELDS = EventEnvelope._fields[:-1]
"""What is kept of an event: all but how its reader came to it."""


class FailedBatch(NamedTuple):
    """
    A batch that a handler failed on.

    Args:
        retry_id: Its number.
        handler: Who failed.
        first_match_id: Its first match.
        last_match_id: Its last match.
        attempts: How often it has been tried.
        error: The last error.
        due_at: When it is to be tried again; None: dead, it waits for somebody.
        failed_at: When it last failed.
        events: How many events it has.
    """

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
        handler: For whom.
        attempts: How often it has been tried.
        matches: Its text as it is kept.
        taken_until: It is due again then; whoever says what came of it names the time that it was taken until.
    """

    retry_id: int
    handler: str
    attempts: int
    matches: str
    taken_until: datetime


async def dead_letters(session: Session, group: str, *, limit: int = 1000) -> list[FailedBatch]:
    """
    Batches of a group that are not tried any more: all retries are used up.

    Args:
        session: Where.
        group: The group.
        limit: At most so many, those that failed first.
    """
    return await _failed(session, group, limit, dead=True)


async def waiting_retries(session: Session, group: str, *, limit: int = 1000) -> list[FailedBatch]:
    """
    Batches of a group that will be tried again.

    Args:
        session: Where.
        group: The group.
        limit: At most so many, those that failed first.
    """
    return await _failed(session, group, limit, dead=False)


async def _failed(session: Session, group: str, limit: int, *, dead: bool) -> list[FailedBatch]:
    return [FailedBatch(*row.values()) for row in await session.fetch(_LIST, group, dead, limit)]


async def failed_events(session: Session, retry_id: int) -> list[MatchedEvent]:
    """The events of a batch that failed, as its handler gets them; none when there is no such batch."""
    text = await session.fetchval(_EVENTS, retry_id)
    return [] if text is None else decode_batch(text)


async def replay_dead_letter(session: Session, retry_id: int) -> bool:
    """Have a dead batch, or one that waits, handled again now, with all retries before it; whether there was one."""
    return bool(await session.fetchval(_REPLAY, retry_id))


async def forget_dead_letter(session: Session, retry_id: int) -> bool:
    """Remove a batch that nobody wants any more; returns whether there was one. Its handler never gets it again."""
    return bool(await session.fetchval(_FORGET, retry_id))


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
    page: Place | None = None,
) -> None:
    """
    Keep a batch that a handler failed on.

    Args:
        session: Where.
        group: The group.
        handler: Who failed.
        matches: What :func:`encode_batch` made of it.
        attempts: How often it has been tried.
        error: Why it failed.
        delay: Handle it again after so long; None: it is dead.
        held: The range that it was read for: nothing is kept when that is another's by now.
        page: Up to where that range was read then: nothing is kept when the database has other matches by now.

    Raises:
        GroupRangeLost: The range is another's, who gets the batch from the log.
        UnknownGroup: The group was removed.
        DatabaseWentBack: What was read is not in the database any more.
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
    Say what came of a batch that was taken.

    Args:
        session: Where.
        retry: The batch.
        attempts: How often it has been tried.
        error: Why it failed again; None: it did not, and is removed.
        delay: Handle it again after so long; None: it is dead.

    Returns:
        Whether it was still the caller's; else nothing is stored.
    """
    told = None if error is None else storable(error, 2000)
    return bool(await session.fetchval(_FINISH, retry.retry_id, retry.taken_until, attempts, told, delay))


async def take_retries(
    session: Session, group: str, handlers: Sequence[str], lease: timedelta, limit: int
) -> list[Retry]:
    """
    Take batches that are due.

    Args:
        session: Where.
        group: The group.
        handlers: For these.
        lease: They are due again after so long, should nobody say what became of them.
        limit: At most so many.
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
