"""What the tests of captured tables share."""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]

ORDERS = """
CREATE TABLE orders (
    id integer PRIMARY KEY, customer text NOT NULL, amount numeric(10, 2), placed_at timestamptz
)
"""


class Captured(NamedTuple):
    """An event as the journal has it."""

    source_id: str
    seq_nr: int
    event_type: str
    payload: Any
    metadata: Any


def capture(connection: Connection, table: str = "orders", **settings: Any) -> str:
    """Capture a table; settings are those of the function in SQL, without their ``p_``."""
    named = "".join(f", p_{name} => %({name})s" for name in settings)
    row = connection.execute(
        f"SELECT projections.capture_table_v1(%(table)s{named})", {"table": table, **settings}
    ).fetchone()
    assert row is not None
    return str(row[0])


def events(connection: Connection) -> list[Captured]:
    """All events in the order in which they were appended; those of one statement by their sources."""
    rows = connection.execute(
        "SELECT source_id, seq_nr, event_type, payload, metadata FROM projections.events "
        "ORDER BY db_timestamp, source_id"
    ).fetchall()
    return [Captured(*row) for row in rows]


def told(connection: Connection) -> list[tuple[str, str, Any]]:
    """Of each event the end of its source, its operation, and its payload."""
    return [
        (one.source_id.partition("/")[2], one.event_type.rpartition(".")[2], one.payload)
        for one in events(connection)
    ]


def texts(connection: Connection) -> list[str]:
    """The payloads as they are stored."""
    rows = connection.execute("SELECT payload::text FROM projections.events ORDER BY db_timestamp").fetchall()
    return [text for (text,) in rows]
