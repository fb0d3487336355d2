"""What the database knows of rebuilds: one line of SQL for each call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import NamedTuple

from journal import EntityTypes, OwnedSession, Session, SliceRange
from journal.database import quote
from projections.defining import ColumnOperation, Table
from projections.running import Column, ValueKind, read_shape
from spark_projections.errors import NotRebuildable, RebuildUnderWay
from spark_projections.rebuilds.definition import WrittenTable
from spark_projections.rebuilds.fence import Fence
from spark_projections.rebuilds.shadow import schema_of, staged_columns

_NO_LIMITS = """
SELECT set_config(name, '0', TRUE) FROM pg_catalog.pg_settings
WHERE name IN ('statement_timeout', 'transaction_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout')
"""
_CANCEL = """
UPDATE projections.rebuilds SET state = 'cancelled' WHERE rebuild_id = $1 AND state IN ('folding', 'verified')
"""
_LEFT = """
SELECT rebuild_id FROM projections.rebuilds
WHERE projection_id = $1 AND state = 'cancelled'
AND to_regnamespace('projections_rebuild_' || rebuild_id) IS NOT NULL
"""
_LOCK = "SELECT pg_try_advisory_lock(hashtext('slice-projections rebuild'), $1)"
_UNLOCK = "SELECT pg_advisory_unlock(hashtext('slice-projections rebuild'), $1)"
_HOLDER = """
SELECT a.pid, a.application_name, a.client_addr::text AS client, a.backend_start
FROM pg_catalog.pg_locks AS l INNER JOIN pg_catalog.pg_stat_activity AS a ON l.pid = a.pid
WHERE l.locktype = 'advisory' AND l.classid::bigint = hashtext('slice-projections rebuild') & 4294967295
AND l.objid::bigint = $1 AND l.granted
AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
"""
_UNFINISHED = """
SELECT
    rebuild_id, projection_id, min_slice, max_slice, version, fence, import_id, journal_life, fingerprint, method,
    state, started_at, timeline, beats, entity_types
FROM projections.rebuilds WHERE projection_id = $1 AND state IN ('folding', 'verified')
"""
_KEPT = """
SELECT p.name, r.min_slice, r.max_slice, r.state, r.started_at,
CASE r.state WHEN 'swapped' THEN 'projections_old_' ELSE 'projections_rebuild_' END || r.rebuild_id AS schema_name
FROM projections.rebuilds AS r INNER JOIN projections.projections AS p USING (projection_id)
WHERE r.state IN ('folding', 'verified', 'swapped') ORDER BY r.rebuild_id
"""
_BEGIN = """
SELECT projections._begin_rebuild_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
"""
_NOTE_LIFE = "UPDATE projections.rebuilds SET journal_life = $2 WHERE rebuild_id = $1"
_NOTE_COLUMNS = """
UPDATE projections.rebuild_tables SET columns = $3, key_columns = $4 WHERE rebuild_id = $1 AND place = $2
"""
_BEAT = "SELECT projections._beat_rebuild_v1($1, $2, $3)"
_CLEAR_ERRORS = (
    "UPDATE projections.rebuild_parts SET error = NULL WHERE rebuild_id = $1 AND error IS NOT NULL"
)
_PARTS = """
SELECT min_slice, max_slice FROM projections.rebuild_parts WHERE rebuild_id = $1 AND NOT done ORDER BY min_slice
"""
_FOLDED = """
SELECT
    coalesce(sum(k.events), 0)::bigint AS events, coalesce(sum(k.skipped), 0)::bigint AS skipped,
    count(*) FILTER (WHERE k.done) AS done, count(*) AS parts, min(k.error) AS error
