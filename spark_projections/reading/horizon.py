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

from journal import CLOCK_MARGIN, INSTANT, ProjectionsError
from journal.database import SyncConnection
from journal.writers import (
    NO_IMPORTS,
    POLL,
    Pause,
    WritersInFlight,
    WritersLook,
    look_at_writers_sync,
    still_open,
    wait_for_writers_sync,
    writers_in_flight_sync,
)
from spark_projections.reading.logs import ReadLog

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


def look(connection: SyncConnection, import_id: int = NO_IMPORTS, *, poll: str = POLL) -> WritersLook:
    """
    Look at the writers; what is read by later statements is complete up to what this tells.

    Needs a connection in autocommit mode, on the primary, where the locks are (NoHorizon). Imports with later numbers
    than ``import_id`` are shown; by default none. ``poll`` is the query of another log than our journal.
    """
    seen = look_at_writers_sync(connection, import_id, poll=poll)
    if seen.standby:
        raise NoHorizon(
            "this database is a standby and does not know what is in flight on the primary: read there, or in an "
            "exported snapshot of the standby, or with snapshot=none and an until that lies well back"
        )
    return seen


def settled_now(log: ReadLog, wait: timedelta, pause: Pause = time.sleep) -> datetime:
    """
    Take the time of the primary, and wait until all up to it is visible: what has been committed before is included.

    Its margin is over, too: later stamps are after that time, come a small step of the clock. Where holders show since
    when they are open, nobody is waited for: the time is before the oldest.

    Raises:
        WritersInFlight: They took longer; names them.
        NoHorizon: The database is a standby.
        DatabaseError: The database refused, or cannot be reached.
    """
    poll = log.asked.poll
    with log.connected() as connection:
        first = last = look(connection, poll=poll)
        _wait_for_unknown(connection, log, first, wait, pause)
        if log.by_number:
            return first.at - log.margin
        while (left := first.at + log.margin - (last := look(connection, poll=poll)).at) >= timedelta(0):
            pause(left.total_seconds())
        if log.queries is not None:
            # Whoever has a stamp up to the first time shows it by now, has ended, or was prepared meanwhile.
            _wait_for_unknown(connection, log, last, wait, pause)
        return min([first.at, *(start - INSTANT for start in last.starts.values())])


def _wait_for_unknown(
    connection: SyncConnection, log: ReadLog, seen: WritersLook, wait: timedelta, pause: Pause
) -> None:
    """Wait for holders that do not show since when they are open."""
    queries = log.asked.poll, log.asked.writers
    unknown = seen.holders - seen.starts.keys()
    try:
        wait_for_writers_sync(connection, unknown, patience=wait, pause=pause, queries=queries)
    except WritersInFlight as error:
        raise WritersInFlight(f"{error} (option wait, in seconds)") from None


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

    A holder that a look is the first to see did not hold the lock at the look before: its stamps are not older. One
    that shows since when it is open has none before that.

    Args:
        start: It is settled already.
        margin: Taken off every bound.
    """

    start: datetime
    margin: timedelta = CLOCK_MARGIN
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
        self._bounds = {
            holder: self._bounds.get(holder) or look.starts.get(holder, unknown) for holder in look.holders
        }
        self._seen = look.at
        return max(self.start, min([look.at, *self._bounds.values()]) - self.margin)

    def _oldest(self, started: Iterable[datetime | None]) -> datetime:
        """The lower bound of holders that are there at the first look; some hide when they began."""
        known = list(started)
        return min((at for at in known if at is not None), default=self.start) if all(known) else self.start
