"""Appends in flight that may still write into a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from journal import CLOCK_MARGIN
from journal.database import SyncConnection
from journal.writers import Pause, still_open, wait_for_writers_sync, writers_in_flight_sync
from spark_projections.reading.horizon import look

__all__ = ["wait_for_appends"]

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


def wait_for_appends(
    connection: SyncConnection, until: datetime, say: Callable[[str], None], pause: Pause = time.sleep
) -> None:
    """
    Wait for the appends in flight that may have written before a time, however long.

    Args:
        connection: In autocommit mode, on the primary.
        until: A time that is past.
        say: Told once who is waited for.
        pause: Waits for this many seconds.

    Raises:
        NoHorizon: The database is a standby.
    """
    began = until + CLOCK_MARGIN
    first = look(connection).holders
    harmless = {name for (name,) in connection.execute(_HARMLESS, (began,))}
    # Who still has the lock had it meanwhile: the time was its own, and not that of a transaction after it.
    waited_for = first - (harmless & look(connection).holders)
    if waited_for:
        writers = writers_in_flight_sync(connection)
        named = still_open(waited_for, [writer.holder for writer in writers])
        who = ", ".join(str(writer) for writer in writers if writer.holder in named)
        say(f"waiting for transactions that have appended and are open: {who or 'about to end'}")
    wait_for_writers_sync(connection, waited_for, pause=pause)
