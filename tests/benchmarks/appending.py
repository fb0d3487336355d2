"""Appending and importing, beside an INSERT and a COPY of the same rows into the same table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg

from journal import Event, slice_of
from journal.appending import append
from journal.database import Database, connect
from journal.importing import import_events
from tests.benchmarks import workload
from tests.benchmarks.harness import Goal, Line, Rounds, Sizes, compare
from tests.benchmarks.peer import Peer
from tests.benchmarks.server import Server, settle

_COLUMNS = (
    "db_timestamp", "seq_nr", "event_id", "slice", "version", "source_id", "entity_type", "event_type", "payload",
)  # fmt: skip
_TYPES = ("timestamptz", "bigint", "uuid", "smallint", "smallint", "text", "text", "text", "json")
_INSERT = (
    f"INSERT INTO projections.events ({', '.join(_COLUMNS)}) SELECT * FROM unnest("
    + ", ".join(f"${place}::{name}[]" for place, name in enumerate(_TYPES, 1))
    + ")"
)
_FEW = 4
_STAGE = "CREATE TEMPORARY TABLE staged (LIKE projections.events) ON COMMIT DROP"
_WRONG = """
SELECT count(*) FROM (
    SELECT
        i.seq_nr, i.db_timestamp, i.entity_type, s.entity_type AS stored,
        coalesce(s.seq_nr, 0) + row_number() OVER w AS expected,
        coalesce(lag(i.db_timestamp) OVER w, s.db_timestamp) AS previous
    FROM staged AS i LEFT JOIN projections.sources AS s ON i.source_id = s.source_id
    WINDOW w AS (PARTITION BY i.source_id ORDER BY i.seq_nr)
) AS i
WHERE i.seq_nr <> i.expected OR i.db_timestamp <= i.previous OR i.db_timestamp > clock_timestamp()
OR i.entity_type <> i.stored
"""
_MOVE = (
    f"INSERT INTO projections.events ({', '.join(_COLUMNS)}) "
    f"SELECT {', '.join(_COLUMNS)} FROM staged ORDER BY db_timestamp"
)
_SOURCES = """
INSERT INTO projections.sources (source_id, entity_type, slice, seq_nr, db_timestamp)
SELECT source_id, min(entity_type), min(slice), max(seq_nr), max(db_timestamp) FROM staged GROUP BY source_id
ON CONFLICT (source_id) DO UPDATE SET seq_nr = excluded.seq_nr, db_timestamp = excluded.db_timestamp
"""

Rows = list[tuple[Any, ...]]


def _rows(count: int, sources: int, first: int = 0) -> Rows:
    """What the journal would store of events: every value is ready."""
    start = datetime.now(UTC) - timedelta(hours=1)
    return [
        (
            start + timedelta(microseconds=n), n // sources + 1, uuid4(), slice_of(source), 1, source,
            workload.ENTITY_TYPE, "Landed", workload.landed(n, sources).model_dump_json(),
        )
        for n in range(first, first + count)
        for source in [workload.source_id(n, sources)]
    ]  # fmt: skip


def _batches(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _empty(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("TRUNCATE projections.events, projections.sources, projections.imports")
    settle(dsn)


async def _rate(dsn: str, count: int, work: Callable[[], Awaitable[Any]]) -> float:
    await asyncio.to_thread(_empty, dsn)
    begun = time.perf_counter()
    await work()
    return count / (time.perf_counter() - begun)


async def _append_all(database: Database, batches: Sequence[Sequence[Event]]) -> None:
    """Each batch is a statement, and a transaction, of its own, as each bare INSERT is."""
    async with database.session() as session:
        for batch in batches:
            await append(session, batch)


async def _insert_all(connection: Any, batches: Sequence[Sequence[Sequence[Any]]]) -> None:
    for columns in batches:
        await connection.execute(_INSERT, *columns)


def _columns(batches: Sequence[Sequence[Any]]) -> list[list[list[Any]]]:
    return [[list(column) for column in zip(*batch, strict=True)] for batch in batches]


class _Appends:
    """Contenders of one database: each appends the same events in batches of a size."""

    def __init__(self, dsn: str, database: Database, sources: int) -> None:
        self._dsn = dsn
        self._database = database
        self._sources = sources

    async def measure(
        self, count: int, size: int, rounds: int, **more: Callable[[], Awaitable[float]]
    ) -> Rounds:
        events = workload.events(0, count, self._sources)
        with_ids = [replace(event, event_id=uuid4()) for event in events]
        rows = _columns(_batches(_rows(count, self._sources), size))
        bare = await asyncpg.connect(self._dsn)
        contenders = {
            "append": lambda: _rate(
                self._dsn, count, lambda: _append_all(self._database, _batches(events, size))
            ),
            "bare INSERT": lambda: _rate(self._dsn, count, lambda: _insert_all(bare, rows)),
            "append with event_id": lambda: _rate(
                self._dsn, count, lambda: _append_all(self._database, _batches(with_ids, size))
            ),
        }
        try:
            return await compare({**contenders, **more}, rounds)
        finally:
            await bare.close()

    async def measure_few(self, count: int, size: int, rounds: int) -> Rounds:
        """Several connections at once, on the same sources."""
        shares = [_batches(workload.events(n * count, count, self._sources), size) for n in range(_FEW)]
        rows = [_columns(_batches(_rows(count, self._sources, n * count), size)) for n in range(_FEW)]
        async with AsyncExitStack() as stack:
            connections = [await asyncpg.connect(self._dsn) for _ in range(_FEW)]
            for connection in connections:
                stack.push_async_callback(connection.close)

            async def appends() -> None:
                await asyncio.gather(*(_append_all(self._database, share) for share in shares))

            async def inserts() -> None:
                await asyncio.gather(*map(_insert_all, connections, rows))

            return await compare(
                {
                    "append": lambda: _rate(self._dsn, _FEW * count, appends),
                    "bare INSERT": lambda: _rate(self._dsn, _FEW * count, inserts),
                },
                rounds,
            )


async def measure_append(server: Server, sizes: Sizes) -> list[Line]:
    """Batches of 500, of 50 and of 1; with ids; over several connections."""
    with server.database() as dsn:
        async with connect(dsn) as database:
            appends = _Appends(dsn, database, sizes.sources)
            with Peer(dsn) as peer:
                stored = _batches(peer.stored_events(sizes.append // 5, sizes.sources), 500)
                large = await appends.measure(
                    sizes.append,
                    500,
                    sizes.rounds,
                    eventsourcing=lambda: asyncio.to_thread(peer.append_rate, stored),
                )
            few = await appends.measure_few(sizes.append // _FEW, 500, sizes.rounds)
            medium = await appends.measure(sizes.append_small, 50, sizes.rounds)
            single = await appends.measure(sizes.append_single, 1, sizes.rounds)
    return [
        large.line("append, batches of 500", "events/s", "append", "bare INSERT", Goal(0.4)),
        large.line("append, batches of 500", "events/s", "append", "eventsourcing"),
        large.line(
            "append with event_id, batches of 500",
            "events/s",
            "append with event_id",
            "bare INSERT",
            Goal(0.38),
        ),
        few.line(f"append, batches of 500, {_FEW} connections", "events/s", "append", "bare INSERT"),
        medium.line("append, batches of 50", "events/s", "append", "bare INSERT"),
        medium.line("append with event_id, batches of 50", "events/s", "append with event_id", "bare INSERT"),
        single.line("append, one event", "events/s", "append", "bare INSERT", Goal(0.5)),
        single.line("append with event_id, one event", "events/s", "append with event_id", "bare INSERT"),
    ]


async def _load_by_hand(connection: Any, chunks: Sequence[Sequence[Any]]) -> None:
    """The least that checks numbers and times and writes sources: it locks none, and makes no id and no slice."""
    for chunk in chunks:
        async with connection.transaction():
            await connection.execute(_STAGE)
            await connection.copy_records_to_table("staged", columns=_COLUMNS, records=chunk)
            if wrong := await connection.fetchval(_WRONG):
                raise AssertionError(f"{wrong} events have another number or time than is due")
            await connection.execute(_MOVE)
            await connection.execute(_SOURCES)


async def measure_import(server: Server, sizes: Sizes) -> list[Line]:
    """History with numbers and times, checked and loaded, beside COPY of finished rows, and beside the same by hand."""
    count = sizes.imported
    events, rows = workload.history(count, sizes.sources), _rows(count, sizes.sources)
    with server.database() as dsn:
        async with connect(dsn) as database:
            bare = await asyncpg.connect(dsn)

            async def copy() -> None:
                for chunk in _batches(rows, 10_000):
                    await bare.copy_records_to_table(
                        "events", schema_name="projections", columns=_COLUMNS, records=chunk
                    )

            rounds = await compare(
                {
                    "import": lambda: _rate(dsn, count, lambda: import_events(database, events)),
                    "bare COPY": lambda: _rate(dsn, count, copy),
                    "by hand": lambda: _rate(dsn, count, lambda: _load_by_hand(bare, _batches(rows, 10_000))),
                },
                sizes.rounds,
            )
            await bare.close()
    return [
        rounds.line("bulk import, chunks of 10,000", "events/s", "import", "bare COPY", Goal(0.6)),
        rounds.line("bulk import, chunks of 10,000", "events/s", "import", "by hand"),
        rounds.line("staged and checked by hand, chunks of 10,000", "events/s", "by hand", "bare COPY"),
    ]
