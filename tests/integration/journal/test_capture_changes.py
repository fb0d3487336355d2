"""A captured table over time: its settings, its columns, its key and its name change, and it goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from journal import schema
from tests.fixtures.capture import ORDERS, Connection, capture, told

TRIGGERS = "SELECT tgname FROM pg_trigger WHERE tgrelid = 'orders'::regclass ORDER BY 1"
LISTED = "SELECT * FROM projections.captured_tables"


@pytest.fixture
def shop(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(ORDERS)
        yield connection


def listed(connection: Connection) -> list[dict[str, Any]]:
    cursor = connection.execute(LISTED)
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def test_what_is_captured_is_listed_with_its_settings(shop: Connection) -> None:
    shop.execute("CREATE FUNCTION shape(text, jsonb, jsonb) RETURNS jsonb LANGUAGE sql RETURN $3")
    capture(shop, update=False, serializer="shape", entity_type="order")

    assert listed(shop) == [
        {
            "relation": "orders",
            "schema_name": "public",
            "table_name": "orders",
            "entity_type": "order",
            "on_insert": True,
            "on_update": False,
            "on_delete": True,
            "serializer": "public.shape",
            "partitions_missed": 0,
            "problems": [],
        }
    ]


def test_triggers_of_others_are_not_taken_for_a_capture(shop: Connection) -> None:
    shop.execute("CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
    for name, arguments in (("a", ""), ("b", "'no json'"), ("c", "'1', '2'")):
        shop.execute(f"CREATE TRIGGER {name} AFTER INSERT ON orders EXECUTE FUNCTION f({arguments})")

    assert listed(shop) == []


def test_capturing_again_changes_the_settings_and_nothing_else(shop: Connection) -> None:
    capture(shop, insert=False, entity_type="order")
    capture(shop, update=False)

    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")
    shop.execute("UPDATE orders SET amount = 2")
    shop.execute("DELETE FROM orders")

    assert [one["entity_type"] for one in listed(shop)] == ["order"]
    assert [one[1] for one in told(shop)] == ["insert", "delete"]


def test_capturing_twice_appends_once(shop: Connection) -> None:
    capture(shop)
    before = shop.execute(TRIGGERS).fetchall()
    capture(shop)

    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")

    assert shop.execute(TRIGGERS).fetchall() == before
    assert len(told(shop)) == 1


def test_only_the_chosen_statements_have_events(shop: Connection) -> None:
    capture(shop, insert=False, delete=False)

    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")
    shop.execute("UPDATE orders SET amount = 2")
    shop.execute("DELETE FROM orders")

    assert [one[1] for one in told(shop)] == ["update"]


def test_a_released_table_has_no_events_and_no_triggers(shop: Connection) -> None:
    capture(shop)

    released = [shop.execute("SELECT projections.release_table_v1('orders')").fetchone() for _ in range(2)]
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")
    shop.execute("TRUNCATE orders")

    assert released == [(True,), (False,)]
    assert told(shop) == []
    assert shop.execute(TRIGGERS).fetchall() == []
    assert listed(shop) == []


def test_sources_go_on_when_a_table_is_captured_again(shop: Connection) -> None:
    capture(shop)
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")
    shop.execute("SELECT projections.release_table_v1('orders')")
    shop.execute("UPDATE orders SET amount = 2")

    capture(shop)
    shop.execute("UPDATE orders SET amount = 3")

    assert told(shop)[1:] == [("1", "update", {"amount": 3})]


def test_truncate_is_refused_and_says_what_to_do(shop: Connection) -> None:
    capture(shop)
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")

    with pytest.raises(
        psycopg.Error, match=r"table public.orders is captured, and TRUNCATE has no events: use DELETE"
    ) as raised:
        shop.execute("TRUNCATE orders")

    assert raised.value.sqlstate == "PJ061"


def test_truncate_is_free_where_deletes_are_not_captured(shop: Connection) -> None:
    capture(shop)
    capture(shop, delete=False)
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")

    shop.execute("TRUNCATE orders")

    assert shop.execute("SELECT count(*) FROM orders").fetchone() == (0,)


def test_columns_come_and_go_and_change(shop: Connection) -> None:
    capture(shop)
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")

    shop.execute("ALTER TABLE orders DROP placed_at, ADD note text DEFAULT 'none', ALTER amount TYPE text")
    shop.execute("ALTER TABLE orders RENAME customer TO client")
    shop.execute("UPDATE orders SET amount = '2', note = 'x'")
    shop.execute("INSERT INTO orders VALUES (2, 'Bo', '3')")
    shop.execute("DELETE FROM orders WHERE id = 1")

    assert told(shop)[1:] == [
        ("1", "update", {"amount": "2", "note": "x"}),
        ("2", "insert", {"id": 2, "client": "Bo", "amount": "3", "note": "none"}),
        ("1", "delete", {"id": 1, "client": "Ann", "amount": "2", "note": "x"}),
    ]


def test_columns_dropped_before_the_capture_leave_no_trace(shop: Connection) -> None:
    shop.execute("ALTER TABLE orders DROP customer")
    capture(shop)

    shop.execute("INSERT INTO orders VALUES (1, 2, NULL)")
    shop.execute("UPDATE orders SET amount = 3")

    assert [one[2] for one in told(shop)] == [{"id": 1, "amount": 2, "placed_at": None}, {"amount": 3}]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("ALTER TABLE orders RENAME id TO number", r"\(number\)"),
        ("ALTER TABLE orders DROP CONSTRAINT orders_pkey", r"\(<NULL>\)"),
        (
            "ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (customer, id)",
            r"\(customer, id\)",
        ),
    ],
)
def test_another_primary_key_is_refused_until_the_table_is_captured_again(
    shop: Connection, change: str, found: str
) -> None:
    capture(shop)
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")

    shop.execute(change)

    with pytest.raises(
        psycopg.Error, match=rf'primary key of public.orders is {found}, and was \["id"\]'
    ) as raised:
        shop.execute("UPDATE orders SET amount = 2")
    assert raised.value.sqlstate == "PJ062"


def test_capturing_again_takes_another_primary_key(shop: Connection) -> None:
    capture(shop)
    shop.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (customer, id)")

    capture(shop)
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")

    assert told(shop)[0][0] == '["Ann", 1]'


def test_a_renamed_table_keeps_its_entity_type(shop: Connection) -> None:
    capture(shop)
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")
    shop.execute("CREATE SCHEMA old")
    shop.execute("ALTER TABLE orders RENAME TO purchases")
    shop.execute("ALTER TABLE purchases SET SCHEMA old")

    shop.execute("UPDATE old.purchases SET amount = 2")

    assert capture(shop, "old.purchases") == "public.orders"
    assert told(shop)[1:] == [("1", "update", {"amount": 2})]
    assert (listed(shop)[0]["schema_name"], listed(shop)[0]["table_name"]) == ("old", "purchases")


def test_a_dropped_table_leaves_nothing_and_one_of_its_name_can_be_captured(shop: Connection) -> None:
    capture(shop)
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")
    shop.execute("DROP TABLE orders")
    assert listed(shop) == []

    shop.execute(ORDERS)
    capture(shop)
    shop.execute("INSERT INTO orders VALUES (1, 'Bo', 1, NULL)")

    assert [one[2]["customer"] for one in told(shop)] == ["Ann", "Bo"]


@pytest.mark.slow
def test_installing_the_schema_again_keeps_what_is_captured(shop: Connection, dsn: str) -> None:
    capture(shop)

    schema.install(dsn)
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")

    assert len(told(shop)) == 1
    assert schema.verify(dsn) == []


def test_removing_the_schema_releases_the_table(shop: Connection, dsn: str) -> None:
    capture(shop)

    schema.uninstall(dsn)
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")

    assert shop.execute(TRIGGERS).fetchall() == []


def test_names_of_any_language_are_listed_as_they_are(shop: Connection) -> None:
    name = 'Zürich "日本" \\ \''
    shop.execute(sql.SQL("CREATE TABLE {} (id integer PRIMARY KEY)").format(sql.Identifier(name)))

    capture(shop, sql.Identifier(name).as_string(None))

    assert [one["table_name"] for one in listed(shop)] == [name]
