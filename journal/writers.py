"""
Transactions that append: which are in flight, and waiting until those of a time are gone.

An append takes its lock before it reads the clock, and holds it until its commit is visible. So of the events up to a
time, those that are missing belong to the holders of the lock at that time: once these are gone, the events up to it
are complete, and stay so. Imports of history come later with older times; their numbers say which are in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from journal.database.callers_connection import fetch_on, fetch_on_sync
from journal.database.generation import Generation
from journal.database.session import Session
from journal.database.sync import SyncConnection
from journal.errors import ProjectionsError

POLL = "SELECT * FROM projections._poll_writers_v1($1, $2, $3)"
"""Values: the number of the last import that is known, entity types, and for each a time to look for events after."""

NO_IMPORTS = 2**63 - 1
"""A number that no import comes after."""
WRITERS = "SELECT pid, application_name, started_at, holder FROM projections.writers_in_flight_v1()"
_PAUSE = 0.02
_TELL_AFTER, _TELL_EVERY = 0.5, 5.0  # seconds

Pause: TypeAlias = Callable[[float], object]
"""Waits for this many seconds, such as ``time.sleep``."""
_Query: TypeAlias = tuple[str, Sequence[Any]]
_Rows: TypeAlias = Sequence[tuple[Any, ...]]


class Writer(NamedTuple):
    """A transaction that appends; a prepared one has no process."""

    pid: int | None
    application_name: str | None
    started_at: datetime | None
    holder: str

    def __str__(self) -> str:
        """``process 12 (import, open since 2026-01-01 12:00:00+0000)``."""
        if self.pid is None:
            return "a prepared transaction"
        since = f", open since {self.started_at:%Y-%m-%d %H:%M:%S%z}" if self.started_at is not None else ""
        return f"process {self.pid} ({self.application_name or 'no application name'}{since})"


class WritersInFlight(ProjectionsError):
    """Transactions that append stayed open for longer than they were to be waited for; the message names them."""


class WritersLook(NamedTuple):
    """
    One look at the writers; what is read by later statements is complete up to what it shows.

    Args:
        at: The database's time, from before the list of holders was made.
        holders: Transactions that hold the append lock; as :class:`journal.backtracking.WritersPoll` has them.
        imports: Imports after the one that was asked for: number, entity type, time of the oldest event.
        standby: Whether the database is a standby, where the locks of the primary cannot be seen.
        starts: Of holders, the time that their stamps are not before, in a log whose bound asks for that.
        generation: Of the database.
    """

    at: datetime
    holders: frozenset[str]
    imports: tuple[tuple[int, str, datetime], ...] = ()
    standby: bool = False
    starts: Mapping[str, datetime] = MappingProxyType({})
    generation: Generation | None = None


async def look_at_writers(
    session: Session, after_import: int = NO_IMPORTS, *, poll: str = POLL
) -> WritersLook:
    """
    Look at the writers.

    Args:
        session: Outside a transaction.
        after_import: Imports with later numbers are shown; by default none.
        poll: The query of the log.

    Raises:
        DatabaseError: The database refused, or was lost.
    """
    return _seen(await fetch_on(session, poll, _of_all(after_import)))


def look_at_writers_sync(
    connection: SyncConnection, after_import: int = NO_IMPORTS, *, poll: str = POLL
) -> WritersLook:
    """Look at the writers on a connection in autocommit mode; see :func:`look_at_writers`."""
    return _seen(fetch_on_sync(connection, poll, _of_all(after_import)))


def writers_in_flight_sync(connection: SyncConnection) -> list[Writer]:
    """The transactions that append; what the role may not see of them is None."""
    return [Writer(*row) for row in fetch_on_sync(connection, WRITERS, ())]


async def wait_for_writers(
    session: Session,
    waited_for: Iterable[str],
    *,
    patience: timedelta | None = None,
    tell: Callable[[Sequence[Writer]], None] | None = None,
    queries: tuple[str, str] = (POLL, WRITERS),
) -> None:
    """
    Wait until transactions that held the append lock are gone.

    Args:
        session: On the primary, outside a transaction.
        waited_for: The holders that a look has shown.
        patience: How long to wait at most; None: however long it takes.
        tell: Called with those that are still open, when that has taken half a second and then every five seconds.
        queries: What the log is asked: its poll, and who writes.

    Raises:
        WritersInFlight: They took longer.
        DatabaseError: The database refused, or was lost.
    """
    steps = _waiting(waited_for, patience, tell, queries)
    rows: _Rows | None = None
    with suppress(StopIteration):
        while True:
            query, rows = steps.send(rows), None
            if query is None:
                await asyncio.sleep(_PAUSE)
            else:
                rows = await fetch_on(session, *query)


def wait_for_writers_sync(
    connection: SyncConnection,
    waited_for: Iterable[str],
    *,
    patience: timedelta | None = None,
    pause: Pause = time.sleep,
    queries: tuple[str, str] = (POLL, WRITERS),
) -> None:
    """Wait for writers on a connection in autocommit mode; see :func:`wait_for_writers`."""
    steps = _waiting(waited_for, patience, None, queries)
    rows: _Rows | None = None
    with suppress(StopIteration):
        while True:
            query, rows = steps.send(rows), None
            if query is None:
                pause(_PAUSE)
            else:
                rows = fetch_on_sync(connection, *query)


def still_open(waited_for: Iterable[str], holders: Iterable[str]) -> frozenset[str]:
    """
    Of transactions that are waited for, those that may still be open.

    One that is prepared changes its name, so whatever is prepared may be one of them; see WritersPoll.
    """
    waited_for = frozenset(waited_for)
    return frozenset(one for one in holders if one in waited_for or (waited_for and one.startswith("p")))


def _waiting(
    waited_for: Iterable[str],
    patience: timedelta | None,
    tell: Callable[[Sequence[Writer]], None] | None,
    queries: tuple[str, str],
) -> Generator[_Query | None, _Rows | None, None]:
    """What to do, step by step: a query, which is answered with its rows, or None, which is a pause."""
    poll, who = queries
    began = time.monotonic()
    tell_at = began + _TELL_AFTER
    waited_for = frozenset(waited_for)
    while waited_for:
        yield None
        waited_for = still_open(waited_for, _seen((yield poll, _of_all(NO_IMPORTS))).holders)
        now = time.monotonic()
        is_late = patience is not None and now > began + patience.total_seconds()
        if waited_for and (is_late or (tell is not None and now >= tell_at)):
            writers = [Writer(*row) for row in (yield who, ()) or ()]
            named = still_open(waited_for, [writer.holder for writer in writers])
            found = [writer for writer in writers if writer.holder in named]
            if is_late:
                raise _in_flight(found, now - began)
            assert tell is not None  # noqa: S101 - as above
            tell(found)
            tell_at = now + _TELL_EVERY


def _in_flight(writers: Sequence[Writer], seconds: float) -> WritersInFlight:
    named = ", ".join(map(str, writers)) or "one that has just ended"
    return WritersInFlight(
        f"transactions that append were still open after {seconds:.3g} s: {named}. Events of theirs may carry earlier "
        "times: end them, or wait longer"
    )


def _of_all(after_import: int) -> Sequence[Any]:
    return [after_import, [], []]


def _seen(rows: _Rows | None) -> WritersLook:
    assert rows  # noqa: S101 - a poll has one row
    (
        at,
        holders,
        numbers,
        types,
        since,
        _,
        timeline,
        started_at,
        position,
        system,
        replayed_until,
        *starts,
    ) = rows[0]
    imports = tuple(zip(numbers, types, since, strict=True))
    known = zip(holders, starts[0], strict=True) if starts else ()
    return WritersLook(
        at, frozenset(holders), imports, replayed_until is not None,
        {holder: start for holder, start in known if start is not None},
        Generation(timeline, started_at, position, system),
    )  # fmt: skip
