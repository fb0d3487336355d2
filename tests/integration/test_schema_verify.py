"""Comparing a schema with what would be installed, and installing it with psql alone."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from journal import schema
from journal.drivers.sync import connect_sync
from journal.errors import MissingPrivilege
from tests.fixtures.postgres import client
from tests.integration.schema_support import (
    run,
)


def psql(dsn: str, file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [client("psql"), "-X", "-q", *options, "-f", file, "-d", dsn]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class TestVerify:
    def test_a_fresh_install_has_no_differences(self, dsn: str) -> None:
        assert schema.verify(dsn) == []

    def test_time_partitions_are_no_difference(self, dsn: str) -> None:
        run(dsn, "SELECT projections.create_partition_v1('2020-01-01Z', '2020-01-02Z')")

        assert schema.verify(dsn) == []

    def test_a_restored_dump_is_no_difference(self, dsn: str, empty_dsn: str, tmp_path: Path) -> None:
        dump = tmp_path / "dump.sql"
        run(dsn, "SELECT projections.subscribe_v1('g', 'e.seq_nr > 1')")
        dumping = [client("pg_dump"), "--file", dump, "--dbname", dsn]
        subprocess.run(dumping, capture_output=True, check=True)
        psql(empty_dsn, dump)  # a newer program has settings that an older server does not know

        assert schema.verify(empty_dsn) == []

    def test_grants_to_roles_of_the_user_are_no_difference(self, dsn: str, login: Any) -> None:
        role = psycopg.conninfo.conninfo_to_dict(login(None))["user"]
        run(dsn, f"GRANT SELECT ON projections.events TO {role}")

        assert schema.verify(dsn) == []

    @pytest.mark.parametrize(
        ("change", "difference"),
        [
            ("DROP INDEX projections.events_event_id_idx", "missing: index projections.events_event_id_"),
            ("ALTER TABLE projections.imports ADD COLUMN x int", "unexpected: column imports.x"),
            (
                "ALTER TABLE projections.imports ALTER events DROP NOT NULL",
                "different: column imports.events",
            ),
            (
                "ALTER TABLE projections.imports ALTER imported_at DROP DEFAULT",
                "different: column imports.imp",
            ),
            ("ALTER TABLE projections.sources SET (fillfactor = 90)", "different: table sources"),
            (
                "ALTER TABLE projections.events DROP CONSTRAINT seq_nr_is_positive",
                "missing: constraint events.seq_nr",
            ),
            ("CREATE INDEX mine ON projections.sources (slice)", "unexpected: index projections.mine"),
            ("DROP VIEW projections.partitions CASCADE", "missing: view partitions"),
            (
                "DROP FUNCTION projections.notify_appended_v1()",
                "missing: function projections.notify_appended_v1()",
            ),
            (
                "ALTER FUNCTION projections.poll_writers_v1 STABLE",
                "different: function projections.poll_writers_v1",
            ),
            ("GRANT SELECT ON projections.events TO public", "unexpected: grant on table events to PUBLIC"),
            (
                "REVOKE INSERT ON projections.events FROM projections_writer",
                "different: grant on table events to",
            ),
        ],
    )
    def test_a_change_is_reported(self, dsn: str, change: str, difference: str) -> None:
        run(dsn, change)

        assert any(line.startswith(difference) for line in schema.verify(dsn))

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

    def test_a_role_that_can_not_create_is_told_what_it_needs(self, login: Any) -> None:
        with pytest.raises(MissingPrivilege, match="needs CREATE on this database"):
            schema.verify(login("projections_reader"))


class TestPsql:
    def test_the_printed_script_installs(self, empty_dsn: str, tmp_path: Path) -> None:
        file = tmp_path / "install.sql"
        file.write_text(schema.script())

        first, second = psql(empty_dsn, file, "-1"), psql(empty_dsn, file, "-1")

        assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
        assert schema.verify(empty_dsn) == []

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
