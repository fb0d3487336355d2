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
from typing import TypeAlias

from journal import ProjectionsError
from journal.database.sync import SyncConnection, connect_sync

MARGIN = timedelta(milliseconds=20)
"""Backward steps of the database's clock that do no harm."""

_POLL = """
SELECT p.polled_at, p.holders, p.import_ids, p.import_types, p.imported_from, pg_catalog.pg_is_in_recovery()
FROM projections.poll_writers_v1(%s, '{}', '{}') AS p
"""
_WRITERS = "SELECT holder, pid, application_name, started_at FROM projections.writers_in_flight_v1()"
_PAUSE = 0.02
"""Seconds between two looks at writers that are waited for."""

Pause: TypeAlias = Callable[[float], object]


class WritersInFlight(ProjectionsError):
    """Transactions that append are open for longer than was to be waited for them."""


class NoHorizon(ProjectionsError):
    """The database can not tell what is in flight: it is a standby."""


@dataclass(frozen=True, slots=True)
class Look:
    """
    One look at the writers.

    Args:
        at: The database's time, from before the list of holders was made.
        holders: Transactions that hold the append lock.
        imports: Imports since the one that was asked for: number, entity type, time of the oldest event.
    """

    at: datetime
    holders: frozenset[str]
    imports: tuple[tuple[int, str, datetime], ...] = ()


def look(connection: SyncConnection, import_id: int = 0) -> Look:
    """
    Look at the writers; what is read by later statements is complete up to what this tells.

    Args:
        connection: In autocommit mode, on the primary.
        import_id: Imports with later numbers are told.

    Raises:
        NoHorizon: The database is a standby, where the locks of the primary can not be seen.
    """
    row = connection.execute(_POLL, (import_id,)).fetchone()
    assert row is not None  # noqa: S101 - the function returns one row
    at, holders, numbers, types, since, standby = row
    if standby:
        raise NoHorizon(
            "this database is a standby and does not know what is in flight on the primary: read there, or in an "
            "exported snapshot of the standby, or with snapshot=none and an until that lies well back"
        )
    return Look(at, frozenset(holders), tuple(zip(numbers, types, since, strict=True)))


def settled_now(dsn: str, wait: timedelta, pause: Pause = time.sleep) -> datetime:
    """
    Take the time, and wait until everything up to it is visible: what has been committed before is included.

    Args:
        dsn: Of the primary.
        wait: How long to wait for transactions that are appending.
        pause: Waits so many seconds.

    Raises:
        WritersInFlight: They took longer; names them.
        NoHorizon: The database is a standby.
        DatabaseError: The database refused, or can not be reached.
    """
    with connect_sync(dsn) as connection:
        connection.autocommit = True
        first = look(connection)
        await_end(connection, first, wait, pause)
        return first.at


def await_end(connection: SyncConnection, first: Look, wait: timedelta, pause: Pause) -> None:
    """
    Wait until everything up to a look is visible, and its margin over: later stamps are after it, come a small step.

    Args:
        connection: In autocommit mode.
        first: The look.
        wait: How long to wait for the transactions that it saw.
        pause: Waits so many seconds.

    Raises:
        WritersInFlight: They took longer; names them.
    """
    waiting, now = first.holders, first.at
    while waiting or now <= first.at + MARGIN:
        if waiting and now > first.at + wait:
            raise WritersInFlight(_who(connection, waiting, wait))
        pause(_PAUSE)
        again = look(connection)
        waiting, now = still_open(waiting, again.holders), again.at


def still_open(waited_for: Iterable[str], holders: Iterable[str]) -> frozenset[str]:
    """
    Of transactions that are waited for, those that may still be open.

    One that is prepared changes its name, so whatever is prepared may be one of them.

    Args:
        waited_for: Those that held the lock before.
        holders: Those that hold it now.
    """
    waited_for = frozenset(waited_for)
    return frozenset(one for one in holders if one in waited_for or (waited_for and one.startswith("p")))


def _who(connection: SyncConnection, waited_for: frozenset[str], wait: timedelta) -> str:
    rows = connection.execute(_WRITERS).fetchall()
    still = still_open(waited_for, [holder for holder, *_ in rows])
    named = ", ".join(_writer(*row) for holder, *row in rows if holder in still) or "one that has just ended"
    return (
        f"transactions that append were still open after {wait.total_seconds():g} s: {named}. "
        "Events of theirs may carry earlier times: end them, or wait longer (option wait, in seconds)"
    )


def _writer(pid: int | None, name: str | None, started_at: datetime | None) -> str:
    who = "a prepared transaction" if pid is None else f"process {pid}"
    since = f", open since {started_at:%Y-%m-%d %H:%M:%S%z}" if started_at is not None else ""
    return f"{who} ({name or 'no application name'}{since})"


@dataclass(slots=True)
class Settled:
    """
    The settled time of one who looks again and again: an open transaction holds it, and nothing waits.

    A holder that a look is the first to see did not hold the lock at the look before: its stamps are not older.

    Args:
        start: The time that was settled before the first look.
    """

    start: datetime
    _seen: datetime | None = None
    _bounds: dict[str, datetime] = field(default_factory=dict)

    def after(self, look: Look, started: Iterable[datetime | None] = ()) -> datetime:
        """
        Take in a look: nothing at or before the time that comes back can appear any more.

        Args:
            look: The look.
            started: When the transactions that append began, asked after the look; matters for the first one.
        """
        unknown = self._oldest(started) if self._seen is None else self._seen
        if any(holder.startswith("p") for holder in look.holders - self._bounds.keys()):
            # A transaction that is prepared changes its name: the new one may be any that was seen.
            unknown = min([unknown, *self._bounds.values()])
        self._bounds = {holder: self._bounds.get(holder, unknown) for holder in look.holders}
        self._seen = look.at
        return max(self.start, min([look.at, *self._bounds.values()]) - MARGIN)

    def _oldest(self, started: Iterable[datetime | None]) -> datetime:
        """The lower bound of holders that are there at the first look; some hide when they began."""
        known = list(started)
        return min((at for at in known if at is not None), default=self.start) if all(known) else self.start


def writers_started(connection: SyncConnection) -> list[datetime | None]:
    """When the transactions that append began; None where this role may not know."""
    return [started_at for *_, started_at in connection.execute(_WRITERS).fetchall()]
