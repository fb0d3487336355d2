"""Writers of a captured table at the same time, and what an event cannot hold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from journal import Database, capture_table
from tests.fixtures.capture import ORDERS, Connection, capture, events
from tests.fixtures.journal import pid, until_blocked
from tests.fixtures.projections import execute, fetchval


@pytest.fixture
def shop(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(ORDERS)
        capture(connection)
        yield connection


async def test_statements_over_the_same_rows_wait_for_each_other_and_do_not_deadlock(
    database: Database,
) -> None:
    await execute(database, ORDERS)
    async with database.transaction() as session:
        await capture_table(session, "orders")
    await execute(database, "INSERT INTO orders SELECT n, 'Ann', 0, NULL FROM generate_series(1, 200) AS n")

    async def raise_all(order: str) -> None:
        for _ in range(10):
            await execute(
                database,
                "UPDATE orders AS o SET amount = o.amount + 1 FROM ("
                f"SELECT id FROM orders ORDER BY id FOR UPDATE) AS l WHERE o.id = l.id AND o.id % 2 IN ({order})",
            )

    await asyncio.gather(raise_all("0, 1"), raise_all("0, 1"), raise_all("1"))

    assert await fetchval(
        database,
        "SELECT bool_and(o.amount = (e.payload ->> 'amount')::numeric AND s.seq_nr = o.amount + 1) "
        "FROM orders AS o INNER JOIN projections.sources AS s ON s.source_id = 'public.orders/' || o.id "
        "INNER JOIN projections.events AS e ON e.source_id = s.source_id AND e.seq_nr = s.seq_nr",
    )


async def test_new_rows_of_two_transactions_do_not_wait_for_each_other(database: Database) -> None:
    await execute(database, ORDERS)
    async with database.transaction() as session:
        await capture_table(session, "orders")

    async with database.transaction() as one, database.transaction() as other:
        await one.execute("INSERT INTO orders VALUES (2, 'Ann', 0, NULL)")
        await other.execute("INSERT INTO orders VALUES (1, 'Bo', 0, NULL)")
        await one.execute("INSERT INTO orders VALUES (3, 'Cy', 0, NULL)")

    assert await fetchval(database, "SELECT count(*) FROM projections.events") == 3


async def test_a_writer_with_an_old_snapshot_fails_as_it_does_on_the_row(database: Database) -> None:
    await execute(database, ORDERS)
    async with database.transaction() as session:
        await capture_table(session, "orders")
    await execute(database, "INSERT INTO orders VALUES (1, 'Ann', 0, NULL), (2, 'Bo', 0, NULL)")

    async with database.session() as old:
        await old.begin()
        await old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await old.fetchval("SELECT count(*) FROM orders")
        await execute(database, "UPDATE orders SET amount = 1 WHERE id = 1")
        await old.execute("UPDATE orders SET amount = 2 WHERE id = 2")
        with pytest.raises(Exception, match="could not serialize access due to concurrent update"):
            await old.execute("UPDATE orders SET amount = 2 WHERE id = 1")
        await old.rollback()

    assert await fetchval(database, "SELECT max(seq_nr) FROM projections.sources") == 2


async def test_capturing_waits_for_writers_and_misses_none_of_their_rows(database: Database) -> None:
    await execute(database, ORDERS)
    async with database.session() as writer, database.session() as session:
        await writer.begin()
        await writer.execute("INSERT INTO orders VALUES (1, 'Ann', 0, NULL)")
        waiting = [await pid(session)]
        task = asyncio.create_task(capture_table(session, "orders"))
        await until_blocked(database, waiting)
        await writer.commit()
        await task
        await writer.execute("UPDATE orders SET amount = 1")

    assert await fetchval(database, "SELECT array_agg(event_type) FROM projections.events") == [
        "public.orders.update"
    ]


@pytest.mark.slow
def test_a_row_larger_than_an_event_fails_the_statement(shop: Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="json_has_at_most_16_mib"):
        shop.execute(
            "INSERT INTO orders SELECT 1, string_agg(md5(n::text), ''), 1, NULL FROM generate_series(1, 600000) AS n"
        )

    assert shop.execute("SELECT count(*) FROM orders").fetchone() == (0,)


def test_json_that_no_string_can_hold_fails_the_statement(shop: Connection) -> None:
    shop.execute("ALTER TABLE orders ADD data json")

    with pytest.raises(psycopg.errors.UntranslatableCharacter):
        shop.execute(r"""INSERT INTO orders VALUES (1, 'Ann', 1, NULL, '{"a": "\u0000"}')""")

    assert events(shop) == []


def test_rows_that_logical_replication_brings_are_not_captured(shop: Connection) -> None:
    shop.execute("SET session_replication_role = replica")

    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")

    assert events(shop) == []
