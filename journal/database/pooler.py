"""Whether a pooler such as PgBouncer lends the sessions of a database: then none of them is ours."""

from __future__ import annotations

import re

from journal.database.base_database import BaseDatabase
from journal.database.settings import ConnectionSettings
from journal.errors import DatabaseError

_REFUSES_PARAMETERS = re.compile(r"start-?up parameter|command-line option", re.IGNORECASE)
"""What PgBouncer, and proxies like it, say to a parameter that a session is to start with."""


def refuses_parameters(error: BaseException) -> bool:
    """Whether it is a pooler's, which takes no parameters that a session is to start with."""
    return _REFUSES_PARAMETERS.search(str(error)) is not None


async def open_direct(
    driver: type[BaseDatabase], dsn: str, settings: ConnectionSettings
) -> BaseDatabase | None:
    """A pool whose sessions are its own; None where a pooler lends them."""
    if settings.pgbouncer:
        return None
    looks = settings.pgbouncer is None
    try:
        database = await driver.open(dsn, settings, pooled=False)
    except DatabaseError as error:
        if looks and refuses_parameters(error):
            return None
        raise
    direct = False
    try:
        direct = not looks or await _is_direct(database)
    finally:
        if not direct:
            await database.close()
    return database if direct else None


async def _is_direct(database: BaseDatabase) -> bool:
    """Whether the process that answers is the one that was connected to."""
    async with database.session() as session:
        pid = database.announced_pid(session.connection)
        return (
            await session.execute(f"SELECT WHERE pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {pid}")
            == 1
        )