FROM projections.rebuild_parts AS k WHERE k.rebuild_id = $1
"""
_TABLES = """
SELECT place, schema_name, table_name FROM projections.rebuild_tables
WHERE rebuild_id = $1 ORDER BY place
"""
_OLD = """
SELECT b.rebuild_id, t.table_name FROM projections.rebuilds AS b
INNER JOIN projections.rebuild_tables AS t ON b.rebuild_id = t.rebuild_id
WHERE b.projection_id = $1 AND b.state = 'swapped' ORDER BY b.rebuild_id, t.place
"""
_WHOLE = """
SELECT bool_and(to_regclass(quote_ident($2) || '.' || quote_ident(t.table_name)) IS NOT NULL) FROM (
    SELECT '_offsets' AS table_name
    UNION ALL SELECT r.table_name FROM projections.rebuild_tables AS r WHERE r.rebuild_id = $1
) AS t
"""
_WIDE = {ValueKind.INTEGER: "bigint", ValueKind.NUMERIC: "numeric"}
_DROPPED = "UPDATE projections.rebuilds SET state = 'dropped' WHERE rebuild_id = $1"


@asynccontextmanager
async def transaction(session: OwnedSession, *, snapshot_after: str | None = None) -> AsyncIterator[None]:
    """
    A transaction that sees what others commit and takes the time that it needs, whatever the role's defaults are.

    With ``snapshot_after`` it sees what was there after this statement, which takes locks, and nothing later.
    """
    await session.begin()
    try:
        level = "READ COMMITTED" if snapshot_after is None else "REPEATABLE READ"
        await session.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        if snapshot_after is not None:
            await session.execute(snapshot_after)
        await session.execute(_NO_LIMITS)
        yield
        await session.commit()
    finally:
        await session.rollback()


class Wanted(NamedTuple):
    """What is to be rebuilt."""

    slices: SliceRange
    version: int
    """Of the projection that builds it."""
    entity_types: EntityTypes
    """What that version reads."""
    fence: Fence
    fingerprint: str
    """Of its code."""
    method: str
    """``rename`` or ``replace``."""


class Rebuild(NamedTuple):
    """A rebuild that was begun."""

    rebuild_id: int
    projection_id: int
    slices: SliceRange
    version: int
    fence: Fence
    fingerprint: str
    method: str
    state: str
    started_at: datetime
    timeline: int | None
    """The database's, when it began."""
    beats: int
    """How often the process that leads it has looked."""
    entity_types: EntityTypes
    """What it reads."""


class KeptRebuild(NamedTuple):
    """A rebuild that is unfinished, or whose replaced tables are kept."""

    projection: str
    slices: str
    state: str
    started_at: datetime
    schema: str
    """Of what it has built so far, or of the tables that it has replaced."""


class FoldedParts(NamedTuple):
    """How far the parts are."""

    events: int
    skipped: int
    done: int
    parts: int
    error: str | None
    """Why one of them cannot go on."""


class RebuiltTable(NamedTuple):
    """A table of a rebuild."""

    place: int
    schema: str
    name: str


@asynccontextmanager
async def only_one(session: OwnedSession, projection_id: int, name: str) -> AsyncIterator[None]:
    """
    Keep others from rebuilding the projection meanwhile (RebuildUnderWay); the lock ends with the connection.

    NotRebuildable: the connection has no session of its own.
    """
    if session.pooled:
        raise NotRebuildable(
            "this connection goes through a pooler, which lends a session for each transaction (as PgBouncer does): "
            "connect to the database itself to rebuild"
        )
    if not await session.fetchval(_LOCK, projection_id):
        row = await session.fetchrow(_HOLDER, projection_id)
        who = (
            ""
            if row is None
            else f", by process {row['pid']} of the database since {row['backend_start']:%Y-%m-%d %H:%M}"
        )
        raise RebuildUnderWay(
            f"projection {name!r} is being rebuilt already{who}: wait for it, or stop that one"
        )
    try:
        yield
    finally:
        await session.rollback()
        await session.fetchval(_UNLOCK, projection_id)


async def unfinished(session: Session, projection_id: int) -> Rebuild | None:
    """The rebuild of a projection that was begun and has not ended."""
    row = await session.fetchrow(_UNFINISHED, projection_id)
    if row is None:
        return None
    number, projection_id, first, last, version, fence, import_id, life, *rest, types = row.values()
    return Rebuild(
        number,
        projection_id,
        SliceRange(first, last),
        version,
        Fence(fence, import_id, life),
        *[*rest, EntityTypes.stored(types)],
    )


async def kept(session: Session) -> list[KeptRebuild]:
    """All rebuilds that are unfinished, or whose replaced tables are kept, in the order in which they began."""
    return [
        KeptRebuild(name, str(SliceRange(first, last)), *rest)
        for name, first, last, *rest in (row.values() for row in await session.fetch(_KEPT))
    ]


async def whole(session: Session, rebuild: Rebuild) -> bool:
    """Whether the tables that a rebuild fills are there: nobody has dropped them, or left them out of a restore."""
    return bool(await session.fetchval(_WHOLE, rebuild.rebuild_id, schema_of(rebuild.rebuild_id)))


