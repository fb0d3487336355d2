"""
Comparing rows of a read model with what the handlers make of the events that its workers have handled.

The events are handled again as live workers do it, into temporary tables of the transaction, and the database compares.
What is compared must belong together: the offsets, the events up to them, and the rows. So it is done in one snapshot,
or while nobody can write to the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from journal import Session
from journal.database import quote
from projections.defining import Batch, Table, TableError
from projections.running import Shape, TableWriter, ValueKind, read_shape

# Columns that the database fills with something else each time: from a sequence, or by any volatile function.
_FILLED = """
SELECT a.attname::text AS name, coalesce(a.attnum = ANY (i.indkey::int2[]), FALSE) AS is_primary
FROM pg_catalog.pg_attribute AS a
JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_catalog.pg_index AS i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND (
    a.attidentity <> '' OR EXISTS (
        SELECT FROM pg_catalog.regexp_matches(
            coalesce(d.adbin, t.typdefaultbin)::text, ':(?:funcid|opfuncid) ([0-9]+)', 'g'
        ) AS f (found)
        JOIN pg_catalog.pg_proc AS p ON p.oid = f.found[1]::oid
        WHERE p.provolatile = 'v'
    )
)
"""


class Difference(NamedTuple):
    """A row that is not what the journal says."""

    table: str
    key: dict[str, str]
    kind: str
    """``missing``, ``surplus`` or ``different``."""
    columns: dict[str, tuple[str | None, str | None]]
    """Of those that differ, what the read model has and what the journal says, as texts."""


class Differences(NamedTuple):
    """Rows of a table that are not what the journal says."""

    rows: list[Difference]
    """The first ones, by their keys."""
    total: int


class Rows:
    """
    What rows of a read model should be, in temporary tables; it takes the changes that handlers return.

    Args:
        tables: Of the projection.
        whole: Whether all rows are compared; else only those of sources, and of tables whose rows belong to one.
        schema: Where the tables are that are compared, if not where they are declared.
    """

    def __init__(self, tables: Sequence[Table], *, whole: bool = False, schema: str | None = None) -> None:
        self._writer = TableWriter()
        self._tables = tables
        self._compared = [table for table in tables if whole or table.per_source]
        self._schema = schema
        self._whole = whole
        self._shapes: dict[Table, Shape] = {}
        self._expected = {table: table.within("pg_temp") for table in tables}
        # The keys that sources have touched, also of rows that they have deleted, where no column tells the source.
        self._touched = {
            table: Table(("pg_temp", f"_touched_{place}"), key=table.key, per_source=True)
            for place, table in enumerate(self._compared)
            if table.source is None and not whole
        }

    @property
    def names(self) -> list[str]:
        """The tables, quoted for SQL, in the order in which batches write to them."""
        return sorted(shape.name for shape in self._shapes.values())

    async def create(self, session: Session) -> None:
        """Make the temporary tables, in an open transaction; TableError: a table does not fit its declaration."""
        for table in self._tables:  # before one of the same name hides it
            place = table if self._schema is None else table.within(self._schema)
            self._shapes[table] = await read_shape(session, place)
        for table, shape in self._shapes.items():
            name = quote(table.qualified_name[-1])
            await session.execute(
                f"CREATE TEMPORARY TABLE {name} (LIKE {shape.name} INCLUDING ALL EXCLUDING IDENTITY) ON COMMIT DROP"
            )
            for column in await session.fetch(_FILLED, shape.oid):
                await session.execute(
                    f"ALTER TABLE pg_temp.{name} {_unfilled(table, column['name'], is_primary=column['is_primary'])}"
                )
        for table, touched in self._touched.items():
            name, key = quote(touched.qualified_name[-1]), _listed(table.key)
            await session.execute(
                f"CREATE TEMPORARY TABLE {name} ON COMMIT DROP AS "
                f"SELECT {key} FROM {self._shapes[table].name} WITH NO DATA"
            )
            await session.execute(f"CREATE UNIQUE INDEX ON {name} ({key})")

    async def prepare(self, session: Session, *tables: Table) -> None:
        """Check tables before the first change comes; raises TableError."""
        for table in tables:
            if table not in self._expected:
                raise TableError(
                    f"a handler changes table {table}, which is not known to be one of the projection's: "
                    "declare all of them, @projection(..., tables=(...))"
                )
        await self._writer.prepare(session, *(self._expected[table] for table in tables))

    async def write(self, session: Session, batch: Batch) -> None:
        """Write a batch in the session's transaction; raises TableError and journal.DatabaseError."""
        await self._writer.write(session, batch.within(self._expected))
        touched = Batch()
        for table, rows in batch.within(self._touched).tables.items():
            for key, row in rows.items():
                touched.add(row.source_id, table.upsert(**dict(zip(table.key, key, strict=True))))
        await self._writer.write(session, touched)

    async def differences(self, session: Session, source_ids: Sequence[str], limit: int) -> Differences:
        """Compare the rows of sources that were handled again, or all, with what they should be; up to a limit."""
        found, total = list[Difference](), 0
        for table in self._compared:
            args = () if self._whole or table.source is None else (list(source_ids),)
            rows = await session.fetch(self._compare(table, limit - len(found)), *args)
            found += [_difference(table, row) for row in rows[: limit - len(found)]]
            total += rows[0]["total"] if rows else 0
        return Differences(found, total)

    def _compare(self, table: Table, limit: int) -> str:
        first = quote(table.key[0])
        scope = self._shapes[table].name if self._whole else f"({self._scope(table)})"
        keys = [f"coalesce(t.{quote(c)}, x.{quote(c)})::text" for c in table.key]
        columns = [f"{side}.{quote(c)}::text" for c in table.operations for side in "tx"]
        marks = [f"t.{first} IS NULL AS missing", f"x.{first} IS NULL AS surplus"]
        # With names of its own: those of columns may be any.
        named = ", ".join(f"{one} AS c{place}" for place, one in enumerate(keys + columns))
        order = ", ".join(f"coalesce(t.{quote(c)}, x.{quote(c)})" for c in table.key)
        return (
            f"SELECT count(*) OVER () AS total, {', '.join(marks)}, {named} "
            f"FROM {scope} AS t FULL JOIN {self._name(table)} AS x ON {_same(table)} "
            f"WHERE t.{first} IS NULL OR x.{first} IS NULL OR {self._differs(table)} "
            f"ORDER BY {order} LIMIT {max(limit, 1)}"
        )

    def _scope(self, table: Table) -> str:
        """The rows of the sources."""
        name = self._shapes[table].name
        if table.source is not None:
            return f"SELECT t.* FROM {name} AS t WHERE t.{quote(table.source)}::text = ANY($1)"
        touched = quote(*self._touched[table].qualified_name)
        return f"SELECT t.* FROM {touched} AS x INNER JOIN {name} AS t ON {_same(table)}"

    def _name(self, table: Table) -> str:
        return quote(*self._expected[table].qualified_name)

    def _differs(self, table: Table) -> str:
        """By the texts, for not every type has an equality; of numbers, digits that say nothing do not count."""
        columns = self._shapes[table].columns
        casts = {c: "" if columns[c].kind is ValueKind.NUMERIC else "::text" for c in table.operations}
        return " OR ".join(
            [f"t.{quote(c)}{cast} IS DISTINCT FROM x.{quote(c)}{cast}" for c, cast in casts.items()]
            or ["FALSE"]
        )

    async def replace(self, session: Session, source_ids: Sequence[str]) -> None:
        """Make the rows of sources what they should be; those that are so and undeclared columns are not touched."""
        for table in self._compared:
            name, expected, same = self._shapes[table].name, self._name(table), _same(table)
            args = () if table.source is None else (list(source_ids),)
            key = _listed(table.key)
            await session.execute(
                f"DELETE FROM {name} AS t WHERE ({key}) IN (SELECT {key} FROM ({self._scope(table)}) AS s) "
                f"AND NOT EXISTS (SELECT FROM {expected} AS x WHERE {same})",
                *args,
            )
            if table.operations:
                columns = ", ".join(f"{quote(c)} = x.{quote(c)}" for c in table.operations)
                await session.execute(
                    f"UPDATE {name} AS t SET {columns} FROM {expected} AS x WHERE {same} AND ({self._differs(table)})"
                )
            names = _listed((*table.key, *table.operations))
            await session.execute(
                f"INSERT INTO {name} ({names}) SELECT {names} FROM {expected} AS x "
                f"WHERE NOT EXISTS (SELECT FROM {name} AS t WHERE {same})"
            )


def _unfilled(table: Table, name: str, *, is_primary: bool) -> str:
    """
    What keeps a row that should be from drawing on a sequence, or on whatever a default calls.

    A column that the table does not declare is not compared, and goes, with what checks or generates by it.
    """
    column = quote(name)
    if name in table.key:
        return f"ALTER {column} SET DEFAULT NULL"
    if name not in table.operations:
        return f"DROP {column} CASCADE"
    return f"ALTER {column} SET DEFAULT NULL" + ("" if is_primary else f", ALTER {column} DROP NOT NULL")


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(quote, columns))


def _same(table: Table) -> str:
    return " AND ".join(f"t.{quote(c)} = x.{quote(c)}" for c in table.key)


def _difference(table: Table, row: Mapping[str, Any]) -> Difference:
    _, missing, surplus, *values = row.values()
    texts = values[len(table.key) :]
    pairs = zip(table.operations, texts[::2], texts[1::2], strict=True)
    return Difference(
        str(table),
        dict(zip(table.key, values, strict=False)),
        "missing" if missing else "surplus" if surplus else "different",
        {name: (here, there) for name, here, there in pairs if here != there},
    )
