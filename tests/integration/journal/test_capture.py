"""What a change of a captured table's rows appends."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.fixtures.capture import ORDERS, Captured, Connection, capture, events, texts, told


@pytest.fixture
def shop(dsn: str) -> Iterator[Connection]:
    """A connection whose statements commit by themselves, to a database with a captured table of orders."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(ORDERS)
        capture(connection)
        yield connection


def test_an_insert_has_an_event_of_each_row_in_full(shop: Connection) -> None:
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1.5, '2026-01-01T12:00:00+02'), (2, 'Bo', NULL, NULL)")

    assert events(shop) == [
        Captured(
            "public.orders/1",
            1,
            "public.orders.insert",
            {"id": 1, "customer": "Ann", "amount": 1.5, "placed_at": "2026-01-01T10:00:00+00:00"},
            None,
        ),
        Captured(
            "public.orders/2",
            1,
            "public.orders.insert",
            {"id": 2, "customer": "Bo", "amount": None, "placed_at": None},
            None,
        ),
    ]


def test_an_update_has_what_changed_and_the_row_as_it_was(shop: Connection) -> None:
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")

    shop.execute("UPDATE orders SET amount = 2, customer = 'Ann'")

    assert events(shop)[1:] == [
        Captured(
            "public.orders/1",
            2,
            "public.orders.update",
            {"amount": 2},
            {"old": {"id": 1, "customer": "Ann", "amount": 1, "placed_at": None}},
        )
    ]


def test_a_delete_has_the_row_as_it_was(shop: Connection) -> None:
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")

    shop.execute("DELETE FROM orders")

    assert told(shop)[1:] == [("1", "delete", {"id": 1, "customer": "Ann", "amount": 1, "placed_at": None})]


def test_numbers_keep_their_digits(shop: Connection) -> None:
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 12345678.10, NULL)")

    assert texts(shop) == ['{"id":1,"customer":"Ann","amount":12345678.10,"placed_at":null}']


def test_an_update_that_changes_nothing_appends_nothing(shop: Connection) -> None:
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL), (2, 'Bo', 1, NULL)")

    shop.execute("UPDATE orders SET amount = CASE id WHEN 1 THEN amount ELSE 2 END")
    shop.execute("UPDATE orders SET amount = amount")
    shop.execute("DELETE FROM orders WHERE id = 3")

    assert told(shop)[2:] == [("2", "update", {"amount": 2})]


def test_a_statement_that_changes_nothing_locks_nothing_of_the_journal(shop: Connection) -> None:
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")

    with shop.transaction():
        shop.execute("UPDATE orders SET amount = amount")
        held = shop.execute(
            "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'projections.sources'::regclass"
        ).fetchone()

    assert held == (0,)


def test_another_primary_key_is_the_end_of_one_source_and_the_begin_of_another(shop: Connection) -> None:
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")

    shop.execute("UPDATE orders SET id = 7, amount = 2")

    assert told(shop)[1:] == [
        ("1", "delete", {"id": 1, "customer": "Ann", "amount": 1, "placed_at": None}),
        ("7", "insert", {"id": 7, "customer": "Ann", "amount": 2, "placed_at": None}),
    ]


def test_rows_that_take_each_others_keys_are_told_as_they_are_in_the_end(shop: Connection) -> None:
    shop.execute("INSERT INTO orders VALUES (3, 'Cy', 1, NULL), (2, 'Bo', 1, NULL), (1, 'Ann', 1, NULL)")

    shop.execute("UPDATE orders SET id = id + 1")  # in the order in which the rows lie: 3, 2, 1

    assert told(shop)[3:] == [
        ("1", "delete", {"id": 1, "customer": "Ann", "amount": 1, "placed_at": None}),
        ("2", "update", {"customer": "Ann"}),
        ("3", "update", {"customer": "Bo"}),
        ("4", "insert", {"id": 4, "customer": "Cy", "amount": 1, "placed_at": None}),
    ]


def test_an_upsert_tells_rows_that_are_new_and_rows_that_changed(shop: Connection) -> None:
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")

    shop.execute(
        "INSERT INTO orders VALUES (2, 'Bo', 5, NULL), (1, 'Ann', 9, NULL) "
        "ON CONFLICT (id) DO UPDATE SET amount = excluded.amount"
    )

    assert told(shop)[1:] == [
        ("1", "update", {"amount": 9}),
        ("2", "insert", {"id": 2, "customer": "Bo", "amount": 5, "placed_at": None}),
    ]


