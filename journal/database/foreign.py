"""Running one query on a connection of the caller: asyncpg, psycopg or SQLAlchemy, async or not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from journal.database.foreign_settings import Rows, Statements, statements_of
from journal.database.translation import translated

_PLACEHOLDER = re.compile(r"\$(\d+)")


def _kind(connection: Any) -> str:
    """``module.Class`` of the first known base: SQLAlchemy's session types are often subclassed."""
    for base in type(connection).__mro__:
        if (package := base.__module__.partition(".")[0]) in {"asyncpg", "psycopg", "sqlalchemy", "journal"}:
            return f"{package}.{base.__name__}"
    return f"{type(connection).__module__}.{type(connection).__name__}"


def _unknown(connection: Any, wanted: str) -> TypeError:
    return TypeError(f"{_kind(connection)} is not a supported connection: pass {wanted}")


async def fetch_on(connection: Any, sql: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
    """
    Rows of a query with ``$1`` placeholders on the caller's asynchronous connection.

    Raises:
        TypeError: The connection is of no known kind.
        journal.ProjectionsError: The database refused.
    """
    kind = _kind(connection)
    with translated(Exception):
        if kind.startswith(("asyncpg.", "journal.")) and hasattr(connection, "fetch"):
            return [tuple(row.values()) for row in await connection.fetch(sql, *args)]
        if kind == "psycopg.AsyncConnection":
            return await _run(connection, statements_of(connection, sql, args))
        if kind in {"sqlalchemy.AsyncConnection", "sqlalchemy.AsyncSession"}:
            return _tuples(await connection.execute(*_as_text(sql, args)))
    raise _unknown(
        connection,
        "a Session, asyncpg's, psycopg's or SQLAlchemy's asynchronous connection; for a synchronous "
        "one there is the same function with the ending _sync",
    )


def fetch_on_sync(connection: Any, sql: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows of a query on the caller's synchronous connection; see :func:`fetch_on`."""
    kind = _kind(connection)
    with translated(Exception):
        if kind == "psycopg.Connection":
            return _run_sync(connection, statements_of(connection, sql, args))
        if kind in {"sqlalchemy.Connection", "sqlalchemy.Session"}:
            return _tuples(connection.execute(*_as_text(sql, args)))
    raise _unknown(
        connection,
        "psycopg's or SQLAlchemy's synchronous connection; for an asynchronous one there is the same "
        "function without the ending _sync",
    )


async def _run(connection: Any, statements: Statements) -> Rows:
    import psycopg  # noqa: PLC0415 - one of several drivers
    from psycopg.rows import tuple_row  # noqa: PLC0415 - the connection may make other rows

    try:
        sql, args = next(statements)
        while True:
            cursor = psycopg.AsyncRawCursor(connection, row_factory=tuple_row)
            try:
                rows = await (await cursor.execute(sql.encode(), args or None)).fetchall()
            except psycopg.Error as error:
                sql, args = statements.throw(error)
            else:
                sql, args = statements.send(rows)
    except StopIteration as ended:
        return list(ended.value)


def _run_sync(connection: Any, statements: Statements) -> Rows:
    import psycopg  # noqa: PLC0415 - one of several drivers
    from psycopg.rows import tuple_row  # noqa: PLC0415 - the connection may make other rows

    try:
        sql, args = next(statements)
        while True:
            cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
            try:
                rows = cursor.execute(sql.encode(), args or None).fetchall()
            except psycopg.Error as error:
                sql, args = statements.throw(error)
            else:
                sql, args = statements.send(rows)
    except StopIteration as ended:
        return list(ended.value)


def _as_text(sql: str, args: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    import sqlalchemy  # noqa: PLC0415 - the caller has it, others need not

    statement = sqlalchemy.text(_PLACEHOLDER.sub(r":p\1", sql))
    return statement, {f"p{number}": value for number, value in enumerate(args, 1)}


def _tuples(rows: Iterable[Any]) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows]
