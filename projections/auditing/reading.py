"""Where histories come from: files of JSON lines, queries, and the journal."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import click

from journal import EntityTypes, OwnedSession
from projections.auditing.history import History, InvalidHistory

_PAGE = 5000
_CURSORS = count(1)
_COMMITTED = {"source_id", "seq_nr", "event_id", "at"}
_HANDLED = {"source_id", "seq_nr", "event_id", "projection"}
_NEEDED = {"source_id", "seq_nr"}
_EVENTS = """
SELECT source_id, seq_nr, event_id, db_timestamp AS at FROM projections.events
WHERE ($1::text[] IS NULL OR entity_type = ANY ($1)) AND ($2::text[] IS NULL OR event_type = ANY ($2))
"""
_SOURCES = (
    "SELECT source_id, seq_nr FROM projections.sources WHERE $1::text[] IS NULL OR entity_type = ANY ($1)"
)
_PARKED = """
SELECT k.source_id, k.seq_nr FROM projections.parked_sources AS k
INNER JOIN projections.projections AS p ON k.projection_id = p.projection_id
WHERE p.name = $1 AND p.journal IS NOT DISTINCT FROM $2
"""


def lines_of(path: Path) -> Iterator[Mapping[str, Any]]:
    """
    The objects of a file of JSON lines, ``-`` for standard input.

    Raises:
        InvalidHistory: The file cannot be read, or a line is not a JSON object.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(click.open_file(str(path), encoding="utf-8"))
            for number, line in enumerate(file, 1):
                found = _object(line)
                if found is None:
                    raise InvalidHistory(f"{path}, line {number}: not a JSON object: {line.strip():.80}")
                yield found
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidHistory(f"{path}: cannot be read: {error}") from error


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


async def query(session: OwnedSession, sql: str, *args: Any) -> AsyncIterator[Mapping[str, Any]]:
    """The rows of a query, some thousands at a time, in a transaction that may only read."""
    cursor = f"audited_{next(_CURSORS)}"  # drivers remember the columns of a statement by its text
    async with session.transaction():
        await session.execute("SET TRANSACTION READ ONLY")
        await session.execute(f"DECLARE {cursor} NO SCROLL CURSOR FOR {sql.strip().rstrip(';')}", *args)
        while rows := await session.fetch(f"FETCH {_PAGE} FROM {cursor}"):
            for row in rows:
                yield dict(row.items())


class Waiting(NamedTuple):
    """
    Which events that are not handled are no loss.

    Args:
        settled: What was committed later may still be on its way.
        parked: By source, the number from which on its events wait because one could not be handled.
    """

    settled: datetime
    parked: Mapping[str, int]

    def has(self, source_id: str, seq_nr: int, at: datetime | None) -> bool:
        """Whether such an event may wait."""
        is_parked = source_id in self.parked and seq_nr >= self.parked[source_id]
        return is_parked or (at is not None and at > self.settled)


def committed_in(history: History, row: Mapping[str, Any], waiting: Waiting) -> None:
    """
    Tell of a committed event, a line or a row: ``source_id``, ``seq_nr``, and perhaps ``event_id``, and when, ``at``.

    Raises:
        InvalidHistory: A column is missing, is of another type, or is not known.
    """
    source_id, seq_nr = _key(row, _COMMITTED)
    recent = waiting.has(source_id, seq_nr, _time(row.get("at")))
    history.committed(source_id, seq_nr, _id(row), recent=recent)


def _time(given: object) -> datetime | None:
    found = given
    if isinstance(given, str):
        with suppress(ValueError):
            found = datetime.fromisoformat(given)
    if found is None or (isinstance(found, datetime) and found.tzinfo is not None):
        return found
    raise InvalidHistory(f"at is {given!r}: write a time with its zone, such as 2026-01-31T12:00:00+00:00")


def handled_in(history: History, row: Mapping[str, Any], projection: str) -> None:
    """Tell of an event that was handled, a line or a row: the same columns, and perhaps ``projection``."""
    source_id, seq_nr = _key(row, _HANDLED)
    history.handled(source_id, seq_nr, _id(row), projection=str(row.get("projection") or projection))


def _key(row: Mapping[str, Any], known: set[str]) -> tuple[str, int]:
    if not _NEEDED.issubset(row) or not row.keys() <= known:
        raise InvalidHistory(
            f"found the columns {', '.join(row) or 'none'}: source_id and seq_nr are needed, and "
            f"{' and '.join(sorted(known - _NEEDED))} may be there"
        )
    source_id, seq_nr = row["source_id"], row["seq_nr"]
    if source_id is None or not isinstance(seq_nr, int) or isinstance(seq_nr, bool):
        raise InvalidHistory(f"not a source and its number: {source_id!r}, {seq_nr!r}")
    return str(source_id), seq_nr


def _id(row: Mapping[str, Any]) -> str | None:
    found = row.get("event_id")
    try:
        return None if found is None else str(UUID(str(found)))  # in one form, however it was written
    except ValueError:
        return str(found)


async def tell_journal(
    history: History,
    session: OwnedSession,
    entity_types: EntityTypes,
    event_types: Sequence[str],
    waiting: Waiting,
) -> None:
    """Tell of what is in a journal of this library, or was before it was dropped."""
    entities, events = entity_types.sql, list(event_types) or None
    async for row in query(session, _EVENTS, entities, events):
        committed_in(history, row, waiting)
    async for row in query(session, _SOURCES, entities):
        history.existed(row["source_id"], row["seq_nr"])


async def parked_at(session: OwnedSession, projection: str, journal: str | None) -> dict[str, int]:
    """By source of a journal, by its stored name, the number of the event that could not be handled."""
    return {row["source_id"]: row["seq_nr"] for row in await session.fetch(_PARKED, projection, journal)}