def test_a_merge_tells_all_that_it_does(shop: Connection) -> None:
    if shop.info.server_version < 150000:
        pytest.skip("MERGE came with PostgreSQL 15")
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL), (2, 'Bo', 1, NULL)")

    shop.execute(
        "MERGE INTO orders AS o USING (VALUES (1, 5), (2, NULL), (3, 7)) AS n (id, amount) ON o.id = n.id "
        "WHEN MATCHED AND n.amount IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET amount = n.amount "
        "WHEN NOT MATCHED THEN INSERT VALUES (n.id, 'Cy', n.amount, NULL)"
    )

    assert sorted(told(shop)[2:], key=lambda one: one[0]) == [
        ("1", "update", {"amount": 5}),
        ("2", "delete", {"id": 2, "customer": "Bo", "amount": 1, "placed_at": None}),
        ("3", "insert", {"id": 3, "customer": "Cy", "amount": 7, "placed_at": None}),
    ]


def test_copy_is_captured(shop: Connection) -> None:
    with shop.cursor().copy("COPY orders (id, customer) FROM STDIN") as copy:
        copy.write_row((1, "Ann"))
        copy.write_row((2, "Bo"))

    assert [one[:2] for one in told(shop)] == [("1", "insert"), ("2", "insert")]


def test_one_statement_with_several_writes_tells_each(shop: Connection) -> None:
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL), (2, 'Bo', 1, NULL)")

    shop.execute(
        "WITH gone AS (DELETE FROM orders WHERE id = 1 RETURNING *), "
        "changed AS (UPDATE orders SET amount = 3 WHERE id = 2) "
        "INSERT INTO orders SELECT 10, customer, amount, placed_at FROM gone"
    )

    assert sorted(one[:2] for one in told(shop)[2:]) == [("1", "delete"), ("10", "insert"), ("2", "update")]


def test_a_row_that_one_statement_deletes_and_inserts_again_is_told_in_that_order(shop: Connection) -> None:
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")

    shop.execute(
        "WITH gone AS (DELETE FROM orders RETURNING *) INSERT INTO orders SELECT id, 'Bo', amount FROM gone"
    )

    assert [one[:2] for one in told(shop)[1:]] == [("1", "delete"), ("1", "insert")]


def test_a_foreign_keys_cascade_is_captured(shop: Connection) -> None:
    shop.execute(
        "CREATE TABLE lines (order_id integer REFERENCES orders ON DELETE CASCADE ON UPDATE CASCADE, "
        "place integer, PRIMARY KEY (order_id, place))"
    )
    capture(shop, "lines")
    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL), (2, 'Bo', 1, NULL)")
    shop.execute("INSERT INTO lines VALUES (1, 1), (2, 1)")

    shop.execute("UPDATE orders SET id = 3 WHERE id = 1")
    shop.execute("DELETE FROM orders")

    of_lines = [one[:2] for one in told(shop) if one[0].startswith("[")]
    assert of_lines == [
        ("[1, 1]", "insert"),
        ("[2, 1]", "insert"),
        ("[1, 1]", "delete"),
        ("[3, 1]", "insert"),
        ("[2, 1]", "delete"),
        ("[3, 1]", "delete"),
    ]


def test_a_row_that_one_statement_changes_twice_is_told_from_its_first_to_its_last_state(
    shop: Connection,
) -> None:
    shop.execute(
        "CREATE TABLE parts (id integer PRIMARY KEY, within integer REFERENCES parts ON UPDATE CASCADE)"
    )
    capture(shop, "parts")
    shop.execute("INSERT INTO parts VALUES (1, NULL), (2, 1)")

    shop.execute("UPDATE parts SET id = id + 10")

    assert told(shop)[2:] == [
        ("1", "delete", {"id": 1, "within": None}),
        ("11", "insert", {"id": 11, "within": None}),
        ("12", "insert", {"id": 12, "within": 11}),
        ("2", "delete", {"id": 2, "within": 1}),
    ]


def test_a_tree_that_deletes_itself_tells_each_row_once(shop: Connection) -> None:
    shop.execute(
        "CREATE TABLE parts (id integer PRIMARY KEY, within integer REFERENCES parts ON DELETE CASCADE)"
    )
    capture(shop, "parts")
    shop.execute("INSERT INTO parts VALUES (1, NULL), (2, 1), (3, 2)")

    shop.execute("DELETE FROM parts WHERE id = 1")

    assert sorted(one[:2] for one in told(shop)[3:]) == [("1", "delete"), ("2", "delete"), ("3", "delete")]


