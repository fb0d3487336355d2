"""Settings of running projections: every field with its unit, its default, and what it trades."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import Field

from journal import PAGE_BYTES, PollPacing
from offsets.leases import LeaseSettings
from projections.failing import ALIKE, Backoff

WORKER_CONNECTIONS = 20
"""The pool of a worker process, by default."""
OTHER_CONNECTIONS = 3
"""Of a pool, what ranges do not take: one for polls, one for heartbeats, one for what comes up."""
ABORT_AFTER = timedelta(minutes=5)
"""A loop that has not turned for this time will hardly turn again: the process of a worker is ended."""


class RunSettings(LeaseSettings):
    """How projections run in a process."""

    backtracking: Literal["writer-lock", "interval"] = "writer-lock"
    """writer-lock loses no late commit; interval may miss very late ones: for servers that do not show who writes.
    A replica alongside its primary is read by the first; a replica alone, by the second."""

    late_by: timedelta = timedelta(seconds=10)
    """For interval backtracking: how much later than its timestamp a commit may become visible."""

    clock_margin: timedelta = timedelta(milliseconds=20)
    """For writer-lock backtracking: how far the database's clock may step back unnoticed. Read again on every poll."""

    pacing: PollPacing = PollPacing()
    """How often the database is asked for news: latency against queries."""

    listen: bool = True
    """Wake on notifications too. Needs a connection of its own. Through a pooler there are none: polling does it."""

    cache_size: int = Field(default=65_536, ge=1)
    """Sources of a projection whose offset is kept in memory, about 200 bytes each, shared by the ranges of a process;
    others are looked up for each batch."""

    page_bytes: int = Field(default=PAGE_BYTES, ge=1)
    """A page ends with the event with which its payloads and metadata reach this size in bytes; one has up to 16 MiB. A
    range has two pages in memory, and what handlers make of them. Halved when memory is short or an answer
    does not come."""

    read_timeout: timedelta = Field(default=timedelta(seconds=30), gt=timedelta(0))
    """How long a statement of a range may take outside of handlers, such as the reading of a page: then its connection
    is dropped, and the range starts again."""

    heartbeat: timedelta = Field(default=timedelta(milliseconds=500), gt=timedelta(0))
    """How often the lease is prolonged, and workers that came or went, pause, resume and decisions are noticed."""

    retention: timedelta = Field(default=timedelta(days=1), ge=timedelta(minutes=1))
    """How long offsets of sources are kept behind the settled horizon. A longer time needs a larger table; a shorter
    one limits how far back an import may reach and how far the database's clock may step back. A projection of one
    range stores no offsets of events that are older than this when it reads them, unless something was imported within
    this time."""

    evict_every: timedelta = timedelta(minutes=10)
    """How often offsets that nothing needs any more are deleted."""

    save_horizon_every: timedelta = timedelta(seconds=10)
    """How often the horizon moves on while no event comes: what a restart looks at again, against idle queries."""

    restart: Backoff = Backoff(timedelta(milliseconds=200), timedelta(seconds=30))
    """Pauses before a failed range starts again: a lease at most, and a fifth of it where the database has failed."""

    alike_failures: int = Field(default=ALIKE, ge=1)
    """How many sources may be parked or skipped that fail alike, with none handled between them. With the next one the
    range stops, for then the handler is at fault. It starts again with pauses, and goes on once that is fixed."""

    handler_timeout: timedelta = timedelta(minutes=1)
    """A call of a handler that takes longer is cancelled, and has failed: the projection's recovery decides. 5 seconds
    later the database ends a transaction that says nothing, so that a process that is cut off keeps no rows locked."""

    blocked_after: timedelta = timedelta(seconds=1)
    """A handler that holds the event loop longer than this is reported."""

    abort_after: timedelta | None = None
    """End the process when a handler has held the event loop for this time, or goes on after it was cancelled: others
    take over, and a supervisor starts it again. By default it is only reported, for what is more than a worker."""


def pause_after(settings: RunSettings, failures: int, *, of_the_database: bool) -> timedelta:
    """
    The pause after the n-th failure in a row.

    Args:
        settings: The lengths of pauses.
        failures: 1 for the first.
        of_the_database: Then all ranges wait for it, and so do heartbeats.

    Nobody says when a fault has passed, and what waits then is to be handled within two leases.
    """
    return min(settings.restart.delay(failures), settings.lease / (5 if of_the_database else 1))
