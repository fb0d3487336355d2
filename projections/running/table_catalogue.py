"""
What the database's catalogue says of a table that handlers change, checked against its declaration.

A table is refused when its rows could depend on where batches end, or when a later change could not be
written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from journal.database import Row, Session, quote
from projections.defining import ColumnOperation, Table, TableError
from projections.running.table_values import Column, ValueKind, kind_of

_RELATION = """
SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
    c.relpersistence = 't' AS is_temporary
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass($1::text)
"""

# A domain is followed to the type that its values have; on the way it may add NOT NULL and a default.
_COLUMNS = """
WITH RECURSIVE bases AS (
    SELECT attnum, atttypid AS type, atttypmod AS typmod, attnotnull AS required,
        NULL::text COLLATE "C" AS default_value
    FROM pg_catalog.pg_attribute
    WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT b.attnum, t.typbasetype, t.typtypmod, b.required OR t.typnotnull,
        coalesce(b.default_value, t.typdefault)
    FROM bases AS b
    JOIN pg_catalog.pg_type AS t ON t.oid = b.type
    WHERE t.typtype = 'd'
)
SELECT
    a.attname::text AS name,
    pg_catalog.format('%I.%I', n.nspname, t.typname) AS type,
    pg_catalog.format_type(a.atttypid, a.atttypmod) AS shown,
    CASE WHEN n.nspname = 'pg_catalog' THEN t.typname::text END AS built_in,
    t.typtype::text AS class,
    t.typcategory = 'A' AS is_array,
    b.typmod,
    b.required,
    a.attgenerated <> '' AS is_generated,
    a.attidentity::text AS identity,
    coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid), b.default_value) AS default_value,
    coalesce(c.collisdeterministic, true) AS is_deterministic
FROM bases AS b
JOIN pg_catalog.pg_type AS t ON t.oid = b.type AND t.typtype <> 'd'
JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = $1::oid AND a.attnum = b.attnum
LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_catalog.pg_collation AS c ON c.oid = a.attcollation
ORDER BY a.attnum
"""

# INSERT ... ON CONFLICT can use these: not partial, not on expressions, not deferrable.
_UNIQUE_KEYS = """
SELECT (
    SELECT pg_catalog.array_agg(a.attname::text)
    FROM pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE k.place <= i.indnkeyatts
) AS columns
FROM pg_catalog.pg_index AS i
WHERE i.indrelid = $1::oid AND i.indisunique AND i.indisvalid AND i.indimmediate
    AND i.indpred IS NULL AND i.indexprs IS NULL
