"""
What needs tables for itself: foreign keys, and the one transaction in which the new takes the place of the old.

A statement waits for a moment, gives up, tells who has the tables, and is tried again until nobody stands in its way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from journal import DatabaseError, OwnedSession, Row, Session
from journal.database import quote
from spark_projections.errors import BEGIN_AGAIN, SwapRefused
from spark_projections.rebuilds.bookkeeping import Rebuild, RebuiltTable, transaction
from spark_projections.rebuilds.shadow import schema_of

_PAUSE = 1.0
"""Seconds between two attempts."""

_LOCK_TIMEOUT = "500ms"
"""How long to wait for who uses the tables: others wait behind. Below the server's deadlock_timeout (1 s)."""
_SILENCE = "10s"
"""How long the server keeps the locks for a client that says nothing: one that is frozen, or whose host is gone."""
_IN_USE = {"55P03", "40P01"}
_MILLISECOND = timedelta(milliseconds=1)

_ADD = "SELECT projections._copy_foreign_keys_v1($1::text::regclass, $2::text::regclass)"
_VALIDATE = "SELECT projections._validate_foreign_keys_v1($1::text::regclass, $2::text::regclass)"
_USERS = """
SELECT DISTINCT l.pid, a.application_name, a.state, clock_timestamp() - a.xact_start AS age
FROM pg_catalog.pg_constraint AS c
INNER JOIN pg_catalog.pg_locks AS l ON c.confrelid = l.relation
LEFT JOIN pg_catalog.pg_stat_activity AS a ON l.pid = a.pid
WHERE c.contype = 'f' AND c.conrelid = $1::text::regclass AND l.locktype = 'relation' AND l.granted
AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')
AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
ORDER BY age DESC NULLS FIRST LIMIT 5
"""
_SWAP = "SELECT projections._swap_rebuild_v1($1, $2, $3)"
_REFUSED = {"PJ013", "PJ042", "PJ043"}
_TOO_LONG = "57014"
_BLOCKERS = """
SELECT l.pid, a.application_name, a.state, clock_timestamp() - a.xact_start AS age
FROM pg_catalog.pg_locks AS l INNER JOIN pg_catalog.pg_stat_activity AS a ON l.pid = a.pid
WHERE l.locktype = 'relation' AND l.granted AND l.pid <> pg_backend_pid()
AND (l.relation = ANY($1::oid[]) OR l.relation IN (
    SELECT c.confrelid FROM pg_catalog.pg_constraint AS c WHERE c.contype = 'f' AND c.conrelid = ANY($1::oid[])
))
AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
ORDER BY a.xact_start LIMIT 5
"""

_BEHIND = """
SELECT min(n.source_id) AS source_id, count(*) AS sources
FROM {schema}._last AS n
INNER JOIN projections.projections AS p ON p.projection_id = $1 AND n.db_timestamp >= p.evicted_before
LEFT JOIN projections.source_offsets AS o ON p.projection_id = o.projection_id AND n.source_id = o.source_id
WHERE coalesce(o.seq_nr, 0) < n.seq_nr
AND EXISTS (SELECT FROM projections.projection_ranges AS r WHERE r.projection_id = $1 AND r.handled > 0)
"""
"""Sources whose events the rebuild has handled and the workers have not; none where no worker has handled anything."""


async def try_with_lock(
    session: OwnedSession,
    statement: str,
    *args: Any,
    limit: timedelta = timedelta(0),
    and_then: Sequence[str] = (),
) -> DatabaseError | None:
    """
    Run a statement, and others after it, in one transaction; returns why not when somebody is in its way.

    It is undone when it takes longer than ``limit`` (SQLSTATE 57014), for others wait; zero for no limit.
    """
    try:
        async with transaction(session):
            await session.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            await session.execute(f"SET LOCAL statement_timeout = '{int(limit / _MILLISECOND)}ms'")
            await session.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{_SILENCE}'")
            await session.execute(statement, *args)
            for each in and_then:
                await session.execute(each)
    except DatabaseError as error:
        if error.sqlstate not in _IN_USE:
            raise
        return error
    return None


def _named(users: Iterable[Row]) -> str:
    """Who uses the tables, for messages: rows of pid, application_name, state and age."""
    return "; ".join(map(_user, users)) or "by somebody who has gone meanwhile"


def _user(user: Row) -> str:
    if not user["pid"]:
        return "a prepared transaction"
    return (
        f"process {user['pid']} ({user['application_name'] or 'unnamed'}, {user['state']}) for {user['age']}"
    )


