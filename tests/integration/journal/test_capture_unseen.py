"""Writes of captured tables that have no events, or would begin other sources, are told of or refused."""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner

from journal import Database, DatabaseError, capture_table, captured_tables
from journal.schema import verify
from projections.cli import main
from projections.monitoring import snapshot
from projections.monitoring.metrics import snapshot_metrics
from tests.fixtures.projections import execute, fetchval

_ORDERS = "CREATE TABLE orders (id numeric PRIMARY KEY, n int, tags int[])"
_APPEND = "projections_capture_2_append"


async def _problems(database: Database) -> list[tuple[str, ...]]:
    async with database.session() as session:
        return [tuple(one.problems) for one in await captured_tables(session)]


@pytest.fixture
async def orders(database: Database) -> Database:
    await execute(database, _ORDERS)
    async with database.session() as session:
        await capture_table(session, "orders")
    return database


async def test_disabled_and_missing_triggers_are_named(orders: Database, dsn: str) -> None:
    assert await _problems(orders) == [()]

    await execute(orders, f"ALTER TABLE orders DISABLE TRIGGER {_APPEND}")
    assert await _problems(orders) == [(f"trigger {_APPEND} of public.orders is disabled",)]

    await execute(orders, f"ALTER TABLE orders ENABLE REPLICA TRIGGER {_APPEND}")
    assert await _problems(orders) == [(f"trigger {_APPEND} of public.orders fires on replicas only",)]
    assert verify(dsn) == [
        f"captured table public.orders: trigger {_APPEND} of public.orders fires on replicas only"
    ]

    await execute(
        orders, f"DROP TRIGGER {_APPEND} ON orders; DROP TRIGGER projections_capture_truncate ON orders"
    )
    assert await _problems(orders) == [
        (
            f"trigger {_APPEND} of public.orders is missing",
            "trigger projections_capture_truncate of public.orders is missing",
        )
    ]

    await execute(orders, "SELECT projections.capture_table_v1('orders')")
    assert await _problems(orders) == [()]
    assert verify(dsn) == []


async def test_triggers_of_a_partition_are_looked_at(database: Database) -> None:
    await execute(
        database,
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id); "
        "CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10); "
        "SELECT projections.capture_table_v1('parts'); "
        "ALTER TABLE low DISABLE TRIGGER projections_capture_1_insert",
    )

    assert await _problems(database) == [("trigger projections_capture_1_insert of public.low is disabled",)]


async def test_a_key_of_another_type_is_refused_before_it_begins_other_sources(orders: Database) -> None:
    await execute(orders, "INSERT INTO orders VALUES (61, 1)")
    await execute(orders, "ALTER TABLE orders ALTER id TYPE numeric(10, 2)")

    assert await _problems(orders) == [
        ("its key was of other types: (numeric(10,2)) was (numeric), and writes are refused",)
    ]
    with pytest.raises(DatabaseError, match=r"is of type \(numeric\(10,2\)\)") as refused:
        await execute(orders, "UPDATE orders SET n = 2")
    assert refused.value.sqlstate == "PJ062"

    await execute(orders, "SELECT projections.capture_table_v1('orders')")
    await execute(orders, "UPDATE orders SET n = 2")
    sources = "SELECT array_agg(source_id ORDER BY source_id) FROM projections.events"
    assert await fetchval(orders, sources) == ["public.orders/61", "public.orders/61.00"]


async def test_a_key_whose_values_are_written_in_the_same_way_goes_on(database: Database) -> None:
    await execute(
        database,
        "CREATE TABLE orders (id int, name varchar(9), PRIMARY KEY (id, name)); "
        "SELECT projections.capture_table_v1('orders'); "
        "ALTER TABLE orders ALTER id TYPE bigint, ALTER name TYPE text; INSERT INTO orders VALUES (1, 'a')",
    )

    assert await _problems(database) == [()]
    assert await fetchval(database, "SELECT count(*) FROM projections.events") == 1


async def test_a_capture_of_before_an_upgrade_knows_no_types(orders: Database) -> None:
    settings = '\'{"entity_type": "public.orders", "key": ["id"], "partition": false, "moved_by": []}\''
    await execute(
        orders,
        f"SELECT projections._set_capture_triggers_v1('orders', '{{INSERT,UPDATE,DELETE}}', {settings}); "
        "ALTER TABLE orders ALTER id TYPE numeric(10, 2); INSERT INTO orders VALUES (61, 1)",
    )

    assert await _problems(orders) == [()]


async def test_the_doctor_and_the_metrics_tell_of_it(orders: Database, dsn: str) -> None:
    await execute(orders, f"ALTER TABLE orders DISABLE TRIGGER {_APPEND}")

    said, listed = [
        (await asyncio.to_thread(CliRunner().invoke, main, [command, "--dsn", dsn])).output
        for command in ("doctor", "captures")
    ]
    async with orders.session() as session:
        found = await snapshot(session, everything=True)

    assert "captured table public.orders: trigger" in said
    assert "is disabled" in listed
    assert found.capture_problems == 1
    samples = [one for metric in snapshot_metrics(found) for one in metric.samples]
    assert [one.value for one in samples if one.name == "projections_capture_problems"] == [1]
