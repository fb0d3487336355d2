"""What the tests of clustering share: a journal with a closed partition, and the steps of the exchange."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from journal import Database, Session
from journal.importing import import_events
from journal.partitions import ClusteredPartition, cluster, make_partitions
from tests.fixtures.journal import PAST, historic
from tests.fixtures.locks import WAITING

DAY = timedelta(days=1)
NOW = timedelta(0)
NAME = "events_20200101t000000"
TABLE = f"projections.{NAME}"
COPY = "VACUUM (FREEZE, ANALYZE) projections.events_copy_of_{}"
EVENTS = 300


async def closed_partition(database: Database) -> Database:
    """300 events of 30 sources of two types on a day of 2020, in a partition of its own."""
    history = [
        replace(
            historic(f"s{n % 30}", 1 + n // 30, db_timestamp=PAST + n * DAY / 301), entity_type=f"type{n % 2}"
        )
        for n in range(EVENTS)
    ]
    await import_events(database, history)
    await make_partitions(database, ahead=1)
    return database


async def value(database: Database, sql: str, *args: Any) -> Any:
    async with database.session() as session:
        return await session.fetchval(sql, *args)


async def clustered_names(database: Database) -> list[str]:
    return list(
        await value(
            database, "SELECT array_agg(name ORDER BY name) FROM projections.partitions WHERE clustered"
        )
        or []
    )


async def copies(database: Database) -> int:
    return int(await value(database, "SELECT count(*) FROM pg_class WHERE relname LIKE 'events_copy_of%'"))


async def cluster_once(database: Database, **settings: Any) -> ClusteredPartition:
    """Without waiting for anybody."""
    (partition,) = await cluster(database, **{"attempts": 1, "pause": NOW, "patience": NOW, **settings})
    return partition


async def copy_partition(database: Database) -> None:
    """What comes before the exchange."""
    async with database.session() as session:
        await session.execute("SELECT projections.cluster_partition_v1($1)", NAME)
        await session.execute(COPY.format(await session.fetchval(f"SELECT '{TABLE}'::regclass::oid")))


async def swap_partition(session: Session) -> int:
    return int(await session.fetchval("SELECT projections.swap_partition_v1($1, 1)", NAME))


async def until_somebody_waits(database: Database) -> None:
    async with database.session() as session:
        while not await session.fetchval(f"SELECT count(*) FROM {WAITING}"):
            pass
