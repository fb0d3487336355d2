"""
Loading history with COPY: events that have their numbers and timestamps already.

A chunk is one transaction. When one fails, the chunks before it stay: a source goes on at its next number.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from journal.appending import EVENT_COLUMNS, MAX_SEQ_NR, check_kind, check_list, event_row
from journal.database import Database
from journal.errors import InvalidEvent, InvalidValue, ProjectionsError
from journal.events import BEGINNING, Event, HistoricEvent

_LAST_YEAR = 9998
_COLUMNS = (*EVENT_COLUMNS, "seq_nr", "db_timestamp")
_STAGE = """
CREATE TEMPORARY TABLE projections_import (
    source_id text COLLATE "C", entity_type text COLLATE "C", event_type text, payload text, version smallint,
    metadata text, tags text, event_id uuid, seq_nr bigint, db_timestamp timestamptz
) ON COMMIT DROP
"""
# Whatever the database's default is: the import looks at what others committed while it waited for its turn.
_READ_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
_IMPORT = "SELECT projections._import_events_v1()"


class ImportResult(NamedTuple):
    """What an import has committed."""

    events: int
    chunks: int


async def import_events(
    database: Database,
    events: AsyncIterable[HistoricEvent] | Iterable[HistoricEvent],
    *,
    chunk: int = 10_000,
    progress: Callable[[int], None] | None = None,
) -> ImportResult:
    """
    Load history, keeping numbers and timestamps; each source goes on where it stands, or begins at 1.

    Events may come in any order between sources, and within a chunk also in any order; a later chunk must
    go on with the next numbers. A chunk is loaded whole or not at all. When one fails, the chunks before it
    are committed, and a note on the error says how many events that are: fix the rest and import again from
    there, ``itertools.islice(events, count, None)``. What was loaded already is refused, never stored twice.

    Readers that have passed these times go back to them, and projections handle the events as late ones.

    Args:
        database: Where to load; the role needs projections_writer, and it and the schema's owner TEMPORARY on the
            database.
        events: The history.
        chunk: Events of a transaction: bounds the memory, and how long appends to the same sources wait.
        progress: Called after each commit with the number of events loaded so far.

    Returns:
        How many events and chunks were loaded.

    Raises:
        InvalidValue: ``chunk`` is below 1.
        InvalidEvent: An event cannot be stored: its number is not the next of its source, its timestamp is
            naive, before 1970, in the future or not after the one before it, or one of the reasons of
            :func:`journal.append`. Also where a projection has evicted its offsets of that time: it could
            not tell these events from handled ones.
        EventIdConflict: An ``event_id`` is used already.
    """
    if isinstance(events, Event) or not isinstance(events, AsyncIterable | Iterable):
        check_list(events, HistoricEvent, "import_events")
    if chunk < 1:
        raise InvalidValue(f"chunk must be at least 1, not {chunk}")
    loaded = chunks = 0
    async for page in _chunks(events, chunk):
        try:
            await _load(database, page)
        except ProjectionsError as error:
            error.add_note(f"{loaded:,} events were imported before the chunk that failed; they stay")
            raise
        loaded, chunks = loaded + len(page), chunks + 1
        if progress is not None:
            progress(loaded)
    return ImportResult(loaded, chunks)


async def _chunks(
    events: AsyncIterable[HistoricEvent] | Iterable[HistoricEvent], size: int
) -> AsyncIterator[list[HistoricEvent]]:
    page: list[HistoricEvent] = []
    async for event in _each(events):
        check_kind(event, HistoricEvent, "source_id, payload, entity_type=…, seq_nr=…, db_timestamp=…")
        page.append(event)
        if len(page) == size:
            yield page
            page = []
    if page:
        yield page


async def _each(
    events: AsyncIterable[HistoricEvent] | Iterable[HistoricEvent],
) -> AsyncIterator[HistoricEvent]:
    if isinstance(events, AsyncIterable):
        async for event in events:
            yield event
    else:
        for event in events:
            yield event


async def _load(database: Database, events: list[HistoricEvent]) -> None:
    rows = [_row(event) for event in events]
    async with database.session() as session, session.transaction():
        await session.execute(_READ_COMMITTED)
        await session.execute(_STAGE)
        await session.copy_rows(("pg_temp", "projections_import"), _COLUMNS, rows)
        await session.execute(_IMPORT)


def _row(event: HistoricEvent) -> tuple[Any, ...]:
    row = event_row(event)
    if wrong := _wrong_number(event.seq_nr) or _wrong_time(event.db_timestamp):
        raise InvalidEvent(f"source {event.source_id!r}, seq_nr {event.seq_nr!r}: {wrong}")
    return (*row, event.seq_nr, event.db_timestamp)


def _wrong_number(seq_nr: Any) -> str | None:
    if not isinstance(seq_nr, int) or isinstance(seq_nr, bool):
        return "seq_nr must be an integer"
    return None if 1 <= seq_nr <= MAX_SEQ_NR else "the first seq_nr of a source is 1"


def _wrong_time(timestamp: Any) -> str | None:
    if not isinstance(timestamp, datetime):
        return f"db_timestamp must be a datetime, not {type(timestamp).__name__}"
    if timestamp.utcoffset() is None:
        return f"timestamp {timestamp} is naive: give it a time zone, such as datetime.UTC"
    if timestamp <= BEGINNING or timestamp > datetime(_LAST_YEAR, 12, 31, tzinfo=UTC):
        return f"timestamp {timestamp} is not between the years 1970 and {_LAST_YEAR}"
    return None
