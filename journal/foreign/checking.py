"""Checks of a table before it is read in place: it is as the mapping says, and nothing of it can be lost."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from journal.backtracking import END_OF_TIME
from journal.database import Database, Fault, OwnedSession, Row, Session, fault_of, sqlstate_of
from journal.database.identifiers import quote
from journal.errors import DatabaseError, ForeignJournalError
from journal.events import BEGINNING, Position
from journal.foreign.mapping import VALUES, Constant, TableMapping
from journal.foreign.queries import (
    BYTES_TYPE,
    INTEGER_TYPES,
    TEXT_TYPES,
    column,
    filled,
    in_no_slice,
    queries_of,
    sql_of,
)
from journal.log import Log
from journal.reader import PAGE_BYTES, PAGE_SIZE
from journal.slices import ALL_SLICES

log = logging.getLogger("projections")

PAGE_LIMIT = timedelta(seconds=10)
"""How long a page that is measured may take."""
_COUNT_LIMIT = timedelta(seconds=5)
_LIMIT = "SELECT set_config('statement_timeout', $1, TRUE)"
_CANCELLED = "57014"
_GRANTED = """
SELECT
    current_user::text AS role, pg_catalog.has_schema_privilege(n.oid, 'USAGE') AS schema,
    CASE WHEN pg_catalog.has_schema_privilege(n.oid, 'USAGE') THEN
        pg_catalog.has_any_column_privilege(pg_catalog.to_regclass($2::text), 'SELECT')
    END AS rows
