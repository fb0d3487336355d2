"""Partitioned tables: through the parent, by the partition's own name, attached and detached."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.fixtures.capture import Connection, capture, told

MISSED = "SELECT partitions_missed FROM projections.captured_tables"


@pytest.fixture
def shop(dsn: str) -> Iterator[Connection]:
    """Visits by year; those of 2026 are partitioned again."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE visits (id integer, year integer, page text, PRIMARY KEY (year, id)) PARTITION BY LIST (year)"
        )
        connection.execute("CREATE TABLE visits_2025 PARTITION OF visits FOR VALUES IN (2025)")
        connection.execute(
            "CREATE TABLE visits_2026 PARTITION OF visits FOR VALUES IN (2026) PARTITION BY HASH (id)"
        )
        connection.execute(
            "CREATE TABLE visits_2026_0 PARTITION OF visits_2026 FOR VALUES WITH (MODULUS 1, REMAINDER 0)"
        )
        capture(connection, "visits")
        yield connection


@pytest.mark.parametrize("table", ["visits", "visits_2026", "visits_2026_0"])
def test_a_statement_is_told_once_whichever_level_it_names(shop: Connection, table: str) -> None:
    shop.execute(f"INSERT INTO {table} VALUES (1, 2026, '/')")
    shop.execute(f"UPDATE {table} SET page = '/x'")
    shop.execute(f"DELETE FROM {table}")

    row = {"id": 1, "year": 2026}
    assert told(shop) == [
        ("[2026, 1]", "insert", {**row, "page": "/"}),
        ("[2026, 1]", "update", {"page": "/x"}),
        ("[2026, 1]", "delete", {**row, "page": "/x"}),
    ]


def test_a_row_that_moves_to_another_partition_has_another_key_there(shop: Connection) -> None:
    shop.execute("INSERT INTO visits VALUES (1, 2025, '/'), (2, 2025, '/')")

    shop.execute("UPDATE visits SET year = year + (id = 1)::integer")

    assert [one[:2] for one in told(shop)[2:]] == [("[2025, 1]", "delete"), ("[2026, 1]", "insert")]


def test_copy_into_the_parent_is_captured(shop: Connection) -> None:
    with shop.cursor().copy("COPY visits FROM STDIN") as copy:
        copy.write_row((1, 2025, "/"))
        copy.write_row((2, 2026, "/"))

    assert [one[:2] for one in told(shop)] == [("[2025, 1]", "insert"), ("[2026, 2]", "insert")]


def test_a_partition_of_other_columns_order_is_told_by_their_names(shop: Connection) -> None:
    shop.execute(
        "CREATE TABLE visits_2027 (gone text, page text, year integer NOT NULL, id integer NOT NULL)"
    )
    shop.execute("ALTER TABLE visits_2027 DROP gone")
    shop.execute("ALTER TABLE visits ATTACH PARTITION visits_2027 FOR VALUES IN (2027)")
    capture(shop, "visits")

    shop.execute("INSERT INTO visits VALUES (1, 2027, '/')")
    shop.execute("INSERT INTO visits_2027 (id, year, page) VALUES (2, 2027, '/')")

    assert told(shop) == [(f"[2027, {n}]", "insert", {"id": n, "year": 2027, "page": "/"}) for n in (1, 2)]


def test_a_new_partition_is_captured_through_the_parent_and_listed_as_missed(shop: Connection) -> None:
    shop.execute("CREATE TABLE visits_2027 PARTITION OF visits FOR VALUES IN (2027)")

    shop.execute("INSERT INTO visits VALUES (1, 2027, '/')")
    shop.execute("INSERT INTO visits_2027 VALUES (2, 2027, '/')")

    assert [one[:2] for one in told(shop)] == [("[2027, 1]", "insert")]
    assert shop.execute(MISSED).fetchall() == [(1,)]


def test_capturing_again_takes_in_new_partitions(shop: Connection) -> None:
    shop.execute("CREATE TABLE visits_2027 PARTITION OF visits FOR VALUES IN (2027)")

    capture(shop, "visits")
    shop.execute("INSERT INTO visits_2027 VALUES (2, 2027, '/')")

    assert [one[:2] for one in told(shop)] == [("[2027, 2]", "insert")]
    assert shop.execute(MISSED).fetchall() == [(0,)]


def test_a_detached_partition_is_no_part_of_the_table_any_more(shop: Connection) -> None:
    shop.execute("ALTER TABLE visits DETACH PARTITION visits_2025")

    shop.execute("INSERT INTO visits_2025 VALUES (1, 2025, '/')")

    assert told(shop) == []


def test_a_partition_by_itself_is_refused(shop: Connection) -> None:
    with pytest.raises(
        psycopg.Error,
        match=r"cannot capture public.visits_2026_0: it is a partition: capture public.visits\n",
    ):
        capture(shop, "visits_2026_0")


def test_a_partition_in_another_server_is_refused(shop: Connection) -> None:
    shop.execute("CREATE FOREIGN DATA WRAPPER w")
    shop.execute("CREATE SERVER s FOREIGN DATA WRAPPER w")
    shop.execute("CREATE TABLE far (id integer, year integer) PARTITION BY LIST (year)")
    shop.execute("CREATE FOREIGN TABLE far_2020 PARTITION OF far FOR VALUES IN (2020) SERVER s")

    with pytest.raises(
        psycopg.Error, match=r"cannot capture public.far: a partition of it is a foreign table"
    ):
        capture(shop, "far")


