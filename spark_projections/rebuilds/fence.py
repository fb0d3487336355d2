"""
The cut between what a batch reads and what live workers read: everything up to a time, and nothing in flight before it.

An append takes its lock before it reads the clock and holds it until its commit is visible. So of the events up to a
time ``t``, those that are missing belong to who held the lock at ``t``: when these are gone, the events up to ``t`` are
complete, and stay so. Imports of history come later with older times; their numbers say which are in.
"""

from __future__ import annotations

import asyncio
import time as time_of
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from journal import Session
from spark_projections.reading.horizon import MARGIN, still_open

__all__ = ["Fence", "Writer", "take_fence"]

_POLL = "SELECT polled_at, holders FROM projections.poll_writers_v1(9223372036854775807, '{}', '{}')"
_IMPORT = "SELECT coalesce(max(import_id), 0) FROM projections.imports"
_WRITERS = "SELECT holder, pid, application_name, age FROM projections.writers_in_flight_v1()"
_PAUSE = 0.05
_PATIENCE, _TELL_EVERY = 0.5, 5.0  # seconds


class Fence(NamedTuple):
    """Events up to ``time``, and imports up to ``import_id``."""

    time: datetime
    import_id: int


class Writer(NamedTuple):
    """A transaction that appends; a prepared one has no process."""

    pid: int | None
    application_name: str | None
    age: timedelta | None


async def take_fence(
    session: Session,
    *,
    until: datetime | None = None,
    waiting_for: Callable[[Sequence[Writer]], None] | None = None,
) -> Fence:
    """
    Take the time, and wait until no append from before it is in flight.

    Args:
        session: On the primary, outside a transaction.
        until: Cut here, when that is earlier.
        waiting_for: Is told who appends, when that has taken half a second and then every few seconds.

    Raises:
        journal.DatabaseError: The database refused, or was lost.
    """
    row = await session.fetchrow(_POLL)
    assert row is not None  # noqa: S101 - it has one row
    time, before = row["polled_at"] - MARGIN, frozenset(row["holders"])
    tell_at = time_of.monotonic() + _PATIENCE
    while before:
        row = await session.fetchrow(_POLL)
        assert row is not None  # noqa: S101 - likewise
        before = still_open(before, row["holders"])
        if before:
            if waiting_for is not None and time_of.monotonic() >= tell_at:
                tell_at = time_of.monotonic() + _TELL_EVERY
                waiting_for(await _writers(session, before))
            await asyncio.sleep(_PAUSE)
    # Imports that committed while we waited are complete, too, and everything that is read from now on has them.
    import_id = await session.fetchval(_IMPORT)
    return Fence(time if until is None else min(time, until), import_id)


async def _writers(session: Session, waited_for: frozenset[str]) -> list[Writer]:
    """Of those that append now, the ones that are waited for."""
    rows = await session.fetch(_WRITERS)
    still = still_open(waited_for, [row["holder"] for row in rows])
    return [Writer(row["pid"], row["application_name"], row["age"]) for row in rows if row["holder"] in still]
