"""Putting the parts of a rebuild together: where each source stands, and the rows that sources share."""

from __future__ import annotations

from collections.abc import Sequence

from journal import OwnedSession
from journal.database import quote
from spark_projections.rebuilds import bookkeeping
from spark_projections.rebuilds.definition import WrittenTable
from spark_projections.rebuilds.shadow import combine, schema_of
from spark_projections.rebuilds.verifying import compare_sums

_LAST = """
CREATE TABLE {schema}._last AS
SELECT o.source_id, min(o.slice)::smallint AS slice, max(o.seq_nr) AS seq_nr,
    -- That of the last event: in a journal of another system, one before it may be later.
    (array_agg(o.db_timestamp ORDER BY o.seq_nr DESC))[1] AS db_timestamp,
    max(o.newest) AS newest, sum(o.events)::bigint AS events
FROM {schema}._offsets AS o GROUP BY o.source_id
"""


async def combine_parts(session: OwnedSession, rebuild_id: int, written: Sequence[WrittenTable]) -> None:
    """In one transaction: where it has been done, by a run that broke later, the last offsets are there."""
    schema = quote(schema_of(rebuild_id))
    async with bookkeeping.transaction(session):
        if await session.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{schema}._last"):
            return
        await session.execute(_LAST.format(schema=schema))
        await session.execute(f"ALTER TABLE {schema}._last ADD PRIMARY KEY (source_id)")
        await session.execute(f"ANALYZE {schema}._last")
        tables = await bookkeeping.rebuilt_tables(session, rebuild_id)
        for table, one in zip(tables, written, strict=True):
            if one.table is not None and one.shared:
                await combine(session, rebuild_id, table.place, one.table)
                await compare_sums(session, rebuild_id, table, one.table)
