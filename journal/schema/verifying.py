"""Compares the schema of a database with what would be installed."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from journal.database.identifiers import quote
from journal.database.sync import SyncConnection, connect_sync
from journal.embedded import EmbeddedServerError, temporary_server
from journal.errors import MissingPrivilege
from journal.schema.catalogue import Catalogue, read_catalogue
from journal.schema.installing import included, join, run
from journal.schema.version import NOT_INSTALLED, migrations, other_version, value, version_of
from journal.sql_files import sql_root

_SHORT = 160
"""Characters up to which a difference shows both definitions."""

# Where the schema's name is one, and not a word: before a dot, after SCHEMA, or a literal of its own.
_NAME = re.compile(
    r"\bprojections(?=(_conditions)?\.)"
    r"|(?<=SCHEMA )projections(?=(_conditions)?\b)"
    r"|(?<=')projections(?=(_conditions)?')"
)

# Alongside the schema, as it was installed: only the owner can give the same rights to the same roles.
_MAY_BUILD = """
SELECT NOT pg_is_in_recovery() AND has_database_privilege(current_database(), 'CREATE')
AND pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'projections'), 'USAGE')
"""
# Conditions of each kind, where the server has the role that they need.
_MODELS = """
SELECT projections._condition_id_v1(c.condition) FROM unnest(ARRAY['TRUE', 'e.seq_nr > 0']) AS c (condition)
WHERE (SELECT p.proowner FROM pg_proc AS p WHERE p.oid = 'projections._compile_condition_v1'::regproc)
    = to_regrole('projections_matcher')
"""
_UNSEEN = """
SELECT t.schema_name, t.table_name, u.problem
FROM projections.captured_tables AS t CROSS JOIN LATERAL unnest(t.problems) AS u (problem)
ORDER BY t.schema_name, t.table_name, u.problem
"""
_ROLES = b"SELECT rolname FROM pg_roles WHERE rolname ~ '^projections_(reader|writer|worker|matcher)$'"


def verify(dsn: str, *, root: Path | None = None) -> list[str]:
    """
    Compare a database's schema with this library's, thing by thing.

    The library's is built alongside it, under another name, in a transaction that is rolled back: nothing changes, and
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
        version, latest = version_of(connection), max(migrations(folder))
        if version is None:
            return [NOT_INSTALLED]
        if version != latest:
            return [other_version(version, latest)]
        expected = (
            build(connection, folder)
            if value(connection, _MAY_BUILD)
            else _build_elsewhere(connection, folder)
        )
        return compare(read_catalogue(connection, folder), expected) + _unseen(connection)


def _unseen(connection: SyncConnection) -> list[str]:
    """Triggers of captured tables are not in the schema, and part of what it does."""
    rows = connection.execute(_UNSEEN).fetchall()
    return [f"captured table {schema}.{table}: {problem}" for schema, table, problem in rows]


def build(connection: SyncConnection, root: Path) -> Catalogue:
    """The catalogue of a fresh install, made under another name and rolled back."""
    name = f"projections_verify_{secrets.token_hex(4)}"
    names = [path for path in included(root) if path == "schema.sql" or "/" in path]
    with connection.transaction(force_rollback=True):
        run(connection, _NAME.sub(name, join(root, names)))
        run(connection, _NAME.sub(name, _MODELS))
        return read_catalogue(connection, root, schema=name)


def _build_elsewhere(connection: SyncConnection, root: Path) -> Catalogue:
    """The same on a server of our own, with those of the schema's roles that the database's server has."""
    roles = [name for (name,) in connection.execute(_ROLES).fetchall()]
    try:
        with temporary_server() as dsn, connect_sync(dsn) as other:
            for role in roles:
                other.execute(f"CREATE ROLE {quote(role)}".encode())
            return build(other, root)
    except EmbeddedServerError as error:
        raise MissingPrivilege(
            "verify builds the schema a second time, to compare with: as its owner in this database, if it is not a "
            f"standby, or on an embedded server. Neither is possible: {error}"
        ) from error


def compare(found: Catalogue, expected: Catalogue) -> list[str]:
    """A line for each thing that is missing, unexpected or different, in the order of their names."""
    lines = _differences(found.things, expected.things)
    for (model, member), things in sorted(found.members.items()):
        against = (_differences(things, one, f" of {member}") for one in expected.models.get(model) or [{}])
        nearest: list[str] = min(against, key=len)
        lines += nearest
    return lines


def _differences(found: Mapping[str, str], expected: Mapping[str, str], suffix: str = "") -> list[str]:
    return [
        _difference(name + suffix, found.get(name), expected.get(name))
        for name in sorted({*found, *expected})
        if found.get(name) != expected.get(name)
    ]


def _difference(name: str, found: str | None, expected: str | None) -> str:
    if found is None:
        return f"missing: {name}"
    if expected is None:
        return f"unexpected: {name}"
    if max(len(found), len(expected)) > _SHORT:
        return f"different: {name}"
    return f"different: {name} is {found!r}, should be {expected!r}"
