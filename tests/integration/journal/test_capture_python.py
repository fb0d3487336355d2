"""Capturing from Python and from the command line, and a projection over what is captured."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pydantic import BaseModel

from journal import (
    CapturedTable,
    ConnectionSettings,
    DatabaseError,
    Event,
    MissingPrivilege,
    append,
    capture_table,
    captured_tables,
    connect,
    event_type,
    read_source,
    release_table,
)
from projections import Database, EventEnvelope, Session, handles, projection
from projections.cli import main
from tests.fixtures.capture import ORDERS
from tests.fixtures.connections import WAYS, Way
from tests.fixtures.projections import caught_up, execute, fetchval
from tests.fixtures.schema import run

SHAPE = "CREATE FUNCTION shape(text, jsonb, jsonb) RETURNS jsonb LANGUAGE sql RETURN $3"


@pytest.fixture
async def shop(database: Database) -> Database:
    await execute(database, ORDERS)
    await execute(database, SHAPE)
    return database


def command(dsn: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["captures", *arguments, "--dsn", dsn])


@event_type("public.orders.insert")
class Placed(BaseModel):
    id: int
    customer: str
    amount: float


@event_type("public.orders.update")
class Changed(BaseModel):
    amount: float | None = None


@event_type("public.orders.delete")
class Withdrawn(BaseModel):
    id: int


@projection("totals", entity_type="public.orders")
class Totals:
    """Keeps what all orders come to, from the tables' events alone."""

    @handles(Placed)
    async def placed(self, session: Session, event: Placed, envelope: EventEnvelope) -> None:
        await session.execute("INSERT INTO totals VALUES ($1, $2)", envelope.source_id, event.amount)

    @handles(Changed)
    async def changed(self, session: Session, event: Changed, envelope: EventEnvelope) -> None:
        if event.amount is not None:
            await session.execute(
                "UPDATE totals SET amount = $2 WHERE source_id = $1", envelope.source_id, event.amount
            )

    @handles(Withdrawn)
    async def withdrawn(self, session: Session, event: Withdrawn, envelope: EventEnvelope) -> None:
        await session.execute("DELETE FROM totals WHERE source_id = $1", envelope.source_id)


async def test_a_projection_follows_a_captured_table(shop: Database) -> None:
    await execute(shop, "CREATE TABLE totals (source_id text PRIMARY KEY, amount float8)")
    async with shop.transaction() as session:
        assert await capture_table(session, "orders") == "public.orders"
    await execute(shop, "INSERT INTO orders SELECT n, 'Ann', n, NULL FROM generate_series(1, 30) AS n")
    await execute(shop, "UPDATE orders SET amount = amount * 2 WHERE id <= 20")
    await execute(shop, "UPDATE orders SET id = id + 100 WHERE id <= 3")
    await execute(shop, "DELETE FROM orders WHERE id BETWEEN 4 AND 10")

    await caught_up(shop, Totals)

    kept = "SELECT jsonb_object_agg(source_id, amount)::text FROM totals"
    table = "SELECT jsonb_object_agg('public.orders/' || id, amount::float8)::text FROM orders"
    assert await fetchval(shop, kept) == await fetchval(shop, table)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_table_is_captured_and_released_on_every_asynchronous_connection(
    way: Way, dsn: str, shop: Database
) -> None:
    async with way(dsn) as caller:
        if not caller.is_async:
            pytest.skip("a synchronous connection")
        assert await capture_table(caller.connection, "orders", update=False) == "public.orders"
    async with way(dsn) as caller:
        assert await release_table(caller.connection, "orders")

    with pytest.raises(DatabaseError, match='relation "nosuch" does not exist'):
        async with way(dsn) as caller:
            await capture_table(caller.connection, "nosuch")


async def test_captured_tables_are_listed_and_released(shop: Database) -> None:
    async with shop.session() as session:
        await capture_table(session, "public.orders", insert=False, serializer="shape", entity_type="order")
        found = await captured_tables(session)
        released = [await release_table(session, "orders") for _ in range(2)]

        assert found == [CapturedTable("public", "orders", "order", False, True, True, "public.shape", 0, [])]
        assert released == [True, False]
        assert await captured_tables(session) == []


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_capture_commits_with_its_transaction(dsn: str, driver: Any) -> None:
    async with connect(dsn, ConnectionSettings(driver=driver)) as database:
        await execute(database, ORDERS)
        async with database.session() as session:
            await session.begin()
            await capture_table(session, "orders")
            await session.rollback()

            assert await captured_tables(session) == []