def test_what_is_undone_has_no_events(shop: Connection) -> None:
    with shop.transaction():
        shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")
        with shop.transaction(force_rollback=True):
            shop.execute("INSERT INTO orders VALUES (2, 'Bo', 1, NULL)")
            shop.execute("UPDATE orders SET amount = 7")
        shop.execute("UPDATE orders SET amount = 2")

    assert [(one.source_id, one.seq_nr) for one in events(shop)] == [
        ("public.orders/1", 1),
        ("public.orders/1", 2),
    ]


def test_a_constraint_that_fails_at_commit_leaves_no_events(shop: Connection) -> None:
    shop.execute("ALTER TABLE orders ADD of integer REFERENCES orders DEFERRABLE INITIALLY DEFERRED")

    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL, 2)")  # commits by itself
    with shop.transaction():
        shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL, 2)")
        shop.execute("INSERT INTO orders VALUES (2, 'Bo', 1, NULL, NULL)")

    assert [one[:2] for one in told(shop)] == [("1", "insert"), ("2", "insert")]


def test_a_writer_with_a_snapshot_of_its_own_is_captured(shop: Connection) -> None:
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        with shop.transaction():
            shop.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")
            shop.execute("UPDATE orders SET amount = 2")
            shop.execute("DELETE FROM orders")

    assert [one[1] for one in told(shop)] == ["insert", "update", "delete"] * 2


def test_settings_of_a_session_change_neither_sources_nor_payloads(shop: Connection) -> None:
    shop.execute(
        "CREATE TABLE readings (at timestamptz, value float8, raw bytea, took interval, PRIMARY KEY (at, value))"
    )
    capture(shop, "readings")
    row = "'2026-01-01T00:00:00Z', 0.30000000000000004, 'a', '1 day 2 hours'"
    shop.execute(f"INSERT INTO readings VALUES ({row})")

    for name, value in {
        "timezone": "Asia/Tokyo",
        "datestyle": "German",
        "intervalstyle": "sql_standard",
        "bytea_output": "escape",
        "extra_float_digits": "-3",
    }.items():
        shop.execute("SELECT set_config(%s, %s, false)", [name, value])
    shop.execute("DELETE FROM readings")

    (_, _, first), (source, _, second) = told(shop)
    assert source == '["2026-01-01T00:00:00+00:00", 0.30000000000000004]'
    assert first == second


def test_a_batch_beyond_one_portion_is_captured_whole(shop: Connection) -> None:
    # 9 MB of payloads are handed over in several portions.
    shop.execute("INSERT INTO orders SELECT n, repeat('x', 1000), 0, NULL FROM generate_series(1, 9000) AS n")

    found = shop.execute(
        "SELECT count(*), count(DISTINCT source_id), max(seq_nr) FROM projections.events"
    ).fetchone()
    assert found == (9000, 9000, 1)


@pytest.mark.slow
def test_two_portions_are_in_the_order_in_which_sources_are_locked(shop: Connection) -> None:
    shop.execute("INSERT INTO orders SELECT n, repeat('x', 1000), 0, NULL FROM generate_series(1, 9000) AS n")

    # Each append reads the clock later than the one before, so its sources have later times.
    late = shop.execute(
        "SELECT count(*) FROM (SELECT source_id, lag(source_id) OVER (ORDER BY db_timestamp, source_id) AS before "
        "FROM projections.events) AS e WHERE source_id < before"
    ).fetchone()
    assert late == (0,)


def test_a_trigger_that_writes_another_captured_table_tells_both(shop: Connection) -> None:
    shop.execute("CREATE TABLE counts (customer text PRIMARY KEY, n integer)")
    capture(shop, "counts")
    shop.execute(
        "CREATE FUNCTION count_orders() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO counts VALUES (NEW.customer, 1) ON CONFLICT (customer) DO UPDATE SET n = counts.n + 1; "
        "RETURN NULL; END $$"
    )
    shop.execute(
        "CREATE TRIGGER counting AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION count_orders()"
    )

    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL), (2, 'Ann', 1, NULL)")

    assert [one[:2] for one in told(shop)] == [
        ("Ann", "insert"),
        ("Ann", "update"),
        ("1", "insert"),
        ("2", "insert"),
    ]


def test_a_before_trigger_shows_in_the_events(shop: Connection) -> None:
    shop.execute(
        "CREATE FUNCTION trim_customer() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "NEW.customer := trim(NEW.customer); RETURN NEW; END $$"
    )
    shop.execute(
        "CREATE TRIGGER trimming BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION trim_customer()"
    )

    shop.execute("INSERT INTO orders VALUES (1, ' Ann ', 1, NULL)")

    assert told(shop)[0][2]["customer"] == "Ann"
