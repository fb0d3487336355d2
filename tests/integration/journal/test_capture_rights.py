"""Who may capture, who may write what is captured, and with whose rights a table's own code runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.fixtures.capture import ORDERS, Connection, capture, events, told


@pytest.fixture
def shop(dsn: str) -> Iterator[Connection]:
    """As the owner of the schema, with a captured table that everybody may write."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(ORDERS)
        connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON orders TO PUBLIC")
        yield connection


@pytest.fixture
def stranger(login: Callable[[str | None], str]) -> Iterator[Connection]:
    """A role without any right on the journal."""
    with psycopg.connect(login(None), autocommit=True) as connection:
        yield connection


@pytest.fixture
def tenant(shop: Connection, login: Callable[[str | None], str]) -> Iterator[Connection]:
    """A role that may append, and make things in a schema of its own."""
    with psycopg.connect(login("projections_writer"), autocommit=True) as connection:
        shop.execute(f"CREATE SCHEMA tenant AUTHORIZATION {connection.info.user}")
        connection.execute("SET search_path = tenant, public")
        yield connection
    shop.execute("DROP SCHEMA tenant CASCADE")


def test_a_writer_of_the_table_needs_no_right_on_the_journal(shop: Connection, stranger: Connection) -> None:
    capture(shop)

    stranger.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")
    stranger.execute("UPDATE orders SET amount = 2")
    stranger.execute("DELETE FROM orders")

    assert [one[1] for one in told(shop)] == ["insert", "update", "delete"]
    for name in ("_append_changes_v1", "_describe_changes_v1"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            stranger.execute(f"SELECT projections.{name}()")


def test_a_stranger_can_not_use_the_triggers_of_the_journal(shop: Connection, stranger: Connection) -> None:
    stranger.execute("CREATE TEMPORARY TABLE mine (id integer PRIMARY KEY)")

    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        stranger.execute(
            "CREATE TRIGGER forging AFTER INSERT ON mine FOR EACH STATEMENT "
            "EXECUTE FUNCTION projections._append_changes_v1('{}')"
        )


# What the first trigger of a capture hands to the second, of one event.
FORGED = ", ".join(
    f"set_config('projections.captured_1{name}', '{value}', true)"
    for name, value in {
        "": 1,
        "_1_s": '"public.orders/9"',
        "_1_o": "insert",
        "_1_p": "{}",
        "_1_m": "",
    }.items()
)


def test_a_writer_can_not_put_events_of_its_own_in_the_place_of_the_described(
    shop: Connection, stranger: Connection
) -> None:
    capture(shop)

    with stranger.transaction():
        stranger.execute(f"SELECT {FORGED}")
        stranger.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")
        stranger.execute("UPDATE orders SET amount = amount")

    assert [one[:2] for one in told(shop)] == [("1", "insert")]


def test_who_owns_a_table_appends_no_events_of_another(shop: Connection, tenant: Connection) -> None:
    tenant.execute("CREATE TABLE mine (id integer PRIMARY KEY)")
    capture(tenant, "mine")
    tenant.execute(
        "CREATE FUNCTION forge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"PERFORM {FORGED}; RETURN NULL; END $$"
    )
    tenant.execute(
        "CREATE TRIGGER projections_capture_1_x AFTER INSERT ON mine FOR EACH STATEMENT EXECUTE FUNCTION forge()"
    )

    with pytest.raises(
        psycopg.Error, match=r"a trigger of table tenant\.mine fires between those of its capture"
    ) as raised:
        tenant.execute("INSERT INTO mine VALUES (1)")

    assert raised.value.sqlstate == "PJ063"
    assert events(shop) == []


TRIGGER = "CREATE TRIGGER {name} AFTER INSERT ON orders FOR EACH STATEMENT EXECUTE FUNCTION theirs.forge()"


def test_who_may_make_triggers_on_a_table_forges_no_events_of_it(
    shop: Connection, stranger: Connection
) -> None:
    capture(shop)
    role = stranger.execute("SELECT quote_ident(current_user)").fetchone()
    assert role is not None
    shop.execute(f"GRANT TRIGGER ON orders TO {role[0]}")
    shop.execute(f"CREATE SCHEMA theirs AUTHORIZATION {role[0]}")
    stranger.execute(
        "CREATE FUNCTION theirs.forge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"PERFORM {FORGED}; RETURN NULL; END $$"
    )
    for name in ("projections_capture_1_insert2", "projections_capture_2"):
        stranger.execute(TRIGGER.format(name=name))
        with pytest.raises(psycopg.Error, match="fires between those of its capture"):
            stranger.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")
        shop.execute(f"DROP TRIGGER {name} ON orders")
    for name in ("a_first", "z_last"):
        stranger.execute(TRIGGER.format(name=name))
    stranger.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")
    shop.execute("DROP TABLE orders; DROP SCHEMA theirs CASCADE")

    assert {one[:2] for one in told(shop)} == {("1", "insert")}


def test_a_writer_of_the_journal_captures_and_releases_its_own_table(
    shop: Connection, tenant: Connection
) -> None:
    tenant.execute("CREATE TABLE mine (id integer PRIMARY KEY)")

    assert capture(tenant, "mine") == "tenant.mine"
    tenant.execute("INSERT INTO mine VALUES (1)")
    tenant.execute("SELECT projections.release_table_v1('mine')")
    tenant.execute("INSERT INTO mine VALUES (2)")

    assert [one.source_id for one in events(shop)] == ["tenant.mine/1"]


def test_nobody_captures_a_table_of_others(shop: Connection, tenant: Connection) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        capture(tenant, "orders")


SHAPE = """
CREATE FUNCTION tenant.shape(operation text, old jsonb, new jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE WHEN (new ->> 'amount')::numeric = 0 THEN NULL
        ELSE jsonb_build_object(
            'did', operation, 'by', current_user, 'was', old -> 'amount', 'is', new -> 'amount') END;
END $$
"""


def test_a_serializer_shapes_and_leaves_out_with_the_rights_of_the_writer(
    shop: Connection, tenant: Connection, stranger: Connection
) -> None:
    tenant.execute(SHAPE)
    shop.execute("GRANT USAGE ON SCHEMA tenant TO PUBLIC")
    capture(shop, serializer="tenant.shape")

    stranger.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL), (2, 'Bo', 0, NULL)")
    stranger.execute("UPDATE orders SET amount = 5 WHERE id = 1")
    stranger.execute("UPDATE orders SET amount = amount")
    stranger.execute("DELETE FROM orders")

    by = stranger.info.user
    assert told(shop) == [
        ("1", "insert", {"did": "insert", "by": by, "was": None, "is": 1}),
        ("1", "update", {"did": "update", "by": by, "was": 1, "is": 5}),
        ("1", "delete", {"did": "delete", "by": by, "was": 5, "is": None}),
        ("2", "delete", {"did": "delete", "by": by, "was": 0, "is": None}),
    ]
    assert {one.metadata for one in events(shop)} == {None}


