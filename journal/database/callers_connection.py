"""
Running one query on a connection of the caller: asyncpg, psycopg or SQLAlchemy, async or not.

Settings of a psycopg connection change what texts, arrays and times mean on their way. They are the role's or the
caller's, and stay so: where one is in the way, it is another for the length of a statement.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from journal.database.error_translation import translated

_PLACEHOLDER = re.compile(r"\$(\d+)")

Rows: TypeAlias = list[tuple[Any, ...]]
Statements: TypeAlias = Generator[tuple[str, Sequence[Any]], Rows, Rows]

_NULLS = "SHOW array_nulls"
CHANGE = """
SELECT current_setting(s.name) AS before, set_config(s.name, s.value, $1)
FROM (VALUES (1, 'client_encoding', 'UTF8'), (2, 'datestyle', 'ISO'), (3, 'array_nulls', 'on')) AS s (n, name, value)
ORDER BY s.n
"""
"""Whether for this transaction is $1; returns what each setting was."""
CHANGE_BACK = """
SELECT set_config('client_encoding', $1, $4), set_config('datestyle', $2, $4), set_config('array_nulls', $3, $4)
"""
"""What each setting was, and whether for this transaction."""

_reads_nulls: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
"""Of each connection: unlike the other settings, the server does not report this one by itself."""


def kind_of(connection: Any) -> str:
    """``module.Class`` of the first known base: SQLAlchemy's session types are often subclassed."""
    for base in type(connection).__mro__:
        if (package := base.__module__.partition(".")[0]) in {"asyncpg", "psycopg", "sqlalchemy", "journal"}:
            return f"{package}.{base.__name__}"
    return f"{type(connection).__module__}.{type(connection).__name__}"


def unknown(connection: Any, wanted: str) -> TypeError:
    """The error that says what to pass instead."""
    return TypeError(f"{kind_of(connection)} is not a supported connection: pass {wanted}")


async def fetch_on(connection: Any, sql: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
    """
    Rows of a query with ``$1`` placeholders on the caller's asynchronous connection.

    Raises:
        TypeError: The connection is of no known kind.
        journal.ProjectionsError: The database refused.
    """
    kind = kind_of(connection)
    with translated(Exception):
        if kind.startswith(("asyncpg.", "journal.")) and hasattr(connection, "fetch"):
            return [tuple(row.values()) for row in await connection.fetch(sql, *args)]
        if kind == "psycopg.AsyncConnection":
            return await _run(connection, _statements_of(connection, sql, args))
        if kind in {"sqlalchemy.AsyncConnection", "sqlalchemy.AsyncSession"}:
            return _tuples(await connection.execute(*_as_text(sql, args)))
    raise unknown(
        connection,
        "a Session, asyncpg's, psycopg's or SQLAlchemy's asynchronous connection; for a synchronous "
        "one there is the same function with the ending _sync",
    )


def fetch_on_sync(connection: Any, sql: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows of a query on the caller's synchronous connection; see :func:`fetch_on`."""
    kind = kind_of(connection)
    with translated(Exception):
        if kind == "psycopg.Connection":
            return _run_sync(connection, _statements_of(connection, sql, args))
        if kind in {"sqlalchemy.Connection", "sqlalchemy.Session"}:
            return _tuples(connection.execute(*_as_text(sql, args)))
    raise unknown(
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


def _statements_of(connection: Any, sql: str, args: Sequence[Any]) -> Statements:
    """What is to be run for a statement, one after the other; each is answered with its rows, or its error."""
    from psycopg.pq import TransactionStatus  # noqa: PLC0415 - one of several drivers

    if connection not in _reads_nulls:
        ((nulls,),) = yield _NULLS, ()
        _reads_nulls[connection] = nulls == "on"
    if suits(connection):
        return (yield sql, args)
    alone = connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
    before = [row[0] for row in (yield CHANGE, [not alone])]
    try:
        rows = yield sql, args
    except Exception:
        if alone:  # else they go with what the transaction has done
            yield CHANGE_BACK, [*before, False]
        raise
    yield CHANGE_BACK, [*before, not alone]
    return rows


def suits(connection: Any) -> bool:
    """Whether the settings can stay as they are; of a psycopg connection on which a statement has been run here."""
    return _reads_nulls[connection] and _as_reported(connection)


def _as_reported(connection: Any) -> bool:
    status = connection.pgconn.parameter_status
    return status(b"client_encoding") == b"UTF8" and (status(b"DateStyle") or b"").startswith(b"ISO")
