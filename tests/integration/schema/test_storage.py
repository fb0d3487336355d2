"""How wide columns are compressed: the tests hold on servers that were built with lz4, and on those that were not."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from journal import Database, schema
from tests.fixtures.projections import execute, fetchval

LZ4 = "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
COLUMN = """
SELECT CASE a.attcompression WHEN 'l' THEN 'lz4 ' WHEN 'p' THEN 'pglz ' ELSE '' END || a.attstorage::text
FROM pg_attribute AS a WHERE a.attrelid = $1::regclass AND a.attname = $2
"""
WIDE = [
    ("projections.events", "payload", "x"),
    ("projections.events", "metadata", "x"),
    ("projections.group_retries", "matches", "x"),
    ("projections.matches", "subscription_ids", "e"),
]


@pytest.mark.parametrize(("table", "column", "without"), WIDE)
async def test_wide_columns_are_compressed_by_lz4_where_there_is_any(
    database: Database, table: str, column: str, without: str
) -> None:
    """In default partitions and in those that are made, too; arrays that lz4 cannot compress are left as they are."""
    expected = "lz4 x" if await fetchval(database, LZ4) else without
    tables = [table]
    if table != "projections.group_retries":
        name = table.removeprefix("projections.")
        day = datetime(2100, 1, 1, tzinfo=UTC)
        await execute(
            database,
            "SELECT projections._create_partition_v1($1, $2, $3)",
            day,
            day + timedelta(days=1),
            name,
        )
        made = await fetchval(
            database,
            "SELECT name FROM projections.partitions WHERE table_name = $1 AND from_timestamp = $2",
            name,
            day,
        )
        tables += [f"{table}_default", f"projections.{made}"]

    assert {one: await fetchval(database, COLUMN, one, column) for one in tables} == dict.fromkeys(
        tables, expected
    )


async def test_a_table_of_before_is_changed_with_its_partitions_by_an_install(
    dsn: str, database: Database
) -> None:
    for table in ("matches", "matches_default"):
        await execute(
            database, f"ALTER TABLE ONLY projections.{table} ALTER subscription_ids SET STORAGE MAIN"
        )
    expected = "lz4 x" if await fetchval(database, LZ4) else "e"

    await asyncio.to_thread(schema.install, dsn)

    for table in ("projections.matches", "projections.matches_default"):
        assert await fetchval(database, COLUMN, table, "subscription_ids") == expected
