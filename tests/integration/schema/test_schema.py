"""Installing, upgrading and removing the schema, and refusing another version."""

from __future__ import annotations

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql as pgsql
from psycopg.conninfo import make_conninfo

from journal import schema
from journal.database import connect
from journal.database.sync import connect_sync
from journal.errors import SchemaError
from journal.schema import installing
from tests.fixtures.locks import WAITING
from tests.fixtures.schema import (
    APPEND,
    DATA,
    NEWER,
    OLDER,
    catalogue,
    edit,
    released_script,
    run,
)


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

        assert numbers == list(range(2, schema.SCHEMA_VERSION + 1))

    def test_the_order_of_installation_names_every_file(self) -> None:
        root = schema.sql_root()
        queries = {"catalogue.sql", "contents.sql", "install.sql"}
        files = {
            str(path.relative_to(root))
            for path in root.rglob("*.sql")
            if path.parent.name not in {"migrations", "foreign", "standby"}
        }

        assert sorted(re.findall(r"^\\ir (.*)$", (root / "install.sql").read_text(), re.MULTILINE)) == sorted(
            files - queries
        )

    @pytest.mark.slow
    def test_installing_again_changes_no_definition_and_no_data(self, dsn: str) -> None:
        run(dsn, APPEND)
        before = catalogue(dsn), run(dsn, DATA)

        schema.install(dsn)

        assert (
            catalogue(dsn),
            run(dsn, DATA),
        ) == before

    @pytest.mark.slow
    def test_installing_again_does_not_wait_for_an_open_append(self, dsn: str) -> None:
        impatient = make_conninfo(dsn, options="-c lock_timeout=100ms")
        with connect_sync(dsn) as writer:
            writer.execute(APPEND.encode())

            schema.install(impatient)

    @pytest.mark.slow
    def test_installing_again_restores_a_function(self, dsn: str) -> None:
        run(dsn, "DROP FUNCTION projections.notify_appended_v1()")

        schema.install(dsn)

        assert schema.verify(dsn) == []

    @pytest.mark.slow
    @pytest.mark.parametrize("isolation", ["read committed", "serializable"])
    def test_a_second_install_waits_for_the_first_and_finds_it(self, empty_dsn: str, isolation: str) -> None:
        setting = "default_transaction_isolation=" + isolation.replace(" ", r"\ ")
        second = make_conninfo(empty_dsn, options=f"-c {setting}")
        with ThreadPoolExecutor(1) as pool:
            with connect_sync(empty_dsn) as connection:
                installing.run(connection, schema.script())
                waiting = pool.submit(schema.install, second)
                while run(empty_dsn, f"SELECT pid FROM {WAITING}") == []:
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

    @pytest.mark.slow
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

    @pytest.mark.slow
    def test_an_old_server_is_refused(self, empty_dsn: str, copied_root: Path) -> None:
        edit(copied_root / "guard.sql", "< 140000", "< 990000")

        with pytest.raises(SchemaError, match="PostgreSQL 14 or later is needed, this is"):
            schema.install(empty_dsn, root=copied_root)

    @pytest.mark.slow
    def test_a_failed_install_leaves_nothing(self, empty_dsn: str, copied_root: Path) -> None:
        (copied_root / "privileges" / "public.sql").write_text("SELECT 1 / 0;")

        with pytest.raises(Exception, match="division by zero"):
            schema.install(empty_dsn, root=copied_root)

        assert run(empty_dsn, "SELECT to_regnamespace('projections')") == [(None,)]

    @pytest.mark.slow
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
    @pytest.mark.slow
    def test_all_migrations_from_the_first_version_equal_a_fresh_install(
        self, empty_dsn: str, dsn: str
    ) -> None:
        with connect_sync(empty_dsn) as connection:
            installing.run(connection, released_script(1))

        schema.upgrade(empty_dsn)

        assert catalogue(empty_dsn) == catalogue(dsn)
        assert schema.verify(empty_dsn) == []

    def test_the_comparison_sees_everything_that_is_made(self, dsn: str) -> None:
        kinds = {name.split()[0] for name in catalogue(dsn).things}

        assert kinds == {
            "schema", "table", "sequence", "view", "rule", "column", "constraint", "index", "function", "grant",
        }  # fmt: skip

    @pytest.mark.slow
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

    @pytest.mark.slow
    def test_upgrading_what_is_up_to_date_changes_nothing(self, dsn: str) -> None:
        before = catalogue(dsn)

        schema.upgrade(dsn)

        assert catalogue(dsn) == before

    @pytest.mark.slow
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


class TestUninstall:
    def test_contents_count_the_rows_of_tables(self, dsn: str) -> None:
        run(dsn, "SELECT projections._create_partition_v1('2020-01-01Z', '2020-01-02Z')")
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

    def test_uninstalling_beside_a_poll_that_it_deadlocks_with_is_done_all_the_same(self, dsn: str) -> None:
        """A poll looks for imports, then for events, and the schema is dropped in another order."""
        at_once = make_conninfo(dsn, options="-c deadlock_timeout=10ms")  # mostly it is the one that is ended
        with ThreadPoolExecutor(1) as alongside, psycopg.connect(dsn) as poll, psycopg.connect(dsn) as look:
            look.autocommit = True
            poll.execute("SELECT count(*) FROM projections.imports")
            dropped = alongside.submit(schema.uninstall, at_once)
            while look.execute(f"SELECT count(*) FROM {WAITING}").fetchone() == (0,):
                pass
            with suppress(psycopg.errors.DeadlockDetected):  # either may be the one that is ended
                poll.execute("SELECT count(*) FROM projections.events")
            poll.rollback()
            dropped.result()

        assert schema.installed_version(dsn) is None


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