@pytest.mark.parametrize("table", ["visits", "visits_2025", "visits_2026"])
def test_no_level_can_be_truncated(shop: Connection, table: str) -> None:
    with pytest.raises(psycopg.Error, match="TRUNCATE has no events"):
        shop.execute(f"TRUNCATE {table}")


def test_the_release_is_of_all_partitions(shop: Connection) -> None:
    shop.execute("SELECT projections.release_table_v1('visits')")

    shop.execute("INSERT INTO visits VALUES (1, 2026, '/')")
    shop.execute("INSERT INTO visits_2026_0 VALUES (2, 2026, '/')")

    assert told(shop) == []
    assert shop.execute("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'projections_%'").fetchone() == (
        0,
    )


MERGE = """
MERGE INTO visits AS v USING (VALUES (1, {to}), (9, 2025)) AS w (id, year) ON v.id = w.id
WHEN MATCHED {delete} THEN UPDATE SET year = w.year, page = '/m'
{more}
"""


@pytest.fixture
def merging(shop: Connection) -> Connection:
    if shop.info.server_version < 150000:
        pytest.skip("MERGE is there from PostgreSQL 15 on")
    shop.execute("INSERT INTO visits VALUES (1, 2025, '/'), (2, 2025, '/')")
    return shop


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        "",
        "WHEN NOT MATCHED THEN INSERT VALUES (w.id, w.year, '/n')",
        "WHEN MATCHED THEN DELETE",
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (w.id, w.year, '/n')",
    ],
    ids=["update", "insert", "delete", "all"],
)
def test_a_merge_that_moves_a_row_to_another_partition_is_refused(merging: Connection, more: str) -> None:
    delete = "AND v.id < 9" if "DELETE" in more else ""
    before = told(merging)

    with pytest.raises(
        psycopg.Error, match=r"a MERGE has moved rows of .*visits to other partitions"
    ) as raised:
        merging.execute(MERGE.format(to=2026, delete=delete, more=more))

    assert raised.value.sqlstate == "PJ064"
    assert told(merging) == before
    merging.execute("UPDATE visits SET year = 2026 WHERE id = 1")
    assert [one[:2] for one in told(merging)[2:]] == [("[2025, 1]", "delete"), ("[2026, 1]", "insert")]


def test_a_merge_that_moves_nothing_is_told(merging: Connection) -> None:
    merging.execute(
        MERGE.format(to=2025, delete="", more="WHEN NOT MATCHED THEN INSERT VALUES (w.id, w.year, '/n')")
    )

    assert sorted(one[:2] for one in told(merging)[2:]) == [("[2025, 1]", "update"), ("[2025, 9]", "insert")]


def test_a_key_that_changes_within_its_partition_and_a_row_that_a_trigger_keeps_are_no_moves(
    merging: Connection,
) -> None:
    merging.execute("CREATE TABLE visits_later PARTITION OF visits DEFAULT")
    merging.execute("INSERT INTO visits VALUES (1, 2030, '/'), (3, 2030, '/')")
    merging.execute(
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RETURN CASE WHEN OLD.id <> 3 THEN NEW END; END $$"
    )
    merging.execute("CREATE TRIGGER keep BEFORE UPDATE ON visits FOR EACH ROW EXECUTE FUNCTION keep()")
    merging.execute(
        "MERGE INTO visits AS v USING (VALUES (1), (3)) AS w (id) ON v.id = w.id AND v.year = 2030 "
        "WHEN MATCHED THEN UPDATE SET year = 2031"
    )

    assert [one[:2] for one in told(merging)[4:]] == [("[2030, 1]", "delete"), ("[2031, 1]", "insert")]


LATER = """
CREATE FUNCTION push() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.year := 2025; RETURN NEW; END $$;
CREATE TRIGGER zzz BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION push()
"""


@pytest.mark.slow
@pytest.mark.parametrize("table", ["visits", "visits_2026", "visits_2026_0"])
@pytest.mark.parametrize("merges", [False, True])
def test_a_trigger_that_could_move_rows_unseen_is_refused(shop: Connection, table: str, merges: bool) -> None:
    if merges and shop.info.server_version < 150000:
        pytest.skip("MERGE is there from PostgreSQL 15 on")
    shop.execute("INSERT INTO visits VALUES (1, 2026, '/')")
    shop.execute(LATER.format(table=table))

    with pytest.raises(
        psycopg.Error,
        match=r"trigger zzz of table public\.visits\S* fires after zz_projections_capture_moves",
    ) as raised:
        shop.execute(
            "MERGE INTO visits AS v USING (VALUES (1)) AS w (id) ON v.id = w.id "
            "WHEN MATCHED THEN UPDATE SET page = '/x'"
            if merges
            else "UPDATE visits SET page = '/x'"
        )
    assert raised.value.sqlstate == "PJ063"
    with pytest.raises(
        psycopg.Error, match=r"cannot capture public\.visits: its trigger zzz of public\.visits"
    ):
        capture(shop, "visits")

    shop.execute(f"DROP TRIGGER zzz ON {table}; DROP FUNCTION push()")
    shop.execute(LATER.format(table=table).replace("zzz", "moving"))
    shop.execute("UPDATE visits SET page = '/y'")

    assert [one[:2] for one in told(shop)[1:]] == [("[2025, 1]", "insert"), ("[2026, 1]", "delete")]


def test_a_trigger_of_a_partition_that_a_statement_names_moves_nothing(shop: Connection) -> None:
    shop.execute(LATER.format(table="visits_2025"))
    shop.execute("INSERT INTO visits VALUES (1, 2025, '/')")

    shop.execute("UPDATE visits_2025 SET page = '/x'")

    assert told(shop)[1:] == [("[2025, 1]", "update", {"page": "/x"})]
