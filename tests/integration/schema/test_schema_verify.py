"""Comparing a schema with what would be installed, and installing it with psql alone."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from journal import schema
from journal.database.sync import connect_sync
from journal.errors import MissingPrivilege
from journal.schema import verifying
from journal.schema.catalogue import Catalogue, read_catalogue
from journal.schema.verifying import compare
from tests.fixtures.failover import Server, pair
from tests.fixtures.manual_changes import CHANGES, PARTITION
from tests.fixtures.postgres import Databases, client
from tests.fixtures.schema import (
    run,
)


def psql(dsn: str, file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [client("psql"), "-X", "-q", *options, "-f", file, "-d", dsn]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def lived_in(databases: Databases, template: str) -> Iterator[str]:
    """A database with what comes and goes: time partitions, conditions."""
    with databases.fresh(template) as made:
        run(made, "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        run(made, "SELECT projections._create_partition_v1('2020-01-01Z', '2020-01-02Z')")
        run(made, "SELECT projections.subscribe_v1('g', 'e.seq_nr > 1')")
        yield made


@pytest.fixture(scope="module")
def expected(lived_in: str) -> Catalogue:
    with connect_sync(lived_in) as connection:
        return verifying.build(connection, schema.sql_root())


@pytest.fixture(autouse=True)
def _needed_major(request: pytest.FixtureRequest) -> None:
    if mark := request.node.get_closest_marker("needs_major"):
        with psycopg.connect(request.getfixturevalue("admin_dsn")) as connection:
            if connection.info.server_version < mark.args[0] * 10000:
                pytest.skip(f"PostgreSQL {mark.args[0]} and later can do this")


class TestVerify:
    def test_a_fresh_install_has_no_differences(self, dsn: str) -> None:
        assert schema.verify(dsn) == []

    @pytest.mark.slow
    def test_time_partitions_are_no_difference(self, dsn: str) -> None:
        run(dsn, "SELECT projections._create_partition_v1('2020-01-01Z', '2020-01-02Z')")

        assert schema.verify(dsn) == []

    @pytest.mark.slow
    def test_a_restored_dump_is_no_difference(self, dsn: str, empty_dsn: str, tmp_path: Path) -> None:
        dump = tmp_path / "dump.sql"
        run(dsn, "SELECT projections.subscribe_v1('g', 'e.seq_nr > 1')")
        dumping = [client("pg_dump"), "--file", dump, "--dbname", dsn]
        subprocess.run(dumping, capture_output=True, check=True)
        psql(empty_dsn, dump)  # a newer program has settings that an older server does not know

        assert schema.verify(empty_dsn) == []

    @pytest.mark.slow
    def test_grants_to_roles_of_the_user_are_no_difference(self, dsn: str, login: Any) -> None:
        role = psycopg.conninfo.conninfo_to_dict(login(None))["user"]
        run(dsn, f"GRANT SELECT ON projections.events TO {role}")

        assert schema.verify(dsn) == []

    @pytest.mark.daily(20)
    @pytest.mark.parametrize(("change", "difference"), CHANGES)
    def test_a_change_is_reported(
        self, lived_in: str, expected: Catalogue, change: str, difference: str
    ) -> None:
        with psycopg.connect(lived_in) as connection:
            connection.execute(change.encode())
            differences = compare(read_catalogue(connection, schema.sql_root()), expected)
            connection.rollback()

        assert any(line.startswith(difference) for line in differences), differences

    def test_a_missing_schema_is_reported(self, empty_dsn: str) -> None:
        assert schema.verify(empty_dsn) == [
            "the schema projections is not installed in this database: run `projections schema install`"
        ]

    def test_another_version_is_reported(self, dsn: str, next_root: Path) -> None:
        (line,) = schema.verify(dsn, root=next_root)

        assert "older than this library's" in line

    def test_verifying_leaves_nothing_behind(self, dsn: str) -> None:
        before = run(dsn, "SELECT nspname FROM pg_namespace ORDER BY 1")

        schema.verify(dsn)

        assert run(dsn, "SELECT nspname FROM pg_namespace ORDER BY 1") == before

    def test_verifying_does_not_wait_for_writers(self, dsn: str) -> None:
        with connect_sync(dsn) as other:
            other.execute("LOCK TABLE projections.events, projections.sources IN EXCLUSIVE MODE")

            assert schema.verify(make_conninfo(dsn, options="-c lock_timeout=100ms")) == []

    def test_what_users_add_is_no_difference(self, dsn: str, login: Any) -> None:
        role = psycopg.conninfo.conninfo_to_dict(login("projections_writer"))["user"]
        for statement in (
            f"GRANT SELECT (payload) ON projections.events TO {role}",
            f"GRANT ALL ON FUNCTION projections.maintain_v1 TO {role}",
            f"GRANT ALL ON SCHEMA projections TO {role}",
            "CREATE VIEW mine AS SELECT * FROM projections.events",
            "CREATE TABLE theirs (source_id text PRIMARY KEY REFERENCES projections.sources)",
            "CREATE TABLE captured (id text PRIMARY KEY)",
            "SELECT projections.capture_table_v1('captured')",
            "CREATE PUBLICATION mine FOR TABLE projections.events",
            "COMMENT ON TABLE projections.events IS 'ours'",
            "ANALYZE projections.events",
        ):
            run(dsn, statement)

        assert schema.verify(dsn) == []

    def test_a_partition_in_slice_order_is_no_difference(self, lived_in: str, expected: Catalogue) -> None:
        name = PARTITION.partition(".")[2]
        with psycopg.connect(lived_in, autocommit=True) as connection:
            copied = connection.execute("SELECT projections._cluster_partition_v1(%s)", [name])
            assert copied.fetchone() == (0,)
            assert schema.verify(lived_in) == []  # while the copy is there
            (oid,) = connection.execute("SELECT %s::regclass::oid", [PARTITION]).fetchone() or ()
            with connection.transaction(force_rollback=True):
                connection.execute(
                    "SELECT projections._replace_partition_v1(%s, %s)", [name, f"events_copy_of_{oid}"]
                )
                differences = compare(read_catalogue(connection, schema.sql_root()), expected)
            connection.execute("SELECT projections._drop_partition_copies_v1()")

        assert differences == []

    def test_a_table_on_another_disk_is_reported_and_a_partition_is_not(
        self, lived_in: str, expected: Catalogue
    ) -> None:
        name = f"sp_{uuid.uuid4().hex[:8]}"
        with psycopg.connect(lived_in, autocommit=True) as connection:
            try:
                connection.execute("SET allow_in_place_tablespaces = on")
            except psycopg.Error:
                pytest.skip("this release of PostgreSQL needs a directory for a tablespace")
            connection.execute(f"CREATE TABLESPACE {name} LOCATION ''".encode())
            try:
                with connection.transaction(force_rollback=True):
                    connection.execute(f"ALTER TABLE {PARTITION} SET TABLESPACE {name}".encode())
                    connection.execute(f"ALTER TABLE projections.imports SET TABLESPACE {name}".encode())
                    (line,) = compare(read_catalogue(connection, schema.sql_root()), expected)
            finally:
                connection.execute(f"DROP TABLESPACE {name}".encode())

        assert line.startswith("different: table imports is")

    @pytest.mark.slow
    def test_a_role_that_may_not_create_compares_with_an_embedded_server(self, dsn: str, login: Any) -> None:
        run(dsn, "SELECT projections.subscribe_v1('g', 'e.seq_nr > 1')")
        run(dsn, "SELECT projections._create_partition_v1('2020-01-01Z', '2020-01-02Z')")
        reader = login("projections_reader")
        assert schema.verify(reader) == []

        run(dsn, "ALTER TABLE projections.imports ALTER events DROP NOT NULL")

        (line,) = schema.verify(reader)
        assert line.startswith("different: column imports.events")

    def test_where_the_schema_cannot_be_built_it_says_what_to_do(
        self, login: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PROJECTIONS_PG_BIN", "/nonexistent")

        with pytest.raises(MissingPrivilege, match="Neither is possible: PROJECTIONS_PG_BIN="):
            schema.verify(login("projections_reader"))

    @pytest.mark.slow
    async def test_a_standby_is_compared(self, base_cluster: Server) -> None:
        async with pair(base_cluster, "d") as servers:
            await asyncio.to_thread(servers.follow)
            standby = servers.standby.dsn("d")
            assert await asyncio.to_thread(schema.verify, standby) == []

            servers.primary.value("ALTER TABLE projections.imports SET (fillfactor = 50)", "d")
            written = servers.primary.value("SELECT pg_current_wal_lsn()")
            await asyncio.to_thread(servers.standby.until, f"SELECT pg_last_wal_replay_lsn() >= '{written}'")
            (line,) = await asyncio.to_thread(schema.verify, standby)

        assert line.startswith("different: table imports is")


class TestPsql:
    @pytest.mark.slow
    def test_the_printed_script_installs(self, empty_dsn: str, tmp_path: Path) -> None:
        file = tmp_path / "install.sql"
        file.write_text(schema.script())

        first, second = psql(empty_dsn, file, "-1"), psql(empty_dsn, file, "-1")

        assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
        assert schema.verify(empty_dsn) == []

    @pytest.mark.slow
    def test_the_folder_installs(self, empty_dsn: str) -> None:
        result = psql(empty_dsn, schema.sql_root() / "install.sql", "-1", "-v", "ON_ERROR_STOP=1")

        assert result.returncode == 0, result.stderr
        assert schema.verify(empty_dsn) == []

    def test_a_refusal_fails_the_script(self, dsn: str) -> None:
        run(dsn, "INSERT INTO projections.schema_versions (version) VALUES (999)")

        result = psql(dsn, schema.sql_root() / "install.sql", "-1")

        assert result.returncode == 3
        assert "newer than this library's" in result.stderr

    def test_without_one_transaction_nothing_is_made(self, empty_dsn: str) -> None:
        result = psql(empty_dsn, schema.sql_root() / "install.sql")

        assert "this script runs in one transaction: psql -1 -f" in result.stderr
        assert run(empty_dsn, "SELECT to_regnamespace('projections')") == [(None,)]