async def begin(
    session: Session,
    projection_id: int,
    wanted: Wanted,
    parts: Sequence[SliceRange],
    written: Sequence[WrittenTable],
) -> Rebuild:
    """
    Make the tables that a rebuild fills, in an open transaction.

    NotRebuildable: a table is not there; TableError: one does not fit its declaration. The role must own the tables,
    and may make schemas.
    """
    tables = [await find_table(session, one) for one in written]
    number = await session.fetchval(
        _BEGIN, projection_id, *wanted.slices, wanted.version, *wanted.fence[:2], wanted.fingerprint, wanted.method,
        [part.min_slice for part in parts], [part.max_slice for part in parts],
        tables, [one.shared for one in written],
        [await _staged(session, one) for one in written],
        [one.table.source if one.table else None for one in written],
        wanted.entity_types.sql,
    )  # fmt: skip
    await session.execute(_NOTE_LIFE, number, wanted.fence.life)
    for place, one in enumerate(written, 1):
        if one.table is not None:
            await session.execute(
                _NOTE_COLUMNS, number, place, list(staged_columns(one.table)), list(one.table.key)
            )
    found = await unfinished(session, projection_id)
    assert found is not None and found.rebuild_id == number  # noqa: S101, PT018 - it was just made, in this transaction
    return found


async def find_table(session: Session, one: WrittenTable) -> int:
    """The oid of a table; NotRebuildable: it is not there."""
    if one.table is not None:
        return (await read_shape(session, one.table)).oid
    oid = await session.fetchval("SELECT to_regclass($1)::oid", quote(*one.name))
    if oid is None:
        raise NotRebuildable(
            f"table {one} is not in the database: create it, or correct its name or the search_path"
        )
    return int(oid)


async def _staged(session: Session, one: WrittenTable) -> str | None:
    if one.table is None:
        return None
    columns = (await read_shape(session, one.table)).columns
    return ", ".join(_wide(one.table, columns[name]) for name in staged_columns(one.table))


def _wide(table: Table, column: Column) -> str:
    """A column, of a type that also holds the sum of a part where only that of all fits the table."""
    name = quote(column.name)
    if table.operations.get(column.name) is ColumnOperation.INCREMENT and column.kind in _WIDE:
        return f"{name}::{_WIDE[column.kind]} AS {name}"
    return name


async def beat(session: Session, rebuild: Rebuild, beats: int) -> int:
    """
    Make sure that the database is the one in which a rebuild began (else ``PJ013``).

    ``beats`` is how often the caller has asked, with what the rebuild had when it was begun or found; returns how
    often by now.
    """
    return int(await session.fetchval(_BEAT, rebuild.rebuild_id, rebuild.started_at, beats))


async def unfinished_parts(session: Session, rebuild_id: int) -> list[SliceRange]:
    """What is left to fold; parts that failed may be tried again."""
    await session.execute(_CLEAR_ERRORS, rebuild_id)
    return [SliceRange(*row.values()) for row in await session.fetch(_PARTS, rebuild_id)]


async def folded(session: Session, rebuild_id: int) -> FoldedParts:
    """How far the parts are."""
    (row,) = await session.fetch(_FOLDED, rebuild_id)
    return FoldedParts(*row.values())


async def rebuilt_tables(session: Session, rebuild_id: int) -> list[RebuiltTable]:
    """The tables of a rebuild."""
    return [RebuiltTable(*row.values()) for row in await session.fetch(_TABLES, rebuild_id)]


async def cancel(session: OwnedSession, projection_id: int) -> list[str]:
    """
    End the unfinished rebuild of a projection and drop what it has made; returns the schemas that are gone.

    In two transactions: its tasks see the first before their next batch, or dropping would wait for one after another.
    """
    if (found := await unfinished(session, projection_id)) is not None:
        await session.execute(_CANCEL, found.rebuild_id)
    left = [row["rebuild_id"] for row in await session.fetch(_LEFT, projection_id)]
    for number in left:
        async with transaction(session):
            await session.execute("SELECT projections._cancel_rebuild_v1($1)", number)
    return [schema_of(number) for number in left]


async def drop_old(session: Session, projection_id: int) -> list[str]:
    """Drop the tables that served before the last rebuilds, in an open transaction; returns their names."""
    dropped: dict[int, list[str]] = {}
    for row in await session.fetch(_OLD, projection_id):
        dropped.setdefault(row["rebuild_id"], []).append(row["table_name"])
    for number, names in dropped.items():
        for name in names:
            await session.execute(f"DROP TABLE IF EXISTS {quote(f'projections_old_{number}', name)}")
        await session.execute(f"DROP SCHEMA IF EXISTS {quote(f'projections_old_{number}')}")
        await session.execute(_DROPPED, number)
    return [f"projections_old_{number}.{name}" for number, names in dropped.items() for name in names]