async def copy_foreign_keys(
    session: OwnedSession, tables: Sequence[RebuiltTable], schema: str, waiting: Callable[[str], None]
) -> None:
    """
    Give full clones the foreign keys of their tables; what an interrupted call has done is left as it is.

    Writers of the tables that are referred to wait only while keys are added, half a second at most each time;
    ``waiting`` gets who uses them, after each failed attempt.
    """
    for statement in (_ADD, _VALIDATE):
        for table in tables:
            live, clone = quote(table.schema, table.name), quote(schema, table.name)
            while await try_with_lock(session, statement, live, clone) is not None:
                users = _named(await session.fetch(_USERS, live))
                waiting(f"the tables that {live} refers to are in use, tries again: {users}")
                await asyncio.sleep(_PAUSE)


async def swap(
    session: OwnedSession,
    rebuild: Rebuild,
    tables: Sequence[RebuiltTable],
    waiting: Callable[[str], None],
    *,
    within: timedelta,
    limit: timedelta,
    reacts: bool = False,
    marks: Sequence[str] = (),
) -> float:
    """
    Swap in a verified rebuild as soon as nobody uses the tables; returns the seconds that the transaction took.

    ``waiting`` gets who uses the tables, after each failed attempt, ``within`` ends the waiting, and ``limit`` the
    transaction, for which live workers and readers wait. What the rebuild has handled is not handled again after the
    swap, so where the projection ``reacts``, the workers must have reacted to it before. ``marks`` are statements that
    note in the same transaction what has filled the tables.

    SwapRefused, with nothing changed: the tables were changed, offsets were set, the database went back in time, the
    tables stay in use, workers do not get as far as the rebuild, or it takes too long.
    """
    give_up_at = time.monotonic() + within.total_seconds()
    while True:
        reason = await _unreacted(session, rebuild) if reacts else None
        if reason is None:
            began_at = time.monotonic()
            if await _swapped(session, rebuild, limit, marks):
                return time.monotonic() - began_at
            names = [quote(table.schema, table.name) for table in tables]
            reason = f"the tables are in use: {await users_of(session, names)}"
        if time.monotonic() > give_up_at:
            raise SwapRefused(
                f"after {within} {reason}. What was built is kept: run it again to go on with the swap"
            )
        waiting(f"tries again, for {reason}")
        await asyncio.sleep(_PAUSE)


async def _swapped(session: OwnedSession, rebuild: Rebuild, limit: timedelta, marks: Sequence[str]) -> bool:
    """Whether it is done; not, where somebody uses the tables."""
    try:
        in_use = await try_with_lock(
            session,
            _SWAP,
            rebuild.rebuild_id,
            rebuild.started_at,
            rebuild.beats,
            limit=limit,
            and_then=marks,
        )
    except DatabaseError as error:
        if error.sqlstate in _REFUSED:
            raise SwapRefused(f"{error}. {BEGIN_AGAIN}") from error
        if error.sqlstate == _TOO_LONG:
            raise SwapRefused(
                f"the swap took longer than {limit} and was undone, for readers and workers wait for it ({error}). "
                "What was built is kept: run it again when the database has less to do, or give it more time "
                "(--swap-timeout SECONDS)"
            ) from error
        raise
    return in_use is None


async def _unreacted(session: OwnedSession, rebuild: Rebuild) -> str | None:
    """Why the workers have to go on first. What they have handled once stays so: this needs no lock."""
    query = _BEHIND.format(schema=quote(schema_of(rebuild.rebuild_id)))
    (behind,) = await session.fetch(query, rebuild.projection_id)
    if not behind["sources"]:
        return None
    return (
        "workers have not reacted to all events that the rebuild has handled, such as those of "
        f"{behind['source_id']!r} ({behind['sources']} sources): let them catch up, and retry or drop what is parked"
    )


async def users_of(session: Session, names: Sequence[str]) -> str:
    """Who uses tables, or those that they refer to: for messages; the names are quoted for SQL."""
    oids = [await session.fetchval("SELECT to_regclass($1)::oid", name) for name in names]
    return _named(await session.fetch(_BLOCKERS, oids))


async def lock_tables(
    session: OwnedSession, names: Sequence[str], waiting: Callable[[str], None], within: timedelta
) -> None:
    """
    Keep all others from writing to tables until the end of the transaction; readers are not kept waiting.

    The names are quoted, in the order in which batches write to them. Batches that have written are waited for. Those
    that come later wait, so the client must not be silent. ``waiting`` gets who uses the tables, after each failed
    attempt; ``within`` ends that (SwapRefused).
    """
    give_up_at = time.monotonic() + within.total_seconds()
    while True:
        try:
            async with session.savepoint():
                await session.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
                await session.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{_SILENCE}'")
                await session.execute(f"LOCK TABLE {', '.join(names)} IN SHARE ROW EXCLUSIVE MODE")
        except DatabaseError as error:
            if error.sqlstate not in _IN_USE:
                raise
        else:
            return
        reason = f"the tables are in use: {await users_of(session, names)}"
        if time.monotonic() > give_up_at:
            raise SwapRefused(f"after {within} {reason}. Nothing has changed: run it again later")
        waiting(f"tries again, for {reason}")
        await asyncio.sleep(_PAUSE)
