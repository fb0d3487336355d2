"""Tables of every kind: keys, names and columns; which are captured, and which are refused."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import psycopg
import pytest

from tests.fixtures.capture import ORDERS, Connection, capture, events, told


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as opened:
        yield opened


def test_keys_of_several_columns_are_told_apart(connection: Connection) -> None:
    connection.execute("CREATE TABLE pairs (b text, a text, PRIMARY KEY (a, b))")
    capture(connection, "pairs")

    connection.execute("""INSERT INTO pairs VALUES ('y', 'x"'), ('x', 'y'), (', "y', 'x')""")

    assert sorted(one[0] for one in told(connection)) == [
        r'["x", ", \"y"]',
        r'["x\"", "y"]',
        '["y", "x"]',
    ]


def test_columns_that_only_come_with_the_index_are_not_of_the_key(connection: Connection) -> None:
    connection.execute("CREATE TABLE wide (id integer, note text, PRIMARY KEY (id) INCLUDE (note))")
    capture(connection, "wide")

    connection.execute("INSERT INTO wide VALUES (1, 'x')")

    assert told(connection)[0][0] == "1"


def test_odd_names_are_as_sql_writes_them(connection: Connection) -> None:
    connection.execute('CREATE SCHEMA "We""ird Schema"')
    connection.execute(
        'CREATE TABLE "We""ird Schema"."Ta. ble" ("a b" integer PRIMARY KEY, r integer, "new_rows" integer, "s" text)'
    )

    entity_type = capture(connection, '"We""ird Schema"."Ta. ble"')
    connection.execute("""INSERT INTO "We""ird Schema"."Ta. ble" VALUES (1, 2, 3, '%')""")
    connection.execute('UPDATE "We""ird Schema"."Ta. ble" SET r = 4')

    assert entity_type == '"We""ird Schema"."Ta. ble"'
    assert [(one.source_id, one.event_type, one.payload) for one in events(connection)] == [
        (f"{entity_type}/1", f"{entity_type}.insert", {"a b": 1, "r": 2, "new_rows": 3, "s": "%"}),
        (f"{entity_type}/1", f"{entity_type}.update", {"r": 4}),
    ]


def test_names_with_a_dot_do_not_meet(connection: Connection) -> None:
    connection.execute('CREATE SCHEMA a; CREATE SCHEMA "a.b"')
    connection.execute('CREATE TABLE a."b.c" (id integer PRIMARY KEY)')
    connection.execute('CREATE TABLE "a.b".c (id integer PRIMARY KEY)')

    assert capture(connection, 'a."b.c"') == 'a."b.c"'
    assert capture(connection, '"a.b".c') == '"a.b".c'


def test_a_key_too_long_for_an_id_keeps_its_order_under_a_shorter_one(connection: Connection) -> None:
    connection.execute("CREATE TABLE pages (url text PRIMARY KEY, hits integer)")
    capture(connection, "pages")
    fits, long, other = "f" * 241, "l" * 242, "l" * 242 + "o"

    connection.execute("INSERT INTO pages VALUES (%s, 1), (%s, 1), (%s, 1)", [fits, long, other])
    connection.execute("UPDATE pages SET hits = 2")

    found = {(one.source_id, one.seq_nr) for one in events(connection)}
    ids = {
        f"public.pages/{fits}",
        *(f"public.pages/{key}"[:190] + f"~{sha256(key.encode()).hexdigest()}" for key in (long, other)),
    }
    assert {len(one) for one in ids} == {254, 255}
    assert found == {(one, n) for one in ids for n in (1, 2)}


def test_generated_columns_have_their_values(connection: Connection) -> None:
    connection.execute(
        "CREATE TABLE sums (id integer PRIMARY KEY, n integer, twice integer GENERATED ALWAYS AS (n * 2) STORED)"
    )
    capture(connection, "sums")

    connection.execute("INSERT INTO sums (id, n) VALUES (1, 2)")
    connection.execute("UPDATE sums SET n = 3")

    assert [one[2] for one in told(connection)] == [{"id": 1, "n": 2, "twice": 4}, {"n": 3, "twice": 6}]


def test_virtual_columns_are_left_out(connection: Connection) -> None:
    if connection.info.server_version < 180000:
        pytest.skip("virtual columns came with PostgreSQL 18")
    connection.execute(
        "CREATE TABLE sums (twice integer GENERATED ALWAYS AS (n * 2) VIRTUAL, id integer PRIMARY KEY, n integer)"
    )
    capture(connection, "sums")

    connection.execute("INSERT INTO sums (id, n) VALUES (1, 2)")
    connection.execute("UPDATE sums SET n = 3")
    connection.execute("DELETE FROM sums")

    assert [one[2] for one in told(connection)] == [{"id": 1, "n": 2}, {"n": 3}, {"id": 1, "n": 3}]


def test_types_without_equality_and_nested_values_are_captured(connection: Connection) -> None:
    connection.execute("CREATE TYPE pair AS (a integer, b text)")
    connection.execute(
        "CREATE TABLE odd (id uuid PRIMARY KEY, j json, b jsonb, p pair, l text[], r int4range, x point)"
    )
    capture(connection, "odd")

    connection.execute(
        "INSERT INTO odd VALUES ('00000000-0000-0000-0000-000000000001', '{\"k\": 1}', '[1]', (1, 'x'), '{a,NULL}', "
        "'[1,3)', '(1,2)')"
    )
    connection.execute("UPDATE odd SET j = j, x = x, p.a = 2")

    assert told(connection)[0][2] == {
        "id": "00000000-0000-0000-0000-000000000001",
        "j": {"k": 1},
        "b": [1],
        "p": {"a": 1, "b": "x"},
        "l": ["a", None],
        "r": "[1,3)",
        "x": "(1,2)",
    }
    assert told(connection)[1][2] == {"p": {"a": 2, "b": "x"}}


REFUSED = {
    "CREATE TABLE t (id integer)": "no primary key",
    "CREATE TABLE t (id integer PRIMARY KEY DEFERRABLE)": "primary key is deferrable",
    "CREATE VIEW t AS SELECT 1 AS id": "a view",
    "CREATE MATERIALIZED VIEW t AS SELECT 1 AS id": "a materialized view",
    "CREATE SEQUENCE t": "a sequence",
    "CREATE TYPE t AS (id integer)": "a type",
    "CREATE TEMPORARY TABLE t (id integer PRIMARY KEY)": "it is temporary",
    "CREATE UNLOGGED TABLE t (id integer PRIMARY KEY)": "it is unlogged",
    "CREATE TABLE t (id integer PRIMARY KEY); CREATE TABLE child () INHERITS (t)": "inherit",
    "CREATE TABLE parent (id integer); CREATE TABLE t (PRIMARY KEY (id)) INHERITS (parent)": "inherit",
}


@pytest.mark.parametrize(("definition", "reason"), REFUSED.items(), ids=REFUSED.values())
def test_a_relation_whose_rows_have_no_names_or_no_history_is_refused(
    connection: Connection, definition: str, reason: str
) -> None:
    connection.execute(definition)

    with pytest.raises(psycopg.Error, match=rf"cannot capture (public\.)?t: .*{reason}") as raised:
        capture(connection, "t")

    assert raised.value.sqlstate == "PJ060"


def test_a_foreign_table_is_refused(connection: Connection) -> None:
    connection.execute("CREATE FOREIGN DATA WRAPPER w")
    connection.execute("CREATE SERVER s FOREIGN DATA WRAPPER w")
    connection.execute("CREATE FOREIGN TABLE t (id integer) SERVER s")

    with pytest.raises(
        psycopg.Error, match=r"cannot capture public\.t: it is not a table, but a foreign table"
    ):
        capture(connection, "t")


@pytest.mark.parametrize("table", ["projections.events", "pg_catalog.pg_class"])
def test_tables_of_the_journal_and_of_the_server_are_refused(connection: Connection, table: str) -> None:
    with pytest.raises(psycopg.Error, match=f"it belongs to {table.partition('.')[0]}"):
        capture(connection, table)


def test_a_table_that_is_not_there_is_named(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable, match='"nowhere" does not exist'):
        capture(connection, "nowhere")
    with pytest.raises(psycopg.Error, match=r"cannot capture .*: there is no such table"):
        connection.execute("SELECT projections.capture_table_v1(NULL)")


SETTINGS: dict[str, dict[str, Any]] = {
    "capture at least one of insert, update and delete": {"insert": False, "update": False, "delete": None},
    "entity type '' has 0 characters, not 1 to 180": {"entity_type": ""},
    "has 181 characters, not 1 to 180": {"entity_type": "x" * 181},
    r"entity type is 'or\*', and \* stands for nothing in it: pass p_entity_type": {"entity_type": "or*"},
    "upper.* is not a function": {"serializer": "pg_catalog.upper(text)"},
}


@pytest.mark.parametrize(("reason", "settings"), SETTINGS.items(), ids=SETTINGS)
def test_a_setting_out_of_bounds_is_refused(
    connection: Connection, reason: str, settings: dict[str, Any]
) -> None:
    connection.execute(ORDERS)
    if "serializer" in settings:
        oid = connection.execute("SELECT %s::regprocedure::oid::text", [settings["serializer"]]).fetchone()
        settings = {"serializer": oid[0] if oid else None}

    with pytest.raises(psycopg.Error, match=rf"cannot capture public\.orders: .*{reason}"):
        capture(connection, **settings)


def test_a_name_too_long_for_an_entity_type_needs_another(connection: Connection) -> None:
    name = '"' + '""' * 60 + '"'  # SQL writes each quote of the name twice
    table = f"{name}.{name}"
    connection.execute(f"CREATE SCHEMA {name}")
    connection.execute(f"CREATE TABLE {table} (id integer PRIMARY KEY)")

    with pytest.raises(psycopg.Error, match="not 1 to 180: pass p_entity_type"):
        capture(connection, table)
    assert capture(connection, table, entity_type="quotes") == "quotes"


def test_two_tables_do_not_share_an_entity_type(connection: Connection) -> None:
    connection.execute(ORDERS)
    connection.execute("CREATE TABLE others (id integer PRIMARY KEY)")
    capture(connection)

    with pytest.raises(
        psycopg.Error, match=r"entity type 'public.orders' is that of public.orders: pass p_entity_type"
    ):
        capture(connection, "others", entity_type="public.orders")


def test_entity_types_whose_rows_could_have_the_same_source_are_refused(connection: Connection) -> None:
    connection.execute(ORDERS)
    connection.execute("CREATE TABLE other (id text PRIMARY KEY)")
    capture(connection, "orders", entity_type="a")

    for entity_type in ("a/b", "a/"):
        with pytest.raises(psycopg.Error, match="would give rows of both the same source") as raised:
            capture(connection, "other", entity_type=entity_type)
        assert raised.value.sqlstate == "PJ060"
    capture(connection, "other", entity_type="ab")
    capture(connection, "other", entity_type="b/c")
    with pytest.raises(psycopg.Error, match=r"'b' and 'b/c' of public\.other would give"):
        capture(connection, "orders", entity_type="b")
