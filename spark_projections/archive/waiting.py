"""Appends in flight that may still write into a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from journal.database.sync import SyncConnection
from spark_projections.reading.horizon import MARGIN, Pause, look, still_open

__all__ = ["NO_IMPORTS", "wait_for_writers"]

NO_IMPORTS = 2**63 - 1
_PAUSE = 0.1
"""Seconds between two looks at writers that are waited for."""

# An append stamps when it has the lock, and so not before its transaction began; an import writes into any time.
_HARMLESS = """
SELECT l.virtualtransaction FROM pg_catalog.pg_locks AS l
INNER JOIN pg_catalog.pg_stat_activity AS a ON l.pid = a.pid
WHERE l.locktype = 'relation' AND l.relation = 'projections.sources'::regclass AND l.mode = 'RowExclusiveLock'
AND a.xact_start >= %s
AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_locks AS i
    WHERE i.virtualtransaction = l.virtualtransaction AND i.pid = l.pid
    AND i.relation = 'projections.imports'::regclass AND i.mode = 'ShareRowExclusiveLock'
)
"""
_WHO = """
SELECT CASE WHEN pid IS NULL THEN 'a prepared transaction' ELSE format('pid %%s (%%s)', pid, application_name) END
FROM projections.writers_in_flight_v1() WHERE (started_at >= %s) IS NOT TRUE
"""


def wait_for_writers(
    connection: SyncConnection, until: datetime, say: Callable[[str], None], pause: Pause = time.sleep
) -> None:
    """
    Wait for the appends in flight that may have written before a time, however long.

    Args:
        connection: In autocommit mode, on the primary.
        until: A time that is past.
        say: Told once who is waited for.
        pause: Waits so many seconds.

    Raises:
        NoHorizon: The database is a standby.
    """
    began = until + MARGIN
    first = look(connection, NO_IMPORTS).holders
    harmless = {name for (name,) in connection.execute(_HARMLESS, (began,))}
    # Who still has the lock had it meanwhile: the time was its own, and not that of a transaction after it.
    waiting = first - (harmless & look(connection, NO_IMPORTS).holders)
    if waiting:
        who = ", ".join(name for (name,) in connection.execute(_WHO, (began,)).fetchall())
        say(f"waiting for transactions that have appended and are open: {who or 'about to end'}")
    while waiting:
        pause(_PAUSE)
        waiting = still_open(waiting, look(connection, NO_IMPORTS).holders)
