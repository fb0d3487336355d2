"""A plain synchronous connection, for the command line and the schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg

from journal.database.error_translation import translated
from journal.errors import DatabaseUnavailable

SyncConnection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Diagnostic: TypeAlias = psycopg.errors.Diagnostic

_CONNECT_TIMEOUT_SECONDS = 10


@contextmanager
def connect_sync(dsn: str, *, application_name: str = "slice-projections") -> Iterator[SyncConnection]:
    """
    Connect for the length of the block, which is one transaction: it commits at the end.

    Args:
        dsn: A PostgreSQL URL or a libpq keyword string.
        application_name: Shown in ``pg_stat_activity``.

    Raises:
        DatabaseError: Also for what psycopg raises inside the block; see :func:`journal.database.translate`.
    """
    with translated(psycopg.Error, OSError), _open(dsn, application_name) as connection:
        yield connection


def _open(dsn: str, application_name: str) -> SyncConnection:
    try:
        connection = psycopg.connect(
            dsn,
            connect_timeout=_CONNECT_TIMEOUT_SECONDS,
            application_name=application_name,
            client_encoding="UTF8",  # whatever the role's is
            prepare_threshold=None,  # a pooler would lend the session that has it to somebody else
        )
    except psycopg.ProgrammingError:
        # The parser's message may quote the password, so it is not kept as the cause either.
        raise DatabaseUnavailable("no connection to the database: the DSN cannot be read") from None
    try:
        if connection.pgconn.parameter_status(b"standard_conforming_strings") != b"on":
            # By itself: statements that are sent together are taken apart before the first of them runs.
            connection.autocommit = True
            connection.execute("SET standard_conforming_strings = on")
            connection.autocommit = False
        # What another connection has committed meanwhile must be seen, whatever the database's default is.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    except BaseException:
        connection.close()
        raise
    return connection
