"""
Up to which time the journal is complete: no event at or before a settled time can appear any more.

An append takes its lock before it reads the clock, and holds it until its commit is visible. So once the
transactions that hold the lock at some time are gone, everything stamped up to that time is visible, and stays
so. Imports of history carry old times: who goes on from a settled time has to look for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from journal import CLOCK_MARGIN, ProjectionsError
from journal.database import SyncConnection, connect_sync
from journal.writers import (
    NO_IMPORTS,
    Pause,
    WritersInFlight,
    WritersLook,
    look_at_writers_sync,
    still_open,
    wait_for_writers_sync,
    writers_in_flight_sync,
)

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


class NoHorizon(ProjectionsError):
    """The database cannot tell what is in flight: it is a standby."""


def look(connection: SyncConnection, import_id: int = NO_IMPORTS) -> WritersLook:
    """
    Look at the writers; what is read by later statements is complete up to what this tells.

    Needs a connection in autocommit mode, on the primary, where the locks are (NoHorizon). Imports with later numbers
    than ``import_id`` are shown; by default none.
    """
    seen = look_at_writers_sync(connection, import_id)
    if seen.standby:
        raise NoHorizon(
            "this database is a standby and does not know what is in flight on the primary: read there, or in an "
            "exported snapshot of the standby, or with snapshot=none and an until that lies well back"
        )
    return seen


def settled_now(dsn: str, wait: timedelta, pause: Pause = time.sleep) -> datetime:
    """
    Take the time of the primary, and wait until all up to it is visible: what has been committed before is included.

    Its margin is over, too: later stamps are after that time, come a small step of the clock.

    Raises:
        WritersInFlight: They took longer; names them.
        NoHorizon: The database is a standby.
        DatabaseError: The database refused, or cannot be reached.
    """
    with connect_sync(dsn) as connection:
        connection.autocommit = True
        first = look(connection)
        try:
            wait_for_writers_sync(connection, first.holders, patience=wait, pause=pause)
        except WritersInFlight as error:
            raise WritersInFlight(f"{error} (option wait, in seconds)") from None
        while (left := first.at + CLOCK_MARGIN - look(connection).at) >= timedelta(0):
            pause(left.total_seconds())
        return first.at


def wait_for_appends(
    connection: SyncConnection, until: datetime, say: Callable[[str], None], pause: Pause = time.sleep
) -> None:
    """
    Wait for the appends in flight that may have written before a past time, however long.

    Needs a connection as :func:`look` does. ``say`` is called once, with who is waited for.
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


@dataclass(slots=True)
class SettledTime:
    """
    The settled time of one who looks again and again: an open transaction holds it, and nothing waits.

    A holder that a look is the first to see did not hold the lock at the look before: its stamps are not older.
    """

    start: datetime
    _seen: datetime | None = None
    _bounds: dict[str, datetime] = field(default_factory=dict)

    def after(self, look: WritersLook, started: Iterable[datetime | None] = ()) -> datetime:
        """
        Take in a look: nothing at or before the time that comes back can appear any more.

        When the transactions that append began was asked after the look; it matters for the first one.
        """
        unknown = self._oldest(started) if self._seen is None else self._seen
        if any(holder.startswith("p") for holder in look.holders - self._bounds.keys()):
            # A transaction that is prepared changes its name: the new one may be any that was seen.
            unknown = min([unknown, *self._bounds.values()])
        self._bounds = {holder: self._bounds.get(holder, unknown) for holder in look.holders}
        self._seen = look.at
        return max(self.start, min([look.at, *self._bounds.values()]) - CLOCK_MARGIN)

    def _oldest(self, started: Iterable[datetime | None]) -> datetime:
        """The lower bound of holders that are there at the first look; some hide when they began."""
        known = list(started)
        return min((at for at in known if at is not None), default=self.start) if all(known) else self.start
