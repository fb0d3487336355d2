"""
How the partitioned tables are kept: settings in the database, which the next run of maintenance goes by.

Their defaults are in ``sql/tables/partition_settings.sql``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from journal.database import Session
from journal.errors import InvalidValue

_READ = """
SELECT s.table_name, s.partition_interval, s.ahead, s.retention, s.archive_first
FROM projections.partition_settings AS s ORDER BY s.table_name
"""
_CHANGE = """
UPDATE projections.partition_settings AS s SET
    partition_interval = coalesce($2::interval, s.partition_interval),
    ahead = coalesce($3::integer, s.ahead),
    retention = CASE WHEN $4::boolean THEN $5::interval ELSE s.retention END,
    archive_first = coalesce($6::boolean, s.archive_first)
WHERE s.table_name = $1
"""

_MINUTE = timedelta(minutes=1)
_LONGEST = timedelta(days=366)
_MOST_AHEAD = 1000


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """
    How a partitioned table is kept.

    Args:
        table: ``events`` is the journal; other packages have their own.
        interval: The time that a partition holds which is made from now on.
        ahead: How many intervals to come have a partition.
        retention: How long a partition is kept after its time, at least; None: without limit.
        archive_first: Whether only a run that archives partitions drops them.
    """

    table: str
    interval: timedelta
    ahead: int
    retention: timedelta | None
    archive_first: bool


async def partition_settings(session: Session, table: str | None = None) -> list[PartitionSettings]:
    """
    The settings of partitioned tables.

    Args:
        session: Any session; the role needs projections_reader.
        table: Of this one alone; None: of all, by name.

    Raises:
        InvalidValue: There is no such table.
    """
    found = [PartitionSettings(*row.values()) for row in await session.fetch(_READ)]
    if table is None:
        return found
    of_table = [each for each in found if each.table == table]
    if not of_table:
        there_are = ", ".join(each.table for each in found)
        raise InvalidValue(f"no table {table!r} has partitions: there are {there_are}")
    return of_table


async def change_partition_settings(
    session: Session,
    table: str,
    *,
    interval: timedelta | None = None,
    ahead: int | None = None,
    retention: timedelta | Literal["forever"] | None = None,
    archive_first: bool | None = None,
) -> PartitionSettings:
    """
    Change settings of a table; what is not given stays. Partitions that are there stay as they are.

    Args:
        session: Any session; the role must own the schema.
        table: One of those that :func:`partition_settings` lists; ``events`` is the journal.
        interval: The time that a partition holds which is made from now on: whole seconds, 1 minute to 366 days.
        ahead: How many intervals to come have a partition: 1 to 1,000.
        retention: How long a partition is kept after its time, at least a minute, or ``"forever"``.
        archive_first: Whether only a run that archives partitions may drop them; for ``events`` alone.

    Raises:
        InvalidValue: There is no such table, or a setting is out of bounds.
    """
    check_settings(table, interval, ahead, retention, archive_first)
    kept = None if retention == "forever" else retention
    await session.execute(_CHANGE, table, interval, ahead, retention is not None, kept, archive_first)
    return (await partition_settings(session, table))[0]


def check_settings(
    table: str,
    interval: timedelta | None,
    ahead: int | None,
    retention: timedelta | Literal["forever"] | None,
    archive_first: bool | None,  # noqa: FBT001 - as it was given
) -> None:
    """
    Check settings as :func:`change_partition_settings` takes them.

    Raises:
        InvalidValue: A setting is out of bounds.
    """
    if interval is not None and (interval.microseconds or not _MINUTE <= interval <= _LONGEST):
        raise InvalidValue(f"interval is whole seconds from 1 minute to 366 days, not {interval}")
    if ahead is not None and not 1 <= ahead <= _MOST_AHEAD:
        raise InvalidValue(f"ahead is 1 to {_MOST_AHEAD:,}, not {ahead}")
    if isinstance(retention, timedelta) and retention < _MINUTE:
        raise InvalidValue(f"retention is at least 1 minute, not {retention}")
    if archive_first and table != "events":
        raise InvalidValue(f"only partitions of events are archived, not of {table}")