def test_a_serializer_that_writes_captured_tables_does_not_mix_them(shop: Connection) -> None:
    shop.execute("CREATE TABLE log (n integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text)")
    capture(shop, "log")
    shop.execute(
        "CREATE FUNCTION shape(operation text, old jsonb, new jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO public.log (text) VALUES (operation); RETURN new; END $$"
    )
    capture(shop, serializer="shape")

    shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL), (2, 'Bo', 1, NULL)")

    assert [one.source_id for one in events(shop)] == [
        "public.log/1",
        "public.log/2",
        "public.orders/1",
        "public.orders/2",
    ]


def test_a_serializer_that_is_gone_is_named(shop: Connection) -> None:
    shop.execute("CREATE FUNCTION shape(text, jsonb, jsonb) RETURNS jsonb LANGUAGE sql RETURN $3")
    capture(shop, serializer="shape")
    shop.execute("DROP FUNCTION shape")

    with pytest.raises(
        psycopg.Error, match=r"the function public\.shape .* of public\.orders is gone"
    ) as raised:
        shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")

    assert raised.value.sqlstate == "PJ063"


def test_an_error_of_a_serializer_fails_the_statement(shop: Connection) -> None:
    shop.execute(
        "CREATE FUNCTION shape(text, jsonb, jsonb) RETURNS jsonb LANGUAGE sql "
        "RETURN to_jsonb(1 / ($3 ->> 'id')::integer)"
    )
    capture(shop, serializer="shape")

    with pytest.raises(psycopg.errors.DivisionByZero):
        shop.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL), (0, 'Bo', 1, NULL)")

    assert shop.execute("SELECT count(*) FROM orders").fetchone() == (0,)
    assert events(shop) == []


