"""What tests of retention share: a journal of three days, and whoever still needs it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from journal import Database, HistoricEvent, import_events
from journal.partitions import Maintained, Partition, change_partition_settings, maintain, partitions
from tests.fixtures.projections import Happened, execute, fetchval

PAST = datetime(2020, 1, 1, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
NOW = timedelta(0)
NAMES = ["events_20200101t000000", "events_20200102t000000", "events_20200103t000000"]
SOURCES = ["a", "b", "c"]


def history(first: int = 1, last: int = 12) -> list[HistoricEvent]:
    """Four events a day of each source."""
    return [
        HistoricEvent(
            source, Happened(n=number), "plane", seq_nr=number, db_timestamp=PAST + (number - 1) * 6 * HOUR
        )
        for number in range(first, last + 1)
        for source in SOURCES
    ]


async def filled(database: Database, retention: timedelta | None = DAY) -> Database:
    """A journal of three closed days in partitions of their own, of which retention lets all go."""
    await import_events(database, history())
    await retained(database)
    if retention is not None:
        await keep(database, "events", retention=retention)
    return database


async def retained(database: Database, **options: Any) -> Maintained:
    """One run of maintenance that does not wait for others."""
    return await maintain(
        database,
        ahead=1,
        **{"lock_timeout": timedelta(milliseconds=50), "attempts": 1, "pause": NOW, **options},
    )


async def keep(database: Database, table: str, **settings: Any) -> None:
    async with database.session() as session:
        await change_partition_settings(session, table, **settings)


async def past(database: Database, table: str = "events") -> list[str]:
    """Names of the partitions of a table whose time was over long ago."""
    async with database.session() as session:
        found = await partitions(session)
    return [each.name for each in found if each.table == table and _ended(each)]


def _ended(partition: Partition) -> bool:
    return partition.to_timestamp is not None and partition.to_timestamp < PAST + 1000 * DAY


async def kept_by(database: Database) -> dict[str, tuple[str, ...]]:
    """What keeps the partitions of long ago."""
    async with database.session() as session:
        found = await partitions(session)
    return {each.name: tuple(str(holder) for holder in each.holders) for each in found if _ended(each)}


async def reader(
    database: Database, horizon: datetime, name: str = "slow", entity_type: str = "plane"
) -> int:
    """A projection that has read everything before a time, and every import."""
    number = await fetchval(database, "SELECT projections.register_projection_v1($1, $2)", name, entity_type)
    await execute(
        database,
        "UPDATE projections.projection_ranges SET horizon = $2, "
        "import_id = (SELECT coalesce(max(import_id), 0) FROM projections.imports) WHERE projection_id = $1",
        number,
        horizon,
    )
    return int(number)


async def group(database: Database, name: str = "billing", *, reliable: bool = True) -> int:
    return int(await fetchval(database, "SELECT projections.create_group_v1($1, $2)", name, reliable))


async def match(
    database: Database, group_id: int, db_timestamp: datetime, matched_at: datetime, match_id: int = 1
) -> None:
    await execute(
        database,
        "INSERT INTO projections.matches (match_id, group_id, slice, seq_nr, db_timestamp, matched_at, source_id, "
        "subscription_ids) VALUES ($1, $2, 7, 1, $3, $4, 'a', '{1}')",
        match_id,
        group_id,
        db_timestamp,
        matched_at,
    )
