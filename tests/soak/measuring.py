"""What is measured of a soak now and then: memory, latency, sizes, dead rows."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from journal import Database
from tests.soak.processes import Processes, family, usage

_LATENCY = """
SELECT count(*) AS events, percentile_disc(ARRAY[0.5, 0.9, 0.99, 1]) WITHIN GROUP (
    ORDER BY extract(EPOCH FROM handled_at - appended_at) * 1000
)::float8[] AS ms
FROM seen WHERE handled_at > $1 AND handled_at <= $2
"""
_TABLES = """
SELECT coalesce(root.relname, c.relname)::text AS name, count(*)::int AS parts, sum(s.n_dead_tup)::bigint AS dead,
    sum(pg_table_size(c.oid))::bigint AS bytes, sum(pg_indexes_size(c.oid))::bigint AS index_bytes
FROM pg_class AS c
INNER JOIN pg_stat_all_tables AS s ON c.oid = s.relid
LEFT JOIN pg_class AS root ON pg_partition_root(c.oid) = root.oid
WHERE c.relkind = 'r' AND s.schemaname IN ('projections', 'public') GROUP BY 1 ORDER BY 1
"""
_TABLE_LEAST = 100_000
"""Bytes of a table that is worth a place in the file."""


class Progress(Protocol):
    """What a soak knows by itself."""

    appended: int
    delivered: int
    xmin_held: bool


class Measuring:
    """Measures a soak whose server's directory is given."""

    def __init__(self, progress: Progress, database: Database, processes: Processes, root: Path) -> None:
        self._progress = progress
        self._database = database
        self._processes = processes
        self._root = root
        self._looked: list[datetime] = []

    async def sample(self) -> dict[str, Any]:
        """All of it, as a line of the file has it; latency is that of the span before the last one."""
        async with self._database.session() as session:
            self._looked = [*self._looked[-2:], await session.fetchval("SELECT clock_timestamp()")]
            # What a transaction handled in the last span may not have committed yet.
            latency = await session.fetchrow(_LATENCY, *self._looked[:2]) if len(self._looked) > 2 else None
            tables = await session.fetch(_TABLES)
        server = await asyncio.to_thread(self._server)
        return {
            "appended": self._progress.appended,
            "delivered": self._progress.delivered,
            "xmin_held": self._progress.xmin_held,
            "load": round(os.getloadavg()[0], 2),
            "latency": None
            if latency is None or latency["ms"] is None
            else {"events": latency["events"], **dict(zip(_PERCENTILES, latency["ms"], strict=True))},
            "processes": {**self._processes.memory(), "server": server},
            "tables": {
                row["name"]: {name: int(row[name]) for name in ("parts", "bytes", "index_bytes", "dead")}
                for row in tables
                if row["bytes"] + row["index_bytes"] > _TABLE_LEAST
            },
        }

    def _server(self) -> dict[str, float]:
        postmaster = int((self._root / "data" / "postmaster.pid").read_text().split("\n", 1)[0])
        return usage(family(postmaster))


_PERCENTILES = ("p50", "p90", "p99", "max")