FROM pg_catalog.pg_namespace AS n WHERE n.nspname = $1::text
"""

_KEY_TYPES = TEXT_TYPES | INTEGER_TYPES | {"uuid"}
_WANTED = {
    "source": _KEY_TYPES,
    "number": INTEGER_TYPES,
    "payload": TEXT_TYPES | {"json", "jsonb", BYTES_TYPE},
    "metadata": TEXT_TYPES | {"json", "jsonb", BYTES_TYPE},
    "tags": {"text[]", "character varying[]"},
    "event_id": {"uuid"},
    "version": INTEGER_TYPES,
    "deleted": {"boolean"},
    "slice": INTEGER_TYPES,
    "serializer_id": INTEGER_TYPES,
    "metadata_serializer_id": INTEGER_TYPES,
}
_POSITIONS = {"sequence": {"bigint", "integer"}, "transaction-start": {"timestamp with time zone"}}


@dataclass(frozen=True, slots=True)
class ReadableTable:
    """
    A table that can be read, and what was found out about it.

    Args:
        queries: The queries of its log.
        advice: What would make reading it cheaper, each with the statement, and whether rows cannot be read; nothing is
            done by itself.
        passed_over: How many rows no projection gets.
    """

    queries: dict[str, str]
    advice: tuple[str, ...]
    passed_over: int = 0


async def check(session: OwnedSession, mapping: TableMapping) -> ReadableTable:
    """
    Find out whether a table can be read in place; the session is outside a transaction.

    Raises:
        ForeignJournalError: A column is missing or of another type, a number is there twice, a privilege is missing, or
            a setting breaks the argument that nothing is lost; the message says which, and what to do.
    """
    types = await _types(session, mapping, mapping.name)
    for name in mapping.names[1:]:
        if (others := await _types(session, mapping, name)) != types:
            raise ForeignJournalError(
                f"table {name}: its types are {others}, and those of {mapping.name} {types}"
            )
    await _check_settings(session, mapping)
    sequence = await _sequence(session, mapping) if mapping.bound == "sequence" else None
    advice: list[str] = []
    by_slice = False
    for name in mapping.names:
        await _check_table(session, name)
        indexes = await _indexes(session, name)
        if not any(
            index.is_unique and set(index.columns) == {mapping.source, mapping.number} for index in indexes
        ):
            await _check_numbers(session, mapping, name)
        by_slice |= _needs_slices(mapping, indexes)
        for row in await session.fetch(filled("check_partitions"), name):  # where CONCURRENTLY works
            part = quote(row["schema"], row["name"])
            advice += _advice(mapping, part, await _indexes(session, part), by_slice=by_slice)
    queries = queries_of(mapping, types, sequence=sequence, by_slice=by_slice)
    passed_over: int = await session.fetchval(queries["passed_over"])
    if passed_over:
        advice.append(f"{Log.passed_over_said(passed_over)} (table {mapping.name})")
    if mapping.slice is not None and not by_slice and (count := await _in_no_slice(session, mapping, types)):
        advice.append(f"{count:,} events are passed over: their slice is not one of 0 to 1023")
    return ReadableTable(queries, tuple(advice), passed_over)


async def _in_no_slice(session: OwnedSession, mapping: TableMapping, types: Mapping[str, str]) -> int:
    """How many rows have a slice that is none, as far as that can be counted in short."""
    try:
        async with session.transaction():
            await session.fetch(_LIMIT, f"{_COUNT_LIMIT // timedelta(milliseconds=1)}ms")
            return int(await session.fetchval(in_no_slice(mapping, types)))
    except DatabaseError as error:
        if sqlstate_of(error) == _CANCELLED:
            return 0
        raise


class _Index:
    """An index of the table."""

    def __init__(self, row: Row) -> None:
        self.is_unique = bool(row["is_unique"])
        self.columns: list[str | None] = row["columns"]

    def begins_with(self, *names: str) -> bool:
        return self.columns[: len(names)] == [*names]


async def _indexes(session: Session, table: str) -> list[_Index]:
    return [_Index(row) for row in await session.fetch(filled("check_indexes"), table)]


async def _types(session: Session, mapping: TableMapping, table: str) -> dict[str, str]:
    """The SQL types of all parts, each asked for by itself, so that an error says which part is wrong."""
    found: dict[str, str] = {}
    parts = {name: column(getattr(mapping, name)) for name in ("source", "number", "position")}
    given = {name: value for name in VALUES if (value := getattr(mapping, name)) is not None}
    parts |= {name: sql_of(value) for name, value in given.items()}
    for name, sql in parts.items():
        if isinstance(given.get(name), Constant):
            found[name] = "text"
            continue
        try:
            found[name] = await session.fetchval(filled("check_type", part=sql, rows=table))
        except DatabaseError as error:
            if fault_of(error) in {Fault.DATABASE, Fault.BATCH}:  # which would have refused any mapping
                raise
            said = await _missing_grant(session, mapping, table) or error
            raise ForeignJournalError(f"table {table}, {name}: {said}") from error
        wanted = _POSITIONS[mapping.bound] if name == "position" else _WANTED.get(name, {"text"})
        if found[name] not in wanted and (name in _WANTED or name == "position" or found[name] == "record"):
            raise ForeignJournalError(
                f"table {table}, {name}: its type is {found[name]}, and must be {' or '.join(sorted(wanted))}"
            )
    return found


async def _missing_grant(session: Session, mapping: TableMapping, table: str) -> str | None:
    """What the role lacks to read a table, as the statement that grants it."""
    schema = quote(mapping.schema)
    row = await session.fetchrow(_GRANTED, mapping.schema, table)
    if row is None or (row["schema"] and row["rows"] is not False):  # NULL: there is no such table
        return None
    role = quote(row["role"])
    if not row["schema"]:
        return f"permission denied for schema {schema}: GRANT USAGE ON SCHEMA {schema} TO {role}"
    return f"permission denied: GRANT SELECT ON {table} TO {role}"


async def _check_table(session: Session, table: str) -> None:
    """Refuse what is not written by locking it, in this database."""
    found = await session.fetchrow(filled("check_table"), table)
    assert found is not None  # noqa: S101 - its columns have been looked at
    if found["kind"] not in {"r", "p"} or found["has_children"]:
        raise ForeignJournalError(
            f"{table} is not a table of its own (a view, a foreign table, or one that others inherit from): who writes"
            " its rows locks another, and late commits would be lost. Map the table that is written to"
        )
    if found["is_partition"]:
        raise ForeignJournalError(
            f"table {table} is a partition: map the whole table, which writers lock first"
        )
    if found["is_replicated"]:
        raise ForeignJournalError(
            f"table {table} is filled by a subscription: its rows were numbered and stamped in another database, and "
            "come later. Connect to that one"
        )
    if found["has_policies"]:
        log.warning("table %s has row security: rows that the role may not see are left out", table)


async def _check_settings(session: Session, mapping: TableMapping) -> None:
    settings = await session.fetchrow(filled("check_settings"))
    assert settings is not None  # noqa: S101 - it has no FROM
    if settings["encoding"] != "UTF8":
        raise ForeignJournalError(f"the database's encoding is {settings['encoding']}, and must be UTF8")
    if settings["is_standby"]:
        raise ForeignJournalError(
            "this server is a standby, which does not show what is still open on the primary: those events would be "
            "lost. Connect to the primary, or name it alongside the standby"
        )
    if mapping.bound != "transaction-start":
        return
    if not settings["sees_all"]:
        raise ForeignJournalError(
            f"role {settings['role']} does not see since when other roles' transactions are open, and their events "
            f"would be lost: GRANT pg_read_all_stats TO {settings['role']}"
        )
    if settings["tracked"] != "on" or settings["untracked"]:
        raise ForeignJournalError(
            "track_activities is off "
            f"({', '.join(settings['untracked']) or 'here'}): such sessions do not show since when they are open, and "
            "their events would be lost. Set it to on"
        )


async def _sequence(session: Session, mapping: TableMapping) -> str:
    """The sequence of the position, quoted."""
    rows = await session.fetch(filled("check_sequence"), mapping.name, mapping.position, mapping.sequence)
    where = f"table {mapping.name}, position"
    if len(rows) != 1:
        raise ForeignJournalError(
            f"{where}: it is filled from {len(rows)} sequences; name the one with sequence"
        )
    row = rows[0]
    if row["seqcache"] != 1 or row["seqincrement"] < 1 or row["seqcycle"]:
        raise ForeignJournalError(
            f"{where}: sequence {row['name']} must count upwards, without CACHE and CYCLE: a session that keeps "
            "numbers uses them after higher ones, and its events would be lost"
        )
    if not row["readable"]:
        raise ForeignJournalError(
            f"{where}: GRANT SELECT ON SEQUENCE {row['name']} TO the role that connects"
        )
    return str(row["name"])


async def _check_numbers(session: Session, mapping: TableMapping, table: str) -> None:
    """Where no unique index says so, look at all rows once."""
    query = filled(
        "check_numbers", rows=table, source=column(mapping.source), number=column(mapping.number),
        deleted="FALSE" if mapping.deleted is None else sql_of(mapping.deleted),
    )  # fmt: skip
    twice = await session.fetchrow(query)
    if twice is not None:
        raise ForeignJournalError(
            f"table {table}: source {twice['source']!r} has number {twice['number']} more than once; "
            "number must be unique in a source"
        )


def _needs_slices(mapping: TableMapping, indexes: Sequence[_Index]) -> bool:
    """Whether only an index that begins with slice and entity type leads to a time."""
    if not isinstance(mapping.slice, str) or not isinstance(mapping.entity_type, str):
        return False
    by_slice = any(
        index.begins_with(mapping.slice, mapping.entity_type, mapping.position) for index in indexes
    )
    return by_slice and not _leads_to_position(mapping, indexes)


def _leads_to_position(mapping: TableMapping, indexes: Sequence[_Index]) -> bool:
    return any(index.begins_with(mapping.position) for index in indexes)


def _advice(mapping: TableMapping, table: str, indexes: Sequence[_Index], *, by_slice: bool) -> list[str]:
    advice = []
    if not any(
        index.begins_with(mapping.source, mapping.number) or index.begins_with(mapping.number, mapping.source)
        for index in indexes
    ):
        columns = f"{quote(mapping.source)}, {quote(mapping.number)}"
        advice.append(
            f"each look-up of an event reads the table: CREATE UNIQUE INDEX CONCURRENTLY ON {table} ({columns})"
        )
    if not _leads_to_position(mapping, indexes):
        cost = "looks into each slice" if by_slice else "reads the table"
        parts = (mapping.position, mapping.slice, mapping.entity_type, mapping.source, mapping.number)
        columns = ", ".join(quote(part) for part in parts if isinstance(part, str))
        advice.append(f"each page {cost}: CREATE INDEX CONCURRENTLY ON {table} ({columns})")
    return advice


async def page_time(
    database: Database, table: ReadableTable, limit: timedelta = PAGE_LIMIT
) -> timedelta | None:
    """
    Measure how long the server takes for the first page of 1,000 events.

    Args:
        database: The one that the table is in.
        table: What :func:`check` has found out.
        limit: After so long it is given up: None.

    Raises:
        DatabaseError: The server refuses the page.
        DatabaseUnavailable: There is no connection.
    """
    page = (None, *ALL_SLICES, *Position.before(BEGINNING), END_OF_TIME, PAGE_SIZE, PAGE_BYTES)
    try:
        async with database.session() as session, session.transaction():
            await session.fetch(_LIMIT, f"{limit // timedelta(milliseconds=1)}ms")
            statement = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {table.queries['events']}"
            plan = await session.fetchval(statement, *page)
    except DatabaseError as error:
        if sqlstate_of(error) == _CANCELLED:
            return None
        raise
    (told,) = json.loads(plan) if isinstance(plan, str) else plan  # psycopg has parsed it already
    return timedelta(milliseconds=told["Planning Time"] + told["Execution Time"])
