"""Fixtures of several files of tests: for the schema, for archives."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from journal import ConnectionSettings, Database, connect, schema
from tests.fixtures.rebuilds import make_read_models
from tests.fixtures.schema import (
    edit,
    run,
)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Where an archive goes; it is not there yet."""
    return tmp_path / "archive"


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    """A database with the read models of :mod:`tests.fixtures.rebuilds`."""
    async with connect(dsn, ConnectionSettings(max_connections=15)) as database:
        await make_read_models(database)
        yield database


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
