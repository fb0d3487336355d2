"""
Installs, upgrades and removes the schema ``projections``.

The SQL is in plain files that psql reads as they are (``sql/install.sql``): nothing is made here that
they do not say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from journal.database.identifiers import quote
from journal.database.sync import Diagnostic, SyncConnection, connect_sync
from journal.errors import DatabaseError, SchemaError
from journal.schema.version import NOT_INSTALLED, migrations, value, version_of
from journal.sql_files import sql_root

T = TypeVar("T")

_INCLUDE = re.compile(r"^\\ir (\S+)$", re.MULTILINE)
_PSQL_LINE = re.compile(r"^\\.*$", re.MULTILINE)

_DEADLOCK = "40P01"
_ATTEMPTS = 10
# A migration that waits for a table makes every writer wait behind it.
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '10s'"
# As guard.sql has it, which runs after the migrations.
_SEARCH_PATH = "SET LOCAL search_path = pg_catalog, pg_temp"


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in the schema, and what would go with it."""

    rows: dict[str, int]
    """The number of rows of each table; those of partitions count for their table."""
    dependents: list[str]
    """Views, constraints and functions outside the schema that depend on it."""


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def included(root: Path) -> list[str]:
    """The files of install.sql, in their order."""
    return _INCLUDE.findall(_read(root / "install.sql"))


def join(root: Path, names: list[str]) -> str:
    """The text of several files, each below a comment that names it."""
    return "\n".join(f"-- {name}\n{_read(root / name)}" for name in names)


def script(root: Path | None = None) -> str:
    """
    The whole installation as one text for ``psql -1 -f``.

    Other tools can run it too, in one transaction, without its one line that begins with a backslash.

    Args:
        root: Another folder of SQL files than that of this library.
    """
    folder = root or sql_root()
    return _INCLUDE.sub(lambda match: join(folder, [match[1]]), _read(folder / "install.sql"))


def install(dsn: str, *, root: Path | None = None) -> list[str]:
    """
    Create the schema; where the same version exists, make its functions, views and grants as new.

    Args:
        dsn: The database; its role becomes the owner.
        root: Another folder of SQL files than that of this library.

    Returns:
        What the database remarked, such as roles that could not be created.

    Raises:
        SchemaError: Another version is installed, or the database cannot hold the schema.
        DatabaseError: The database refused.
    """
    with connect_sync(dsn) as connection:
        return run(connection, script(root))


def upgrade(dsn: str, *, root: Path | None = None) -> list[str]:
    """
    Bring an installed schema to this library's version, in one transaction.

    Waits up to 10 seconds for each lock on a table, then gives up with nothing changed.

    Args:
        dsn: The database, connected to as the owner of the schema.
        root: Another folder of SQL files than that of this library.

    Returns:
        What the database remarked.

    Raises:
        SchemaError: Nothing is installed, or a newer version is.
        DatabaseError: The database refused, or a lock could not be had in time.
    """

    def once() -> list[str]:
        with connect_sync(dsn) as connection:
            connection.execute(
                "SELECT pg_advisory_xact_lock(hashtext('slice-projections'), hashtext('schema'))"
            )
            version = version_of(connection)
            if version is None:
                raise SchemaError(NOT_INSTALLED)
            connection.execute(_LOCK_TIMEOUT)
            connection.execute(_SEARCH_PATH)
            return run(connection, _upgrade_script(root or sql_root(), version))

    return _again_after_deadlocks(once)


def _again_after_deadlocks(once: Callable[[], T]) -> T:
    """
    Do a transaction again that has deadlocked with workers which run.

    It locks table after table, and each function of a worker locks some in an order of its own; whoever waits first is
    the one that is ended.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return once()
        except DatabaseError as error:
            if error.sqlstate != _DEADLOCK:
                raise
    return once()


def _upgrade_script(root: Path, version: int) -> str:
    """The migrations after a version, then all that is made as new each time: everything except tables."""
    record = "INSERT INTO projections.schema_versions (version) VALUES ({});\n"
    pending = [
        f"-- {path.name}\n{_read(path)}\n{record.format(number)}"
        for number, path in migrations(root).items()
        if number > version
    ]
    renewed = [name for name in included(root) if not name.startswith("tables/")]
    return "\n".join([*pending, join(root, renewed)])


def contents(dsn: str) -> Contents:
    """
    What :func:`uninstall` would drop.

    Raises:
        SchemaError: The schema is not installed.
        DatabaseError: The database refused.
    """
    with connect_sync(dsn) as connection:
        if value(connection, "SELECT to_regnamespace('projections')") is None:
            raise SchemaError(NOT_INSTALLED)
        found = connection.execute((sql_root() / "contents.sql").read_bytes()).fetchall()
        return Contents(
            rows={
                name: value(connection, f"SELECT count(*) FROM {quote('projections', name)}")
                for name, is_table in found
                if is_table
            },
            dependents=[name for name, is_table in found if not is_table],
        )


def uninstall(dsn: str) -> None:
    """
    Drop the schema with all events and offsets, and whatever depends on it.

    The roles stay: they are the server's.

    Args:
        dsn: The database, connected to as the owner of the schema.

    Raises:
        DatabaseError: The database refused, or something was still using the tables after 10 seconds.
    """

    def once() -> None:
        with connect_sync(dsn) as connection:
            connection.execute(_LOCK_TIMEOUT)
            connection.execute("DROP SCHEMA IF EXISTS projections CASCADE")
            connection.execute("DROP SCHEMA IF EXISTS projections_conditions CASCADE")

    _again_after_deadlocks(once)


def run(connection: SyncConnection, text: str) -> list[str]:
    """Run many statements; returns the remarks of our own files, not PostgreSQL's "already exists"."""
    remarks: list[str] = []

    def note(diagnostic: Diagnostic) -> None:
        if diagnostic.sqlstate == "00000" and diagnostic.message_primary:
            remarks.append(diagnostic.message_primary)

    connection.add_notice_handler(note)
    connection.execute(_PSQL_LINE.sub("", text).encode())
    return remarks