@pytest.mark.parametrize(
    ("table", "settings", "message"),
    [
        ("nowhere", {}, 'relation "nowhere" does not exist'),
        ("or ders", {}, "invalid name syntax"),
        ("", {}, "invalid name syntax"),
        ("orders", {"serializer": "nothing"}, 'function "nothing" does not exist'),
        ("orders", {"serializer": "upper"}, 'more than one function named "upper"'),
        (
            "orders",
            {"serializer": "pg_catalog.quote_ident"},
            r"quote_ident\(text\) is not a function\(text, jsonb",
        ),
        ("orders", {"insert": False, "update": False, "delete": False}, "capture at least one of"),
        ("orders_pkey", {}, "cannot capture public.orders_pkey: it is not a table, but an index"),
    ],
)
async def test_what_can_not_be_captured_is_named(
    shop: Database, table: str, settings: dict[str, Any], message: str
) -> None:
    async with shop.session() as session:
        with pytest.raises(DatabaseError, match=message):
            await capture_table(session, table, **settings)


async def test_a_table_of_others_is_refused(shop: Database, login: Any) -> None:
    async with connect(login("projections_writer")) as database, database.session() as session:
        with pytest.raises(MissingPrivilege):
            await capture_table(session, "orders")


async def test_an_event_of_a_hand_goes_between_those_of_the_table(shop: Database) -> None:
    async with shop.transaction() as session:
        await capture_table(session, "orders")
        await session.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")
        paid = Event("public.orders/1", {"by": "card"}, entity_type="public.orders", event_type="Paid")
        await append(session, [paid])
        await session.execute("UPDATE orders SET amount = 2")

        found = [(one.seq_nr, one.event_type) async for one in read_source(session, "public.orders/1")]

    assert found == [(1, "public.orders.insert"), (2, "Paid"), (3, "public.orders.update")]


def test_the_command_captures_lists_and_releases(dsn: str) -> None:
    run(dsn, f"{ORDERS}; {SHAPE}")
    assert command(dsn, "list").output == (
        "no table is captured yet: `projections captures add TABLE` captures one\n"
    )
    captured = command(dsn, "add", "orders", "--no-update", "--serializer", "shape", "--entity-type", "order")
    table = command(dsn)
    listed = command(dsn, "--json")
    released = command(dsn, "release", "orders")
    again = command(dsn, "release", "orders", "--json")

    assert captured.output == "orders is captured (insert, delete) as entity type order\n"
    assert "public.shape" in table.output
    assert json.loads(listed.output)["captured"] == [
        {
            "schema_name": "public",
            "table_name": "orders",
            "entity_type": "order",
            "insert": True,
            "update": False,
            "delete": True,
            "serializer": "public.shape",
            "partitions_missed": 0,
            "problems": [],
        }
    ]
    assert released.output == "orders is released\n"
    assert json.loads(again.output) == {"table": "orders", "released": False}


def test_the_command_tells_what_it_captured_as_json(dsn: str) -> None:
    run(dsn, ORDERS)

    assert json.loads(command(dsn, "add", "orders", "--json").output) == {
        "table": "orders",
        "entity_type": "public.orders",
        "insert": True,
        "update": True,
        "delete": True,
        "serializer": None,
    }


def test_the_command_says_why_a_table_is_refused(dsn: str) -> None:
    run(dsn, "CREATE TABLE keyless (id integer)")

    result = command(dsn, "add", "keyless")

    assert result.exit_code == 1
    assert result.output == (
        "error: cannot capture public.keyless: it has no primary key, so its rows have no names: add one\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["add"],
        ["orders"],
        ["release"],
        ["release", "orders", "--no-insert"],
        ["list", "orders"],
        ["list", "--entity-type", "x"],
    ],
)
def test_the_command_refuses_what_does_not_go_together(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, ["captures", *arguments]).exit_code == 2
