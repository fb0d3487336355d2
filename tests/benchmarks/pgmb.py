"""
Matching and reading beside PGMB, on the same server: what its own poll and read take for the same events.

PGMB is one SQL file, ``sql/pgmb.sql`` of https://github.com/haathie/pgmb; to measure beside it, name the file in
``PGMB_SQL``. It needs the extension ``btree_gin``. A single subscription asks for all events, and one connection polls,
then reads: PGMB allows one poller at a time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import asyncpg
import psycopg

from tests.benchmarks.harness import Goal, Line, Sizes, compare
from tests.benchmarks.server import Server
from tests.benchmarks.subscriptions import BATCH, PAGE, Journal, one, payload, topic

_SCRIPT = os.environ.get("PGMB_SQL")

_SUBSCRIBE = """
INSERT INTO pgmb.subscription_groups (id) VALUES ('consumers');
INSERT INTO pgmb.subscriptions (group_id) VALUES ('consumers');
CREATE TABLE public.begins AS SELECT last_read_event_id FROM pgmb.subscription_groups;
"""
_PUBLISH = """
INSERT INTO pgmb.events (topic, payload)
SELECT topic, payload::jsonb FROM unnest($1::text[], $2::text[]) AS published (topic, payload)
"""
_ANEW = (
    "TRUNCATE pgmb.unread_events, pgmb.subscription_events",
    "INSERT INTO pgmb.unread_events SELECT id FROM pgmb.events",
    "UPDATE pgmb.subscription_groups SET last_read_event_id = (SELECT last_read_event_id FROM public.begins)",
    "VACUUM (ANALYZE) pgmb.events, pgmb.unread_events, pgmb.subscription_events",
    "CHECKPOINT",
)
_POLL = "SELECT pgmb.poll_for_events()"
_READ = """
SELECT id, topic, payload::text, metadata, subscription_ids::text[], next_cursor
FROM pgmb.read_next_events('consumers', NULL, $1)
"""
# Its pages have no order of their own: without statistics they are planned so that a page skips events.
_STATISTICS = "ANALYZE pgmb.subscription_events"
_MOVE = "SELECT pgmb.set_group_cursor('consumers', $1::text, false)"


class _Pgmb:
    """A database of PGMB in which a number of events was published after somebody had subscribed."""

    def __init__(self, dsn: str, script: Path, events: int) -> None:
        self._dsn = dsn
        self._script = script
        self._events = events

    async def fill(self) -> None:
        """Install it, subscribe and publish."""
        with closing(psycopg.connect(self._dsn, autocommit=True)) as server:
            server.execute(self._script.read_bytes())
            server.execute(_SUBSCRIBE)
        connection = await asyncpg.connect(self._dsn)
        try:
            for first in range(0, self._events, BATCH):
                numbers = range(first, first + BATCH)
                await connection.execute(_PUBLISH, [topic(n) for n in numbers], [payload(n) for n in numbers])
        finally:
            await connection.close()

    async def poll_and_read(self) -> float:
        """Match all events, then read them; returns how many that are in a second."""
        with closing(psycopg.connect(self._dsn, autocommit=True)) as server:
            for statement in _ANEW:
                server.execute(statement)
        connection = await asyncpg.connect(self._dsn)
        try:
            begun = time.perf_counter()
            while await connection.fetchval(_POLL):
                pass
            took = time.perf_counter() - begun
            await connection.execute(_STATISTICS)
            begun = time.perf_counter()
            read = await self._read(connection)
            took += time.perf_counter() - begun
        finally:
            await connection.close()
        if read != self._events:
            raise AssertionError(f"PGMB gave {read} of {self._events} events")
        return self._events / took

    @staticmethod
    async def _read(connection: asyncpg.Connection) -> int:
        read = 0
        while page := await connection.fetch(_READ, PAGE):
            read += len(page)
            await connection.execute(_MOVE, page[-1]["next_cursor"])
        return read


@contextmanager
def _role(server: Server) -> Iterator[None]:
    """PGMB's script makes a role of the whole server: it goes again, unless it was there before."""
    with server.database() as dsn, closing(psycopg.connect(dsn, autocommit=True)) as connection:
        there = connection.execute("SELECT FROM pg_roles WHERE rolname = 'pgmb_reader'").fetchone()
        yield
        if there is None:
            connection.execute("DROP ROLE IF EXISTS pgmb_reader")


async def measure_pgmb(server: Server, sizes: Sizes) -> list[Line]:
    """One subscription for all events; nothing where PGMB's script is not named."""
    if _SCRIPT is None:
        print("PGMB_SQL does not name PGMB's sql/pgmb.sql: left out", end=" ", file=sys.stderr)
        return []
    with _role(server), server.database() as ours, server.database() as theirs:
        journal = Journal(ours, sizes.matched)
        await journal.fill(one(1))
        pgmb = _Pgmb(theirs, Path(_SCRIPT), sizes.matched)
        await pgmb.fill()
        rounds = await compare(
            {"ours": journal.match_and_read, "PGMB": pgmb.poll_and_read, "by hand": journal.by_hand},
            sizes.rounds,
        )
    return [
        rounds.line("matched and read, one subscription", "events/s", "ours", "PGMB", Goal(1.5)),
        rounds.line("the same statements by hand", "events/s", "by hand", "PGMB"),
    ]
