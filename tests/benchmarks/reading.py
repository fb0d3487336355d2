"""Reading by slices: how fast, and whether the backlog behind a batch costs anything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Any

import asyncpg

from journal import ALL_SLICES, BEGINNING, Database, EventEnvelope, Position, SliceRange, SliceReader
from journal.database import connect
from projections import StatusObserver, run
from tests.benchmarks import workload
from tests.benchmarks.harness import Goal, Line, Sizes, compare
from tests.benchmarks.peer import Peer
from tests.benchmarks.server import Server, settle

_RANGES = {"all slices": ALL_SLICES, "a quarter": SliceRange(256, 511), "16 slices": SliceRange(512, 527)}
_PAGE = 1_000
_FIRST_PAGE = 100  # also the narrow range of the small journal fills it: both read the same number of rows
_SELECT = """
SELECT source_id, seq_nr, db_timestamp, slice, event_id, entity_type, event_type, version, payload, metadata, tags
FROM projections.events
WHERE entity_type = $1 AND slice BETWEEN $2 AND $3
"""
_LOOP = (
    _SELECT
    + """
AND db_timestamp >= $4 AND (db_timestamp, slice, source_id, seq_nr) > ($4, $5::smallint, $6, $7)
ORDER BY entity_type, db_timestamp, slice, source_id, seq_nr LIMIT $8
"""
)
_COPY = _SELECT + "ORDER BY entity_type, db_timestamp, slice, source_id, seq_nr LIMIT $4"


async def _by_reader(database: Database, slices: SliceRange, limit: int) -> float:
    reader = SliceReader(workload.ENTITY_TYPE, slices, _PAGE)
    begun, position, done = time.perf_counter(), Position.before(BEGINNING), 0
    async with database.session() as session:
        until = datetime.now(UTC)
        while done < limit and (page := await reader.events(session, position, until)):
            position, done = page[-1].position, done + len(page)
    return done / (time.perf_counter() - begun)


async def _by_loop(connection: Any, slices: SliceRange, limit: int) -> float:
    begun, done = time.perf_counter(), 0
    after: tuple[Any, ...] = (BEGINNING, -1, "", 0)
    while done < limit and (
        page := await connection.fetch(_LOOP, workload.ENTITY_TYPE, *slices, *after, _PAGE)
    ):
        last = page[-1]
        after = (last["db_timestamp"], last["slice"], last["source_id"], last["seq_nr"])
        done += len(page)
    return done / (time.perf_counter() - begun)


async def _by_copy(connection: Any, slices: SliceRange, limit: int) -> float:
    async def discard(_: bytes) -> None:
        """To nowhere."""

    begun = time.perf_counter()
    status = await connection.copy_from_query(
        _COPY, workload.ENTITY_TYPE, *slices, limit, output=discard, format="binary"
    )
    return int(status.rsplit(" ", 1)[-1]) / (time.perf_counter() - begun)


async def _first_page(database: Database, slices: SliceRange) -> float:
    """Milliseconds until a new reader has its first page."""
    reader = SliceReader(workload.ENTITY_TYPE, slices, _FIRST_PAGE)
    async with database.session() as session:
        begun = time.perf_counter()
        await reader.events(session, Position.before(BEGINNING), datetime.now(UTC))
        return (time.perf_counter() - begun) * 1000


class _StopAtFirst(StatusObserver):
    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.at = 0.0

    def handled(self, name: str, slices: SliceRange, envelopes: Sequence[EventEnvelope]) -> None:
        if not self.stop.is_set():
            self.at = time.perf_counter()
            self.stop.set()


async def _first_batch(database: Database) -> float:
    """Milliseconds from the start of a worker until its first batch is committed."""
    async with database.session() as session:
        await session.execute("TRUNCATE projections.projections CASCADE")
        await session.execute("TRUNCATE delays")
    first = _StopAtFirst()
    begun = time.perf_counter()
    await run(database, workload.ByTable, observer=first, stop=first.stop)
    return (first.at - begun) * 1000


async def _measure_first(stack: AsyncExitStack, dsns: tuple[str, str], sizes: Sizes) -> list[Line]:
    small, large = [await stack.enter_async_context(connect(dsn)) for dsn in dsns]
    lines = []
    many, few = f"{sizes.large_backlog:,} events", f"{sizes.backlog:,} events"
    for name, slices in _RANGES.items():
        for database in (small, large):
            await _first_page(database, slices)
        pages = await compare(
            {many: partial(_first_page, large, slices), few: partial(_first_page, small, slices)},
            sizes.first_batches,
        )
        lines.append(
            pages.line(f"first page, {name}, {many} behind it", "ms", many, few, Goal(1.3, at_most=True))
        )
    batches = await compare(
        {many: lambda: _first_batch(large), few: lambda: _first_batch(small)},
        max(2, sizes.first_batches // 4),
    )
    lines.append(
        batches.line(f"worker's first batch, {many} behind it", "ms", many, few, Goal(1.3, at_most=True))
    )
    return lines


async def _measure_rates(stack: AsyncExitStack, dsn: str, sizes: Sizes) -> list[Line]:
    database = await stack.enter_async_context(connect(dsn))
    connection = await asyncpg.connect(dsn)
    stack.push_async_callback(connection.close)
    peer = stack.enter_context(Peer(dsn))
    events = peer.stored_events(sizes.peer * 2, sizes.sources)
    for start in range(0, len(events), 500):
        peer.append(events[start : start + 500])
    lines = []
    for name, slices in _RANGES.items():
        rates = await compare(
            {
                "reader": partial(_by_reader, database, slices, sizes.read),
                "SELECT in a loop": partial(_by_loop, connection, slices, sizes.read),
                "COPY to nowhere": partial(_by_copy, connection, slices, sizes.read),
            },
            sizes.rounds,
        )
        for beside in ("SELECT in a loop", "COPY to nowhere"):
            lines.append(rates.line(f"read by slices, {name}", "events/s", "reader", beside))
    rates = await compare(
        {
            "reader": lambda: _by_reader(database, ALL_SLICES, sizes.read),
            "eventsourcing": lambda: asyncio.to_thread(peer.read_rate, len(events)),
        },
        sizes.rounds,
    )
    return [*lines, rates.line("read by slices, all slices", "events/s", "reader", "eventsourcing")]


async def measure_read(server: Server, sizes: Sizes) -> list[Line]:
    """Two journals, one with a hundred times the events of the other."""
    with server.database() as small, server.database() as large:
        for dsn, count in ((small, sizes.backlog), (large, sizes.large_backlog)):
            await asyncio.to_thread(workload.fill, dsn, count, sizes.sources)
            await asyncio.to_thread(settle, dsn)
        async with AsyncExitStack() as stack:
            rates = await _measure_rates(stack, large, sizes)
            return [*rates, *await _measure_first(stack, (small, large), sizes)]
