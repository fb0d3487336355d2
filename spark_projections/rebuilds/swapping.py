"""The one transaction in which the new takes the place of the old, tried until nobody stands in its way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from journal import DatabaseError, OwnedSession
from journal.database import quote
from spark_projections.errors import BEGIN_AGAIN, SwapRefused
from spark_projections.rebuilds.bookkeeping import Rebuild, RebuiltTable
from spark_projections.rebuilds.locking import PAUSE, named, try_with_lock

__all__ = ["swap"]

_SWAP = "SELECT projections.swap_rebuild_v1($1, $2, $3)"
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


async def swap(
    session: OwnedSession,
    rebuild: Rebuild,
    tables: Sequence[RebuiltTable],
    waiting: Callable[[str], None],
    *,
    within: timedelta,
    limit: timedelta,
) -> float:
    """
    Swap as soon as nobody uses the tables.

    Args:
        session: Outside a transaction.
        rebuild: A rebuild that is verified.
        tables: Of it.
        waiting: Is told who uses the tables, after each attempt in vain.
        within: Give up after so long.
        limit: How long the transaction that swaps may take: readers and workers wait for it.

    Returns:
        The seconds of the transaction that did it: as long, live workers and readers had to wait.

    Raises:
        SwapRefused: The tables were changed, offsets were set, the database went back in time, the tables stay in
            use, or it takes too long. Nothing has changed.
        DatabaseError: The database refused, or was lost.
    """
    give_up_at = time.monotonic() + within.total_seconds()
    while True:
        began_at = time.monotonic()
        try:
            in_use = await try_with_lock(
                session, _SWAP, rebuild.rebuild_id, rebuild.started_at, rebuild.beats, limit=limit
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
        if in_use is None:
            return time.monotonic() - began_at
        users = await _users(session, tables)
        if time.monotonic() > give_up_at:
            raise SwapRefused(
                f"the tables were in use for {within}: {users}. What was built is kept: run it again to go on with "
                "the swap"
            ) from in_use
        waiting(f"the tables are in use, tries again: {users}")
        await asyncio.sleep(PAUSE)


async def _users(session: OwnedSession, tables: Sequence[RebuiltTable]) -> str:
    names = [quote(table.schema, table.name) for table in tables]
    oids = [await session.fetchval("SELECT to_regclass($1)::oid", name) for name in names]
    return named(await session.fetch(_BLOCKERS, oids))