"""

_ZERO = re.compile(r"\(?'?0+(\.0*)?'?\)?(::.+)?")
_NULL = re.compile(r"NULL(::.+)?", re.IGNORECASE)
_NO_TYPMOD = -1


@dataclass(frozen=True, slots=True)
class Shape:
    """A table as it is in the database."""

    oid: int
    """What identifies it there."""
    name: str
    """Its qualified name, quoted for SQL."""
    columns: Mapping[str, Column]
    """The declared columns."""


async def read_shape(session: Session, table: Table) -> Shape:
    """
    Read the catalogue and check that the table can hold what is declared.

    Args:
        session: Any session on the database; a transaction is not needed.
        table: The declaration.

    Raises:
        TableError: The table does not fit; the message names table, column and what to do.
    """
    relation = await session.fetchrow(_RELATION, quote(*table.qualified_name))
    if relation is None:
        raise TableError(
            f"table {table} is not in the database: create it, or correct its name or the search_path"
        )
    if relation["kind"] not in {"r", "p"}:
        raise TableError(f"{table} is not a table (relkind {relation['kind']!r}): name the table behind it")
    if relation["is_temporary"] and table.qualified_name[0] != "pg_temp":
        raise TableError(
            f"{table} is a temporary table here, which others do not see: name its schema, or drop it"
        )
    found = {row["name"]: row for row in await session.fetch(_COLUMNS, relation["oid"])}
    _check_columns(table, found)
    unique = await session.fetch(_UNIQUE_KEYS, relation["oid"])
    _check_unique(table, [row["columns"] for row in unique])
    declared = (*table.key, *table.operations)
    columns = {name: _column(found[name]) for name in declared}
    return Shape(relation["oid"], quote(relation["schema"], relation["name"]), columns)


def _column(row: Row) -> Column:
    return Column(
        name=row["name"],
        kind=kind_of(row["built_in"], is_enum=row["class"] == "e"),
        type=row["type"],
        shown=row["shown"],
        scale=_scale(row["typmod"]),
        has_default=_default(row) is not None,
    )


def _scale(typmod: int) -> int | None:
    """The digits that ``numeric(p, s)`` keeps after the point, as PostgreSQL packs them: signed, 11 bits."""
    return None if typmod == _NO_TYPMOD else (((typmod - 4) & 0x7FF) ^ 1024) - 1024


def _default(row: Row) -> str | None:
    default: str | None = row["default_value"]
    return None if default is None or _NULL.fullmatch(default) else default


def _check_columns(table: Table, found: Mapping[str, Row]) -> None:
    for name in (*table.key, *table.operations):
        if name not in found:
            raise TableError(
                f"table {table} has no column {name!r}: add it, or correct the declaration; "
                f"it has {', '.join(found)}"
            )
        _refuse(table, name, _unusable(found[name]))
    for name in table.key:
        _refuse(table, name, _unfit_key(found[name]))
    for name, operation in table.operations.items():
        _refuse(table, name, _CHECKS[operation](found[name]))
    for name, row in found.items():
        if name not in table.key:
            _refuse(table, name, _unfilled(row))


def _refuse(table: Table, column: str, problem: str | None) -> None:
    if problem is not None:
        raise TableError(f"table {table}: column {column!r} {problem}")


def _unusable(row: Row) -> str | None:
    if row["is_array"]:
        return f"is an array ({row['shown']}), which cannot be written set-wise: use jsonb"
    if row["class"] == "c":
        return f"is a composite ({row['shown']}), which cannot be written set-wise: use jsonb"
    if row["is_generated"] or row["identity"] == "a":
        return "is generated by the database: leave it out of the declaration"
    return None


def _unfit_key(row: Row) -> str | None:
    kind = _column(row).kind
    lossy = row["typmod"] != _NO_TYPMOD and kind is not ValueKind.TEXT
    if not kind.is_key or lossy or not row["is_deterministic"]:
        return (
            f"({row['shown']}) cannot be in the key: two values that differ in Python could be one there; "
            "use text, integer, numeric, uuid, date or timestamptz, without length or precision"
        )
    return None


def _unfilled(row: Row) -> str | None:
    filled = _default(row) is not None or row["identity"] or row["is_generated"]
    if row["required"] and not filled:
        return (
            "is NOT NULL without a default, so a change that does not mention it could not make a row: "
            "give it a DEFAULT, or drop NOT NULL"
        )
    return None


def _unfit_increment(row: Row) -> str | None:
    if _column(row).kind not in {ValueKind.INTEGER, ValueKind.NUMERIC}:
        return f"({row['shown']}) cannot be incremented exactly: use integer, bigint or numeric"
    default = _default(row)
    if default is not None and not _ZERO.fullmatch(default):
        return f"is incremented, which starts from zero, but has DEFAULT {default}: make it DEFAULT 0"
    return None


def _unfit_extreme(row: Row) -> str | None:
    if not _column(row).kind.is_ordered or not row["is_deterministic"]:
        return (
            f"({row['shown']}) has no order that Python shares, so it cannot keep a minimum or maximum: "
            "use a number, text, date, time or uuid"
        )
    default = _default(row)
    if default is not None:
        return (
            f"keeps a minimum or maximum, which starts from nothing, but has DEFAULT {default}: "
            "drop the DEFAULT, and NOT NULL with it"
        )
    if row["required"]:
        return "keeps a minimum or maximum, which starts from nothing, but is NOT NULL: drop NOT NULL"
    return None


def _check_unique(table: Table, found: Iterable[list[str] | None]) -> None:
    if not any(columns is not None and set(columns) == set(table.key) for columns in found):
        columns = ", ".join(map(quote, table.key))
        raise TableError(
            f"table {table} has no primary key or unique index on exactly ({columns}), not partial, "
            f"not deferrable: ALTER TABLE {quote(*table.qualified_name)} ADD PRIMARY KEY ({columns})"
        )


_CHECKS = {
    ColumnOperation.SET: lambda _: None,
    ColumnOperation.INCREMENT: _unfit_increment,
    ColumnOperation.MINIMUM: _unfit_extreme,
    ColumnOperation.MAXIMUM: _unfit_extreme,
}
