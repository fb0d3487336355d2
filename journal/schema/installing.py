"""
Installs, upgrades, checks and removes the schema ``projections``.

The SQL is in plain files that psql reads as they are (``sql/install.sql``): nothing is made here that
they do not say.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from journal.database.identifiers import quote
from journal.database.session import Session
from journal.database.sync import Diagnostic, SyncConnection, connect_sync
from journal.embedded import EmbeddedServerError, temporary_server
from journal.errors import MissingPrivilege, OtherSchemaVersion, SchemaError
from journal.schema.catalogue import Catalogue, compare, read_catalogue
from journal.sql_files import sql_root

__all__ = [
    "SCHEMA_VERSION",
    "Contents",
    "check_version",
    "compare_version",
    "contents",
    "install",
    "installed_version",
    "script",
    "uninstall",
    "upgrade",
    "verify",
]

_MIGRATION = re.compile(r"(\d{4})_\w+\.sql")
_INCLUDE = re.compile(r"^\\ir (\S+)$", re.MULTILINE)
_PSQL_LINE = re.compile(r"^\\.*$", re.MULTILINE)
# Where the schema's name is one, and not a word: before a dot, after SCHEMA, or a literal of its own.
_NAME = re.compile(
    r"\bprojections(?=(_conditions)?\.)"
    r"|(?<=SCHEMA )projections(?=(_conditions)?\b)"
    r"|(?<=')projections(?=(_conditions)?')"
)
_NOT_INSTALLED = "the schema projections is not installed in this database: run `projections schema install`"

# Beside the schema, as it was installed: only the owner can give the same rights to the same roles.
_MAY_BUILD = """
SELECT NOT pg_is_in_recovery() AND has_database_privilege(current_database(), 'CREATE')
AND pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'projections'), 'USAGE')
"""
# Conditions of each kind, where the server has the role that they need.
_MODELS = """
SELECT projections.condition_id_v1(c.condition) FROM unnest(ARRAY['TRUE', 'e.seq_nr > 0']) AS c (condition)
WHERE (SELECT p.proowner FROM pg_proc AS p WHERE p.oid = 'projections.compile_condition_v1'::regproc)
    = to_regrole('projections_matcher')
"""
_ROLES = b"SELECT rolname FROM pg_roles WHERE rolname ~ '^projections_(reader|writer|worker|matcher)$'"

# A migration that waits for a table makes every writer wait behind it.
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '10s'"
# As guard.sql has it, which runs after the migrations.
_SEARCH_PATH = "SET LOCAL search_path = pg_catalog, pg_temp"


def _migrations(root: Path) -> dict[int, Path]:
    found = ((_MIGRATION.fullmatch(path.name), path) for path in (root / "migrations").iterdir())
    return dict(sorted((int(match[1]), path) for match, path in found if match))


SCHEMA_VERSION: Final = max(_migrations(sql_root()))
"""The schema that this library works with: the highest number of a migration."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in the schema, and what would go with it."""

    rows: dict[str, int]
    """The number of rows of each table; those of partitions count for their table."""
    dependents: list[str]
    """Views, constraints and functions outside the schema that depend on it."""


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _included(root: Path) -> list[str]:
    """The files of install.sql, in their order."""
    return _INCLUDE.findall(_read(root / "install.sql"))


def _join(root: Path, names: list[str]) -> str:
    return "\n".join(f"-- {name}\n{_read(root / name)}" for name in names)


def script(root: Path | None = None) -> str:
    """
    The whole installation as one text for ``psql -1 -f``.

    Other tools can run it too, in one transaction, without its one line that begins with a backslash.

    Args:
        root: Another folder of SQL files than :func:`sql_root`.
    """
    folder = root or sql_root()
    return _INCLUDE.sub(lambda match: _join(folder, [match[1]]), _read(folder / "install.sql"))


def install(dsn: str, *, root: Path | None = None) -> list[str]:
    """
    Create the schema; where the same version exists, make its functions, views and grants as new.

    Args:
        dsn: The database; its role becomes the owner.
        root: Another folder of SQL files than :func:`sql_root`.

    Returns:
        What the database remarked, such as roles that could not be created.

    Raises:
        SchemaError: Another version is installed, or the database can not hold the schema.
        DatabaseError: The database refused.
    """
    with connect_sync(dsn) as connection:
        return _run(connection, script(root))


def upgrade(dsn: str, *, root: Path | None = None) -> list[str]:
    """
    Bring an installed schema to this library's version, in one transaction.

    Waits up to 10 seconds for each lock on a table, then gives up with nothing changed.

    Args:
        dsn: The database, connected to as the owner of the schema.
        root: Another folder of SQL files than :func:`sql_root`.

    Returns:
        What the database remarked.

    Raises:
        SchemaError: Nothing is installed, or a newer version is.
        DatabaseError: The database refused, or a lock could not be had in time.
    """
    with connect_sync(dsn) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('slice-projections'), hashtext('schema'))")
        version = _version(connection)
        if version is None:
            raise SchemaError(_NOT_INSTALLED)
        connection.execute(_LOCK_TIMEOUT)
        connection.execute(_SEARCH_PATH)
        return _run(connection, _upgrade_script(root or sql_root(), version))


