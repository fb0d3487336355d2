"""What an export, a verification, a restore and a reading of an archive ask the journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

from journal.database import SyncConnection, connect_sync
from spark_projections.archive.files import NOT_KNOWN, ArchivedFile, Bounds

_NEWER_IMPORTS = """
SELECT EXISTS (
    SELECT FROM projections.imports WHERE entity_type = %s AND import_id > %s AND from_timestamp < %s
)
"""
# The index begins with the entity type: one look for each type, however many events there are.
_ENTITY_TYPES = """
WITH RECURSIVE types AS (
    SELECT min(e.entity_type) AS entity_type FROM projections.events AS e
    WHERE e.db_timestamp >= %(low)s AND e.db_timestamp < %(high)s
    UNION ALL
    SELECT (
        SELECT min(e.entity_type) FROM projections.events AS e
        WHERE e.entity_type > t.entity_type AND e.db_timestamp >= %(low)s AND e.db_timestamp < %(high)s
    ) FROM types AS t WHERE t.entity_type IS NOT NULL
) SELECT entity_type FROM types WHERE entity_type IS NOT NULL
"""
_CONTENT = "SELECT c.day, c.events, c.content FROM projections._content_of_events_v1(%s, %s, %s) AS c"
_STORED = (
    "SELECT EXISTS (SELECT FROM projections._load_events_v1(ARRAY[%s], ARRAY[%s], ARRAY[%s::timestamptz]))"
)
_SEEN = """
SELECT
    EXISTS (SELECT FROM projections._load_events_v1(ARRAY[%(source)s], ARRAY[%(number)s], ARRAY[%(at)s::timestamptz])),
    EXISTS (SELECT FROM projections.events AS e WHERE e.entity_type = %(type)s AND e.db_timestamp = %(newest)s),
    coalesce((SELECT s.seq_nr >= %(number)s FROM projections.sources AS s WHERE s.source_id = %(source)s), FALSE)
    AND NOT EXISTS (
        SELECT FROM projections.events AS e
        WHERE e.source_id = %(source)s AND e.seq_nr = %(number)s AND e.db_timestamp <> %(at)s
    )
"""
_NEWEST = (
    "SELECT EXISTS (SELECT FROM projections.events AS e WHERE e.entity_type = %s AND e.db_timestamp = %s)"
)
_ROWS = """
SELECT count(*) FROM projections.events AS e
WHERE e.entity_type = %s AND e.db_timestamp >= %s AND e.db_timestamp < %s
"""


@contextmanager
def autocommit(dsn: str) -> Iterator[SyncConnection]:
    """A connection on which every statement is a transaction of its own: it may be open for hours."""
    with connect_sync(dsn) as connection:
        connection.autocommit = True
        yield connection


def types_in(connection: SyncConnection, bounds: Bounds) -> list[str]:
    """The entity types that have events in a time."""
    span = {"low": bounds.from_timestamp, "high": bounds.to_timestamp}
    return [name for (name,) in connection.execute(_ENTITY_TYPES, span)]


def types_ever(connection: SyncConnection) -> list[str]:
    """The entity types that the journal has, or has had, events of."""
    return [name for (name,) in connection.execute("SELECT projections._entity_types_v1()")]


def newer_imports(connection: SyncConnection, files: Sequence[ArchivedFile]) -> bool:
    """Whether the journal may have got events of the type and time of these files since it was compared with them."""
    one, seen = files[0], min(each.import_id for each in files)
    if seen == NOT_KNOWN:
        return True
    found = connection.execute(_NEWER_IMPORTS, (one.entity_type, seen, one.bounds.to_timestamp))
    return bool(found.fetchall()[0][0])


def stored(connection: SyncConnection, file: ArchivedFile) -> bool:
    """Whether the journal has the first event of a file, and so all of them: partitions come and go whole."""
    return stored_at(connection, *file.first, file.first_at)


def stored_at(connection: SyncConnection, source_id: str, seq_nr: int, at: datetime) -> bool:
    """Whether the journal has an event."""
    return bool(connection.execute(_STORED, (source_id, seq_nr, at)).fetchall()[0][0])


def newest_stored(connection: SyncConnection, file: ArchivedFile) -> bool:
    """Whether the journal has the newest event of a file: what a database loses when it goes back is the newest."""
    return bool(connection.execute(_NEWEST, (file.entity_type, file.max_timestamp)).fetchall()[0][0])


class Seen(NamedTuple):
    """What the journal has of a file."""

    first: bool
    """Its first event."""
    newest: bool
    """An event of its type at the time of its newest; an import may have brought another one."""
    had: bool
    """Its first event was in this journal: the source stands there or further, and no other event has its number."""


def seen(connection: SyncConnection, file: ArchivedFile) -> Seen:
    """Look for a file's first and newest event."""
    source, number = file.first
    values = {"source": source, "number": number, "at": file.first_at}
    found = connection.execute(_SEEN, values | {"type": file.entity_type, "newest": file.max_timestamp})
    return Seen(*found.fetchall()[0])


def stored_rows(connection: SyncConnection, entity_type: str, bounds: Bounds) -> int:
    """How many events of a type the journal has in a time."""
    span = entity_type, bounds.from_timestamp, bounds.to_timestamp
    return int(connection.execute(_ROWS, span).fetchall()[0][0])


def content_by_day(
    connection: SyncConnection, entity_type: str, bounds: Bounds
) -> dict[str, tuple[int, int]]:
    """Number and checksum of the journal's events by their day in UTC."""
    span = bounds.from_timestamp, bounds.to_timestamp, entity_type
    return {str(day): (count, int(content)) for day, count, content in connection.execute(_CONTENT, span)}


def archived_by_day(files: Sequence[ArchivedFile]) -> dict[str, tuple[int, int]]:
    """Number and checksum of the events in files by their day in UTC."""
    found: dict[str, tuple[int, int]] = {}
    for each in files:
        rows, content = found.get(str(each.date), (0, 0))
        found[str(each.date)] = rows + each.rows, content + each.content
    return found
