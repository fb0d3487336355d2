"""The sources of a journal, wherever it is: how many there are, some of them, or all, by pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import NamedTuple

from journal import JOURNAL, EntityTypes, read_source
from journal.database import Row
from spark_projections.reading.literals import literal
from spark_projections.rebuilds.journal import JournalSession, plan_as_a_whole, plan_by_indexes

PAGE = 1_000
_OURS = f"""
SELECT s.source_id, s.seq_nr, s.db_timestamp FROM {JOURNAL.sources} AS s
WHERE coalesce(s.entity_type = ANY ($1), TRUE)
"""
# One may have events of several entity types there.
_OTHERS = """
SELECT min(s.source_id) AS source_id, max(s.seq_nr) AS seq_nr, max(s.db_timestamp) AS db_timestamp FROM {sources} AS s
WHERE coalesce(s.entity_type = ANY ({types}), TRUE) GROUP BY s.source
"""
_NEXT = "AND s.source_id > $2 ORDER BY s.source_id LIMIT $3"
_GIVEN = "AND s.source_id = ANY ($2)"


class Source(NamedTuple):
    """A source, and its last event."""

    source_id: str
    seq_nr: int
    db_timestamp: datetime


def _listed(reading: JournalSession, entity_types: EntityTypes) -> tuple[str, Sequence[object]]:
    """The query of all, and its values."""
    if reading.queries is JOURNAL:
        return _OURS, (entity_types.sql,)
    types = "NULL::text[]" if entity_types.names is None else literal(entity_types.names)
    return _OTHERS.format(sources=reading.queries.sources, types=types), ()


def _sources(rows: Sequence[Row]) -> list[Source]:
    return [Source(*row.values()) for row in rows]


async def number_of_sources(reading: JournalSession, entity_types: EntityTypes) -> int:
    """How many there are."""
    query, values = _listed(reading, entity_types)
    return int(await reading.session.fetchval(f"SELECT count(*) FROM ({query}) AS s", *values))


async def some_sources(reading: JournalSession, entity_types: EntityTypes, number: int) -> list[Source]:
    """So many, others each time."""
    query, values = _listed(reading, entity_types)
    sampled = f"SELECT s.* FROM ({query}) AS s ORDER BY random() LIMIT {number:d}"
    return _sources(await reading.session.fetch(sampled, *values))


async def known_sources(
    reading: JournalSession, entity_types: EntityTypes, source_ids: Sequence[str]
) -> list[Source]:
    """Those of these that the journal has, with events of the types."""
    if reading.queries is JOURNAL:
        return _sources(await reading.session.fetch(_OURS + _GIVEN, entity_types.sql, list(source_ids)))
    found: list[Source] = []
    for source_id in source_ids:
        async for last in read_source(reading.session, source_id, backwards=True, queries=reading.queries):
            if last.entity_type in entity_types:
                found.append(Source(source_id, last.seq_nr, last.db_timestamp))
                break
    return found


async def all_sources(reading: JournalSession, entity_types: EntityTypes) -> AsyncIterator[list[Source]]:
    """All, by pages; in a transaction of the journal, which sees them as of one moment."""
    query, values = _listed(reading, entity_types)
    if reading.queries is JOURNAL:
        after = ""
        while rows := await reading.session.fetch(query + _NEXT, *values, after, PAGE):
            after = rows[-1]["source_id"]
            yield _sources(rows)
        return
    # What leads through them in an order is not known: all are gone through once.
    await plan_as_a_whole(reading.session)
    await reading.session.execute(f"DECLARE listed NO SCROLL CURSOR FOR {query}")
    await plan_by_indexes(reading.session)
    while rows := await reading.session.fetch(f"FETCH {PAGE} FROM listed"):
        yield _sources(rows)
    await reading.session.execute("CLOSE listed")
