"""The time partitions as they are: bounds, sizes, rows, and what keeps each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from journal.database import Session

_FOUND = """
SELECT
    p.table_name, p.name, p.from_timestamp, p.to_timestamp, p.bytes, p.estimated_rows, p.clustered, p.is_default,
    coalesce(h.kinds, '{}'), coalesce(h.names, '{}'), coalesce(h.reasons, '{}')
FROM projections.partitions AS p
INNER JOIN projections.partition_settings AS s ON p.table_name = s.table_name
LEFT JOIN (
    SELECT
        h.table_name, h.name, array_agg(h.kind) AS kinds, array_agg(h.holder) AS names, array_agg(h.reason) AS reasons
    FROM projections.partition_holders_v1() AS h GROUP BY h.table_name, h.name
) AS h ON p.table_name = h.table_name AND p.name = h.name
"""
_ORDER = " ORDER BY p.table_name, p.is_default, p.from_timestamp NULLS FIRST, p.to_timestamp"
_ALL = _FOUND + _ORDER
_PAST_RETENTION = (
    f"{_FOUND} WHERE NOT p.is_default AND p.to_timestamp <= clock_timestamp() - s.retention {_ORDER}"
)
_UNMAINTAINED = """
SELECT s.table_name, max(p.to_timestamp) AS until
FROM projections.partition_settings AS s
INNER JOIN projections.partitions AS p ON s.table_name = p.table_name AND NOT p.is_default
GROUP BY s.table_name, s.ahead, s.partition_interval
HAVING max(p.to_timestamp) < clock_timestamp() + (s.ahead - 1) * s.partition_interval
ORDER BY s.table_name
"""
_COUNT = (
    "SELECT c.relname::text, n.rows "
    "FROM (SELECT e.tableoid, count(*) AS rows FROM projections.{} AS e GROUP BY 1) AS n "
    "INNER JOIN pg_catalog.pg_class AS c ON n.tableoid = c.oid"
)


@dataclass(frozen=True, slots=True)
class Holder:
    """
    What keeps a partition.

    Args:
        kind: ``retention`` and ``archive``, the settings; ``projection``, ``rebuild``, ``parked`` and ``group``,
            whoever has not read it; ``directed``, events that wait for their time.
        name: Of the projection or group; else empty.
        reason: Why it keeps the partition, as a phrase that follows its name.
    """

    kind: str
    name: str
    reason: str

    def __str__(self) -> str:
        """Who, and why."""
        who = "group" if self.kind == "group" else "projection"
        return f"{who} {self.name} {self.reason}" if self.name else self.reason


@dataclass(frozen=True, slots=True)
class Partition:
    """
    A partition in time.

    Args:
        table: Whose partition it is: ``events`` is the journal.
        name: The table's name.
        from_timestamp: Its first instant; None where it has none.
        to_timestamp: The first instant after it; None where there is none.
        bytes: What it takes on disk, indexes included.
        rows: How many it holds: an estimate, unless they were counted.
        clustered: Whether it is in slice order.
        is_default: Whether it takes what no other one takes.
        holders: What keeps it; of one that is not closed, nothing is said.
        content: The checksum of the rows of one that is to be archived; None where they were not read.
    """

    table: str
    name: str
    from_timestamp: datetime | None
    to_timestamp: datetime | None
    bytes: int
    rows: int
    clustered: bool = False
    is_default: bool = False
    holders: tuple[Holder, ...] = ()
    content: int | None = None


async def partitions(session: Session, *, exact: bool = False) -> list[Partition]:
    """
    All partitions, by table and time, the default one last; the number of queries does not depend on theirs.

    Args:
        session: Any session; the role needs projections_reader.
        exact: Count the rows, which reads all of them, instead of asking the statistics.
    """
    found = [_partition(*row.values()) for row in await session.fetch(_ALL)]
    if not exact:
        return found
    counts: dict[str, int] = {}
    for table in {each.table for each in found}:
        counts.update(tuple(row.values()) for row in await session.fetch(_COUNT.format(table)))
    return [replace(each, rows=counts.get(each.name, 0)) for each in found]


async def unmaintained(session: Session) -> list[tuple[str, datetime]]:
    """
    The tables whose partitions nobody has made ahead for an interval or longer, and until when there are some.

    One that has none but the default partition is not among them: nobody has ever maintained it, and it works without.
    """
    return [(row["table_name"], row["until"]) for row in await session.fetch(_UNMAINTAINED)]


async def closed_partitions(session: Session) -> list[Partition]:
    """The partitions whose retention is over, by table and time, with what keeps them still."""
    return [_partition(*row.values()) for row in await session.fetch(_PAST_RETENTION)]


def _partition(*values: Any) -> Partition:
    table, name, start, stop, size, rows, clustered, is_default, *holders = values
    return Partition(
        table, name, start, stop, size, rows, clustered, is_default, tuple(map(Holder, *holders))
    )
