"""Which version the schema of a database has, and the refusal of another than this library's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from journal.database.session import Session
from journal.database.sync import SyncConnection, connect_sync
from journal.errors import OtherSchemaVersion, SchemaError
from journal.sql_files import sql_root

_MIGRATION = re.compile(r"(\d{4})_\w+\.sql")
NOT_INSTALLED = "the schema projections is not installed in this database: run `projections schema install`"


def migrations(root: Path) -> dict[int, Path]:
    """The files of the migrations by their versions, in their order."""
    found = ((_MIGRATION.fullmatch(path.name), path) for path in (root / "migrations").iterdir())
    return dict(sorted((int(match[1]), path) for match, path in found if match))


SCHEMA_VERSION: Final = max(migrations(sql_root()))
"""The schema that this library works with: the highest number of a migration."""


def installed_version(dsn: str) -> int | None:
    """The version of the schema in a database, None where it is not installed."""
    with connect_sync(dsn) as connection:
        return version_of(connection)


def version_of(connection: SyncConnection) -> int | None:
    """The same of an open connection."""
    if value(connection, "SELECT to_regclass('projections.schema_versions')") is None:
        return None
    return value(connection, "SELECT max(version) FROM projections.schema_versions")  # type: ignore[no-any-return]


async def check_version(session: Session) -> None:
    """
    Refuse to work on another schema than this library's.

    Raises:
        SchemaError: The schema is missing; the message says what to run.
        OtherSchemaVersion: It is older or newer.
    """
    exists = await session.fetchval("SELECT to_regclass('projections.schema_versions') IS NOT NULL")
    found = await session.fetchval("SELECT max(version) FROM projections.schema_versions") if exists else None
    if found is None:
        raise SchemaError(NOT_INSTALLED)
    compare_version(found)


def compare_version(found: int) -> None:
    """
    Refuse another version than this library's.

    Raises:
        OtherSchemaVersion: The message says what to run.
    """
    if found != SCHEMA_VERSION:
        raise OtherSchemaVersion(other_version(found, SCHEMA_VERSION))


def other_version(found: int, wanted: int) -> str:
    """What is said of another version: which one is newer, and what to run."""
    if found > wanted:
        relation, remedy = "newer", "upgrade the library"
    else:
        relation, remedy = "older", "run `projections schema upgrade`"
    return f"this database has schema version {found}, {relation} than this library's {wanted}: {remedy}"


def value(connection: SyncConnection, query: str) -> Any:
    """The first column of the first row; None without a row."""
    row = connection.execute(query.encode()).fetchone()
    return row[0] if row else None
