"""A captured table, beside the bare one, and beside the bare one whose finished events somebody else has made."""

from __future__ import annotations

import asyncio
import time

import psycopg

from tests.benchmarks.harness import Line, Rounds, Sizes, compare
from tests.benchmarks.server import Server, settle

_TABLE = "(id integer PRIMARY KEY, customer text, amount numeric(10, 2), note text, placed_at timestamptz)"
_STATEMENTS = {
    "insert": "INSERT INTO {table} SELECT n, 'customer ' || n %% 100, n, 'a note of some words', now() "
    "FROM generate_series(1, %(rows)s) AS n",
    "update": "UPDATE {table} SET amount = amount + 1",
    "delete": "DELETE FROM {table}",
}
_BARE, _CAPTURED, _BY_HAND = "bare statement", "captured", "bare statement and its finished events"
# What no way to store the same events can spare: their rows, the indexes, and where each source stands.
_FINISHED = """
CREATE TABLE finished AS SELECT * FROM projections.events
WHERE event_type = 'public.captured.' || %(operation)s ORDER BY source_id
"""
_STORE = """
WITH stood AS (
    INSERT INTO projections.sources AS s (source_id, entity_type, slice, seq_nr, db_timestamp)
    SELECT source_id, entity_type, slice, seq_nr, db_timestamp FROM finished
    ON CONFLICT (source_id) DO UPDATE SET seq_nr = excluded.seq_nr, db_timestamp = excluded.db_timestamp
)
INSERT INTO projections.events SELECT * FROM finished
"""


class _Tables:
    """The same statement on a captured table and on a bare one."""

    def __init__(self, dsn: str, rows: int) -> None:
        self._dsn = dsn
        self._rows = rows
        self._connection = psycopg.connect(dsn, autocommit=True)
        for table in ("bare", "captured"):
            self._connection.execute(f"CREATE TABLE {table} {_TABLE}")

    def close(self) -> None:
        self._connection.close()

    def _execute(self, operation: str, table: str) -> None:
        self._connection.execute(_STATEMENTS[operation].format(table=table), {"rows": self._rows})

    def _begin(self, operation: str, table: str) -> None:
        """All as it is before the operation, its sources too; what is inserted before others are measured, too."""
        self._connection.execute("DROP TABLE IF EXISTS finished")
        if table == "captured":
            self._connection.execute("SELECT projections.release_table_v1('captured')")
        self._connection.execute(f"TRUNCATE {table}, projections.events, projections.sources")
        if table == "captured":
            self._connection.execute("SELECT projections.capture_table_v1('captured')")
        if operation != "insert":
            self._execute("insert", table)

    def _finish(self, operation: str) -> None:
        """Make the events of the operation once, as a table, and forget them where they belong."""
        self._begin(operation, "captured")
        self._execute(operation, "captured")
        self._connection.execute(_FINISHED, {"operation": operation})
        self._connection.execute(
            "DELETE FROM projections.events WHERE event_type = 'public.captured.' || %s", [operation]
        )
        if operation == "insert":
            self._connection.execute("TRUNCATE projections.sources")

    def rate(self, operation: str, contender: str) -> float:
        """Rows per second of one statement."""
        self._begin(operation, "captured" if contender == _CAPTURED else "bare")
        if contender == _BY_HAND:
            self._finish(operation)
        settle(self._dsn)
        begun = time.perf_counter()
        with self._connection.transaction():
            self._execute(operation, "captured" if contender == _CAPTURED else "bare")
            if contender == _BY_HAND:
                self._connection.execute(_STORE)
        return self._rows / (time.perf_counter() - begun)

    async def measure(self, operation: str, rounds: int) -> Rounds:
        async def rate(contender: str) -> float:
            return await asyncio.to_thread(self.rate, operation, contender)

        return await compare(
            {
                _CAPTURED: lambda: rate(_CAPTURED),
                _BY_HAND: lambda: rate(_BY_HAND),
                _BARE: lambda: rate(_BARE),
            },
            rounds,
        )


async def measure_capture(server: Server, sizes: Sizes) -> list[Line]:
    """One statement of many rows: inserted, updated, deleted."""
    lines = []
    with server.database() as dsn:
        tables = _Tables(dsn, sizes.captured)
        try:
            for operation in _STATEMENTS:
                rounds = await tables.measure(operation, sizes.rounds)
                what = f"{operation} of {sizes.captured:,} rows, "
                lines += [
                    rounds.line(what + name, "rows/s", name, beside)
                    for name, beside in ((_CAPTURED, _BARE), (_CAPTURED, _BY_HAND), (_BY_HAND, _BARE))
                ]
        finally:
            tables.close()
    return lines