def test_a_types_own_json_runs_with_the_rights_of_the_writer(
    shop: Connection, tenant: Connection, stranger: Connection
) -> None:
    tenant.execute("CREATE TYPE tenant.mood AS ENUM ('good', 'bad')")
    tenant.execute(
        "CREATE FUNCTION tenant.mood_json(tenant.mood) RETURNS json LANGUAGE sql "
        "AS $$ SELECT to_json(current_user::text) $$"
    )
    tenant.execute("CREATE CAST (tenant.mood AS json) WITH FUNCTION tenant.mood_json(tenant.mood)")
    tenant.execute("CREATE TABLE tenant.moods (id integer PRIMARY KEY, mood tenant.mood)")
    tenant.execute("GRANT USAGE ON SCHEMA tenant TO PUBLIC")
    tenant.execute("GRANT INSERT ON tenant.moods TO PUBLIC")
    capture(tenant, "moods")

    stranger.execute("INSERT INTO tenant.moods VALUES (1, 'good')")

    assert told(shop) == [("1", "insert", {"id": 1, "mood": stranger.info.user})]


def test_a_function_of_the_writers_search_path_does_not_take_the_place_of_postgresqls(
    shop: Connection, tenant: Connection
) -> None:
    capture(shop)
    seen: list[Any] = []
    tenant.add_notice_handler(seen.append)
    for name, arguments in (
        ("concat", "text, text, text"),
        ("char_length", "text"),
        ("array_fill", "text, integer[]"),
    ):
        tenant.execute(
            f"CREATE FUNCTION tenant.{name}({arguments}) RETURNS text LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE NOTICE 'trapped'; RETURN ''; END $$"
        )

    tenant.execute("INSERT INTO public.orders VALUES (1, 'Ann', 1, NULL)")

    assert len(told(shop)) == 1
    assert seen == []


def test_a_function_that_a_writer_of_the_table_may_not_call_is_refused(
    shop: Connection, stranger: Connection
) -> None:
    """Else each of its writes would fail."""
    writer = stranger.info.user
    shop.execute("REVOKE ALL ON orders FROM PUBLIC")
    shop.execute(f"GRANT INSERT ON orders TO {writer}")
    shop.execute("CREATE SCHEMA shapes")
    shop.execute(
        "CREATE FUNCTION shapes.own(text, jsonb, jsonb) RETURNS jsonb LANGUAGE sql RETURN coalesce($3, $2)"
    )
    shop.execute("REVOKE EXECUTE ON FUNCTION shapes.own FROM PUBLIC")
    captured = "SELECT projections.capture_table_v1('orders', p_serializer => 'shapes.own')"

    with pytest.raises(
        psycopg.Error,
        match=f"GRANT USAGE ON SCHEMA shapes TO {writer}; GRANT EXECUTE ON FUNCTION shapes.own TO {writer}",
    ):
        shop.execute(captured)

    shop.execute(f"GRANT USAGE ON SCHEMA shapes TO {writer}")
    shop.execute(f"GRANT EXECUTE ON FUNCTION shapes.own TO {writer}")
    shop.execute(captured)
    stranger.execute("INSERT INTO orders VALUES (1, 'Ann', 1, NULL)")
    assert [one[1] for one in told(shop)] == ["insert"]
