"""
Writing the tables of a rebuild: the same rows as live workers write, to tables that nobody reads yet.

A row that one source makes is upserted into the clone of its table. A row that several sources share would have every
task wait for its lock, so each stages its part of it, and the parts are combined when all are there. The operations of
such a table (sum, minimum, maximum) give the same whatever the parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from journal import Session
from journal.database import quote
from projections.defining import Batch, ColumnOperation, Folded, Table, TableError
from projections.running import Column, Shape, TableWriter, ValueKind, encode_column, read_shape
from spark_projections.rebuilds.definition import WrittenTable


def schema_of(rebuild_id: int) -> str:
    """The schema that a rebuild builds in."""
    return f"projections_rebuild_{rebuild_id}"


def staged_columns(table: Table) -> tuple[str, ...]:
    """What is staged of a row."""
    return (*table.key, *table.operations)


class ShadowWriter:
    """Writes folded batches to the tables of a rebuild."""

    def __init__(self, rebuild_id: int, written: Sequence[WrittenTable]) -> None:
        self._writer = TableWriter()
        self._schema = schema_of(rebuild_id)
        tables = [(place, one.table) for place, one in enumerate(written, 1) if one.table is not None]
        self._clones = {table: table.within(self._schema) for _, table in tables}
        self._staged = {table: f"_staged_{place}" for place, table in tables if not table.per_source}
        self._upserted = {table: clone for table, clone in self._clones.items() if table.per_source}
        self._shapes: dict[Table, Shape] = {}

    async def prepare(self, session: Session, *tables: Table) -> None:
        """Check before the first change that the rebuild builds these tables, and that they fit; else TableError."""
        for table in tables:
            if table not in self._clones:
                raise TableError(
                    f"a handler changes table {table}, which is not known to be one of the projection's: "
                    "declare all of them, @projection(..., tables=(...))"
                )
        await self._writer.prepare(
            session, *(self._upserted[table] for table in tables if table in self._upserted)
        )
        for table in tables:
            if table in self._staged and table not in self._shapes:
                self._shapes[table] = await read_shape(session, self._clones[table])

    async def write(self, session: Session, batch: Batch) -> None:
        """Write a batch in the session's transaction; raises what the writer of tables raises."""
        await self.prepare(session, *batch.tables)
        await self._writer.write(session, batch.within(self._upserted))
        for table, rows in batch.tables.items():
            if table in self._staged:
                await self._stage(session, table, rows)

    async def _stage(self, session: Session, table: Table, rows: Mapping[tuple[Any, ...], Folded]) -> None:
        columns = self._shapes[table].columns
        keys = zip(*rows, strict=True)
        values = [[(row.values or {}).get(name) for row in rows.values()] for name in table.operations]
        names = staged_columns(table)
        encoded = [
            encode_column(table, columns[name], list(column))
            for name, column in zip(names, (*keys, *values), strict=True)
        ]
        await session.copy_rows((self._schema, self._staged[table]), names, list(zip(*encoded, strict=True)))


async def combine(session: Session, rebuild_id: int, place: int, table: Table) -> None:
    """Combine the staged parts of a table's rows into its clone, in an open transaction."""
    schema = schema_of(rebuild_id)
    shape = await read_shape(session, table.within(schema))
    key = ", ".join(map(quote, table.key))
    combined = [_combined(table, shape.columns[name]) for name in table.operations]
    await session.execute(
        f"INSERT INTO {shape.name} ({', '.join(map(quote, staged_columns(table)))}) "
        f"SELECT {', '.join([key, *combined])} FROM {quote(schema, f'_staged_{place}')} GROUP BY {key} ORDER BY {key}"
    )


def _combined(table: Table, column: Column) -> str:
    name = quote(column.name)
    match table.operations[column.name]:
        case ColumnOperation.INCREMENT:
            # As in a live row: what nobody mentions takes the default, which is zero.
            return f"coalesce(sum({name}), 0)" if column.has_default else f"sum({name})"
        case operation:
            # Not min() and max(): these do not take every type that has an order. Texts compare by code point.
            order = f'{name} COLLATE "C"' if column.kind is ValueKind.TEXT else name
            direction = "ASC" if operation is ColumnOperation.MINIMUM else "DESC"
            return f"(array_agg({name} ORDER BY {order} {direction} NULLS LAST))[1]"
