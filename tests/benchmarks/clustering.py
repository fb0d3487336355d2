"""
A closed partition in slice order beside the same events in the order of time: pages touched and time.

What it is for shows where the database's cache is much smaller than the data: ``--dsn`` of a server with
``shared_buffers = 16MB``.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import asyncpg
import psycopg

from journal import ALL_SLICES, BEGINNING, Database, Position, SliceRange, SliceReader
from journal.database import connect
from journal.partitions import cluster
from tests.benchmarks import workload
from tests.benchmarks.harness import Goal, Line, Sizes, compare
from tests.benchmarks.server import Server, settle

_EIGHTH = SliceRange(256, 383)
_LIVE = {"all slices": ALL_SLICES, "an eighth": _EIGHTH, "16 slices": SliceRange(256, 271)}
_PAGE = 1_000
_IN_ORDER, _BY_TIME = "slice order", "time order"
# What a split of a batch asks for.
_BATCH = f"""
SELECT source_id, seq_nr, db_timestamp, slice, event_id::text, entity_type, event_type, version, payload::text
FROM projections.events
WHERE entity_type = '{workload.ENTITY_TYPE}' AND slice BETWEEN {_EIGHTH.min_slice} AND {_EIGHTH.max_slice}
AND db_timestamp <= now()
ORDER BY source_id, seq_nr
"""


def _fill(dsn: str, sizes: Sizes) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    with psycopg.connect(dsn) as connection:
        bounds = now - timedelta(days=1), now - timedelta(minutes=30)
        connection.execute("SELECT projections._create_partition_v1(%s, %s)", bounds)
    workload.fill(dsn, sizes.clustered, sizes.sources)
    settle(dsn)


async def _pages(connection: Any, *kinds: str) -> float:
    """Pages of the log and its indexes that the batch touches; at least one, for the sake of ratios."""
    (found,) = await connection.fetchrow(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {_BATCH}")
    scans = [node for node in _nodes(json.loads(found)[0]["Plan"]) if "Relation Name" in node]
    return float(max(1, sum(node[f"Shared {kind} Blocks"] for node in scans for kind in kinds)))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


async def _batch(connection: Any) -> float:
    """Events of the batch in a second."""

    async def discard(_: bytes) -> None:
        """To nowhere."""

    begun = time.perf_counter()
    status = await connection.copy_from_query(_BATCH, output=discard, format="binary")
    return int(status.rsplit(" ", 1)[-1]) / (time.perf_counter() - begun)


async def _live(database: Database, slices: SliceRange, limit: int) -> float:
    """Events in a second of a live reader that catches up."""
    reader = SliceReader(workload.ENTITY_TYPE, slices, _PAGE)
    begun, position, done = time.perf_counter(), Position.before(BEGINNING), 0
    async with database.session() as session:
        until = datetime.now(UTC)
        while done < limit and (page := await reader.events(session, position, until)):
            position, done = page[-1].position, done + len(page)
    return done / (time.perf_counter() - begun)


async def measure_clustering(server: Server, sizes: Sizes) -> list[Line]:
    """Two journals of the same events, one of them in slice order."""
    with server.database() as by_time, server.database() as in_order:
        for dsn in (by_time, in_order):
            await asyncio.to_thread(_fill, dsn, sizes)
        async with AsyncExitStack() as stack:
            databases = {
                _IN_ORDER: await stack.enter_async_context(connect(in_order)),
                _BY_TIME: await stack.enter_async_context(connect(by_time)),
            }
            connections: dict[str, Any] = {}
            for name, dsn in ((_IN_ORDER, in_order), (_BY_TIME, by_time)):
                connections[name] = await asyncpg.connect(dsn)
                stack.push_async_callback(connections[name].close)
            (done,) = await cluster(databases[_IN_ORDER], closed_for=timedelta(0))
            lines = [
                Line(f"put {done.events or 0:,} events in slice order", done.seconds, "s"),
                Line(
                    "their partition", (done.bytes_after or 0) / 1e6, "MB", _BY_TIME, done.bytes_before / 1e6
                ),
            ]
            return [*lines, *await _compared(databases, connections, sizes)]


async def _compared(databases: dict[str, Database], connections: dict[str, Any], sizes: Sizes) -> list[Line]:
    lines = []
    what = "pages of an eighth of the slices"
    for named, kinds, goal in (
        (what, ("Hit", "Read"), Goal(0.25, at_most=True)),
        (f"{what}, not in the cache", ("Read",), None),
    ):
        pages = await compare({n: partial(_pages, c, *kinds) for n, c in connections.items()}, sizes.rounds)
        lines.append(pages.line(named, "pages", _IN_ORDER, _BY_TIME, goal))
    rates = await compare({n: partial(_batch, c) for n, c in connections.items()}, sizes.rounds)
    lines.append(rates.line("batch of an eighth of the slices", "events/s", _IN_ORDER, _BY_TIME))
    for named, slices in _LIVE.items():
        rates = await compare(
            {n: partial(_live, d, slices, sizes.read) for n, d in databases.items()}, sizes.rounds
        )
        lines.append(rates.line(f"live reading, {named}", "events/s", _IN_ORDER, _BY_TIME))
    return lines
