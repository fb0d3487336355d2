"""
Whether what a rebuild has built is what the journal says, asked of the database in other ways than it was built.

Counts of events per slice are compared with the journal; shared tables add up to what was staged for them; and of
tables whose rows belong to one source, some sources are folded again by plain Python and compared row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from journal import OwnedSession, Session, latest_seq_nr
from journal.database import quote
from projections.defining import ColumnOperation, Kind, Table, projection_of
from spark_projections.errors import RebuildFailed
from spark_projections.rebuilds.bookkeeping import Rebuild, RebuiltTable
from spark_projections.rebuilds.comparing import Rows
from spark_projections.rebuilds.definition import tables_of
from spark_projections.rebuilds.journal import RebuiltFrom
from spark_projections.rebuilds.refolding import Handled, refolding
from spark_projections.rebuilds.shadow import schema_of

_FOLDED = "SELECT o.slice, sum(o.events)::bigint AS events FROM {schema}._last AS o GROUP BY o.slice"
_SOURCES = """
SELECT s.source_id FROM projections.sources AS s
WHERE s.entity_type = ANY ($1) AND s.slice BETWEEN $2 AND $3 AND s.db_timestamp <= $4 AND s.seq_nr > 0
AND s.source_id > $5 ORDER BY s.source_id LIMIT $6
"""
_NOT_FOLDED = """
SELECT k.source_id FROM unnest($1::text[]) AS k (source_id)
WHERE NOT EXISTS (SELECT FROM {schema}._last AS n WHERE n.source_id = k.source_id COLLATE "C")
"""
# Where a source is that workers have handled, and the journal has no event of any more.
_GONE_ELSEWHERE = """
SELECT o.source_id FROM projections.source_offsets AS o
WHERE o.projection_id = $1 AND o.slice BETWEEN $2 AND $3 AND o.db_timestamp <= $4
AND NOT EXISTS (SELECT FROM {schema}._last AS n WHERE n.source_id = o.source_id)
ORDER BY o.source_id
"""
_DOUBLED = """
SELECT n.source_id, n.events, n.seq_nr FROM {schema}._last AS n
WHERE n.events > n.seq_nr OR (NOT $1 AND n.events <> n.seq_nr) LIMIT 1
"""
_GONE = """
SELECT k.source_id FROM unnest($1::text[]) AS k (source_id)
WHERE (SELECT e.seq_nr FROM projections.events AS e WHERE e.source_id = k.source_id COLLATE "C" LIMIT 1) IS NULL
"""
_PAGE = 10_000
# The same ones for each run, and spread over all sources.
_SAMPLE = """
SELECT source_id, db_timestamp, seq_nr, events FROM {schema}._last
WHERE seq_nr <= $2 ORDER BY hashtextextended(source_id, 0) LIMIT $1
"""
SAMPLE = 20
"""Sources that are folded again."""
_LONGEST = 100_000
"""A source with more events than this is not in the sample."""


async def compare_counts(
    session: OwnedSession, rebuild: Rebuild, journal: RebuiltFrom, entity_types: Sequence[str] | None
) -> None:
    """
    Compare the events folded in each slice with those in the journal.

    RebuildFailed: they differ, and no import since the fence explains it. Another system may have deleted some since
    they were folded; their numbers there show whether any was folded twice.
    """
    stored = await journal.events_by_slice(session, rebuild, entity_types)
    rows = await session.fetch(_FOLDED.format(schema=schema_of(rebuild.rebuild_id)))
    folded = {row["slice"]: row["events"] for row in rows}
    differing = [
        (number, stored.get(number, 0), folded.get(number, 0))
        for number in sorted(stored.keys() | folded.keys())
        if stored.get(number) != folded.get(number)
    ]
    if not differing:
        return
    if journal.log.has_tokens:
        # Events with older times that were imported meanwhile are for the live workers.
        imported = await journal.imported_since(session, rebuild)
        wrong = [one for one in differing if not imported or one[1] < one[2]]
    else:
        wrong = [one for one in differing if one[1] > one[2]]
    if wrong:
        number, there, here = wrong[0]
        gone = any(there < here for _, there, here in wrong)
        raise RebuildFailed(
            f"{len(wrong)} slices do not add up: of slice {number} {here:,} events were folded, and "
            f"{there:,} are in the journal up to {rebuild.fence.time}"
            + (": events were deleted, or dropped by force with their partition" if gone else "")
        )


async def look_for_doubled_events(session: Session, rebuild: Rebuild, *, from_first_kept: bool) -> None:
    """
    Make sure by their numbers that no event was folded twice, where the journal may have fewer than were folded.

    RebuildFailed: one was.
    """
    query = _DOUBLED.format(schema=schema_of(rebuild.rebuild_id))
    if (row := await session.fetchrow(query, from_first_kept)) is not None:
        raise RebuildFailed(
            f"of source {row['source_id']!r}, {row['events']:,} events were folded, up to seq_nr {row['seq_nr']:,}"
        )


async def look_for_lost_sources(
    session: OwnedSession, rebuild: Rebuild, journal: RebuiltFrom, entity_types: Sequence[str] | None
) -> None:
    """
    Make sure that there is no source of which the journal has no event any more: its rows would be missing.

    Journals of other systems keep no list of what they had: of those, only what workers have handled lately is known.

    RebuildFailed: there is one.
    """
    lost = (
        await _lost_sources(session, rebuild, journal, entity_types)
        if journal.log.has_tokens
        else await _deleted_sources(session, rebuild, journal)
    )
    if lost:
        raise RebuildFailed(
            f"all events of {len(lost):,} sources, such as {lost[0]!r}, are no longer in the journal: restore "
            "them, or build from those that are left: --from-first-kept"
        )


async def _deleted_sources(session: OwnedSession, rebuild: Rebuild, journal: RebuiltFrom) -> list[str]:
    """Of sources that workers have handled and the rebuild has not found, those that are not there at all."""
    query = _GONE_ELSEWHERE.format(schema=schema_of(rebuild.rebuild_id))
    rows = await session.fetch(query, rebuild.projection_id, *rebuild.slices, rebuild.fence.time)
    async with journal.reading(session) as (reading, queries):
        return [
            row["source_id"]
            for row in rows
            if not await latest_seq_nr(reading, row["source_id"], queries=queries)
        ]


async def _lost_sources(
    session: OwnedSession, rebuild: Rebuild, journal: RebuiltFrom, entity_types: Sequence[str] | None
) -> list[str]:
    """Sources that the journal knows to have had, and has no event of."""
    not_folded, lost, after = _NOT_FOLDED.format(schema=schema_of(rebuild.rebuild_id)), list[str](), ""
    async with journal.reading_all(session) as (reading, _):
        for one in (session, reading):
            await one.execute(
                "SET LOCAL enable_seqscan = off"
            )  # each is looked up, whatever the statistics say
        while page := await reading.fetch(
            _SOURCES, entity_types, *rebuild.slices, rebuild.fence.time, after, _PAGE
        ):
            after = page[-1]["source_id"]
            unknown = await session.fetch(not_folded, [row["source_id"] for row in page])
            gone = await reading.fetch(_GONE, [row["source_id"] for row in unknown]) if unknown else ()
            lost += [row["source_id"] for row in gone]
    return lost


async def compare_sums(session: Session, rebuild_id: int, table: RebuiltTable, declared: Table) -> None:
    """Compare keys and sums of a combined table with its staged parts."""
    schema = schema_of(rebuild_id)
    built, parts = quote(schema, table.name), quote(schema, f"_staged_{table.place}")
    added = [
        quote(name)
        for name, operation in declared.operations.items()
        if operation is ColumnOperation.INCREMENT
    ]
    sums = "".join(f", coalesce(sum({name}), 0)" for name in added)
    keys = f"SELECT DISTINCT {', '.join(map(quote, declared.key))} FROM {parts}"
    (clone,) = await session.fetch(f"SELECT count(*){sums} FROM {built}")
    (staged,) = await session.fetch(f"SELECT (SELECT count(*) FROM ({keys}) AS k){sums} FROM {parts}")
    if [*clone.values()] != [*staged.values()]:
        raise RebuildFailed(
            f"table {declared} does not add up to its parts: {[*clone.values()]}, {[*staged.values()]}"
        )


async def compare_sample(
    session: OwnedSession, rebuild: Rebuild, journal: RebuiltFrom, definition: Any
) -> int:
    """
    Fold some sources again by plain Python, and compare their rows; returns how many sources that were.

    In an open transaction, where it makes temporary tables.
    """
    projection = projection_of(definition)
    # Again: a class that is defined in a function is unpickled, with what it refers to, by tasks in this process.
    tables = [one.table for one in tables_of(definition) if one.table is not None]
    if projection.kind not in {Kind.TABLE, Kind.STATEMENT} or not any(table.per_source for table in tables):
        return 0
    schema = schema_of(rebuild.rebuild_id)
    found = await session.fetch(_SAMPLE.format(schema=schema), SAMPLE, _LONGEST)
    rows = Rows(tables, schema=schema)
    await rows.create(session)
    # What cannot be handled was skipped, and what is gone was left out, or this would not have been built.
    async with (
        journal.reading_once(session) as reading,
        refolding(session, reading, projection, rows, skip=True, from_first_kept=True) as again,
    ):
        sampled = [
            Handled(*values)
            for *values, events in (row.values() for row in found)
            if await reading.has_kept(values[0], values[-1], events)
        ]
        source_ids = [one.source_id for one in sampled]
        await again.fold(sampled)
    if (differing := await rows.differences(session, source_ids, 1)).total:
        one = differing.rows[0]
        raise RebuildFailed(
            f"table {one.table}: folding its source again gives another row {one.key}: "
            f"it is {one.kind}, {one.columns}"
        )
    return len(sampled)