def _upgrade_script(root: Path, version: int) -> str:
    """The migrations after a version, then all that is made as new each time: everything except tables."""
    record = "INSERT INTO projections.schema_versions (version) VALUES ({});\n"
    pending = [
        f"-- {path.name}\n{_read(path)}\n{record.format(number)}"
        for number, path in _migrations(root).items()
        if number > version
    ]
    renewed = [name for name in _included(root) if not name.startswith("tables/")]
    return "\n".join([*pending, _join(root, renewed)])


def contents(dsn: str) -> Contents:
    """
    What :func:`uninstall` would drop.

    Raises:
        SchemaError: The schema is not installed.
        DatabaseError: The database refused.
    """
    with connect_sync(dsn) as connection:
        if _value(connection, "SELECT to_regnamespace('projections')") is None:
            raise SchemaError(_NOT_INSTALLED)
        found = connection.execute((sql_root() / "contents.sql").read_bytes()).fetchall()
        return Contents(
            rows={
                name: _value(connection, f"SELECT count(*) FROM {quote('projections', name)}")
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
    with connect_sync(dsn) as connection:
        connection.execute(_LOCK_TIMEOUT)
        connection.execute("DROP SCHEMA IF EXISTS projections CASCADE")
        connection.execute("DROP SCHEMA IF EXISTS projections_conditions CASCADE")


def installed_version(dsn: str) -> int | None:
    """The version of the schema in a database, None where it is not installed."""
    with connect_sync(dsn) as connection:
        return _version(connection)


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
        raise SchemaError(_NOT_INSTALLED)
    compare_version(found)


def compare_version(found: int) -> None:
    """
    Refuse another version than this library's.

    Raises:
        OtherSchemaVersion: The message says what to run.
    """
    if found != SCHEMA_VERSION:
        raise OtherSchemaVersion(_other_version(found, SCHEMA_VERSION))


def _other_version(found: int, wanted: int) -> str:
    if found > wanted:
        relation, remedy = "newer", "upgrade the library"
    else:
        relation, remedy = "older", "run `projections schema upgrade`"
    return f"this database has schema version {found}, {relation} than this library's {wanted}: {remedy}"


def _run(connection: SyncConnection, text: str) -> list[str]:
    """Run many statements; returns the remarks of our own files, not PostgreSQL's "already exists"."""
    remarks: list[str] = []

    def note(diagnostic: Diagnostic) -> None:
        if diagnostic.sqlstate == "00000" and diagnostic.message_primary:
            remarks.append(diagnostic.message_primary)

    connection.add_notice_handler(note)
    connection.execute(_PSQL_LINE.sub("", text).encode())
    return remarks


def _version(connection: SyncConnection) -> int | None:
    if _value(connection, "SELECT to_regclass('projections.schema_versions')") is None:
        return None
    return _value(connection, "SELECT max(version) FROM projections.schema_versions")  # type: ignore[no-any-return]


def _value(connection: SyncConnection, query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    return row[0] if row else None


def verify(dsn: str, *, root: Path | None = None) -> list[str]:
    """
    Compare a database's schema with this library's, thing by thing.

    The library's is built beside it, under another name, in a transaction that is rolled back: nothing changes, and
    no writer waits. Where that cannot be, on a standby or as another role than the schema's owner, it is built on an
    embedded server, which is started for it and removed.

    Args:
        dsn: The database.
        root: Another folder of SQL files than :func:`sql_root`.

    Returns:
        A line for each difference; empty when there is none.

    Raises:
        MissingPrivilege: It cannot be built there, and there is no PostgreSQL on this machine either.
        DatabaseError: The database refused.
    """
    folder = root or sql_root()
    with connect_sync(dsn) as connection:
        version, latest = _version(connection), max(_migrations(folder))
        if version is None:
            return [_NOT_INSTALLED]
        if version != latest:
            return [_other_version(version, latest)]
        expected = (
            _build(connection, folder)
            if _value(connection, _MAY_BUILD)
            else _build_elsewhere(connection, folder)
        )
        return compare(read_catalogue(connection, folder), expected)


def _build(connection: SyncConnection, root: Path) -> Catalogue:
    """The catalogue of a fresh install, made under another name and rolled back."""
    name = f"projections_verify_{secrets.token_hex(4)}"
    names = [path for path in _included(root) if path == "schema.sql" or "/" in path]
    with connection.transaction(force_rollback=True):
        _run(connection, _NAME.sub(name, _join(root, names)))
        _run(connection, _NAME.sub(name, _MODELS))
        return read_catalogue(connection, root, schema=name)


def _build_elsewhere(connection: SyncConnection, root: Path) -> Catalogue:
    """The same on a server of our own, with those of the schema's roles that the database's server has."""
    roles = [name for (name,) in connection.execute(_ROLES).fetchall()]
    try:
        with temporary_server() as dsn, connect_sync(dsn) as other:
            for role in roles:
                other.execute(f"CREATE ROLE {quote(role)}".encode())
            return _build(other, root)
    except EmbeddedServerError as error:
        raise MissingPrivilege(
            "verify builds the schema once more, to compare with: as its owner in this database, which is no standby "
            f"then, or on an embedded server. Neither is possible: {error}"
        ) from error
