"""Foreign keys of what a rebuild has built: added in moments, checked while others use what they refer to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from journal import OwnedSession
from journal.database import quote
from spark_projections.rebuilds.bookkeeping import RebuiltTable
from spark_projections.rebuilds.locking import PAUSE, named, try_with_lock

__all__ = ["copy_foreign_keys"]

_ADD = "SELECT projections.copy_foreign_keys_v1($1::text::regclass, $2::text::regclass)"
_VALIDATE = "SELECT projections.validate_foreign_keys_v1($1::text::regclass, $2::text::regclass)"
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


async def copy_foreign_keys(
    session: OwnedSession, tables: Sequence[RebuiltTable], schema: str, waiting: Callable[[str], None]
) -> None:
    """
    Give full clones the foreign keys of their tables; what an interrupted call has done is left as it is.

    Writers of the tables that are referred to wait only while keys are added, half a second at most each time.

    Args:
        session: Outside a transaction.
        tables: Of the rebuild.
        schema: Where the clones are.
        waiting: Is told who uses the tables that are referred to, after each attempt in vain.

    Raises:
        journal.DatabaseError: A row refers to one that is not there, or the database refused or was lost.
    """
    for statement in (_ADD, _VALIDATE):
        for table in tables:
            live, clone = quote(table.schema, table.name), quote(schema, table.name)
            while await try_with_lock(session, statement, live, clone) is not None:
                users = named(await session.fetch(_USERS, live))
                waiting(f"the tables that {live} refers to are in use, tries again: {users}")
                await asyncio.sleep(PAUSE)
