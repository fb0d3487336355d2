"""
Settings of a caller's own psycopg connection that change what texts, arrays and times mean on their way.

They are the role's or the caller's, and stay so: where one is in the way, it is another for the length of a statement.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

__all__ = ["Rows", "Statements", "statements_of"]

Rows: TypeAlias = list[tuple[Any, ...]]
Statements: TypeAlias = Generator[tuple[str, Sequence[Any]], Rows, Rows]

_NULLS = "SHOW array_nulls"
_CHANGE = """
SELECT current_setting(s.name), set_config(s.name, s.value, $1)
FROM (VALUES (1, 'client_encoding', 'UTF8'), (2, 'datestyle', 'ISO'), (3, 'array_nulls', 'on')) AS s (n, name, value)
ORDER BY s.n
"""
_CHANGE_BACK = """
SELECT set_config('client_encoding', $1, $4), set_config('datestyle', $2, $4), set_config('array_nulls', $3, $4)
"""

_reads_nulls: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
"""Of each connection: unlike the other settings, the server does not report this one by itself."""


def statements_of(connection: Any, sql: str, args: Sequence[Any]) -> Statements:
    """What is to be run for a statement, one after the other; each is answered with its rows, or its error."""
    from psycopg.pq import TransactionStatus  # noqa: PLC0415 - one of several drivers

    if connection not in _reads_nulls:
        ((nulls,),) = yield _NULLS, ()
        _reads_nulls[connection] = nulls == "on"
    if _reads_nulls[connection] and _as_reported(connection):
        return (yield sql, args)
    alone = connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
    before = [row[0] for row in (yield _CHANGE, [not alone])]
    try:
        rows = yield sql, args
    except Exception:
        if alone:  # else they go with what the transaction has done
            yield _CHANGE_BACK, [*before, False]
        raise
    yield _CHANGE_BACK, [*before, not alone]
    return rows


def _as_reported(connection: Any) -> bool:
    status = connection.pgconn.parameter_status
    return status(b"client_encoding") == b"UTF8" and (status(b"DateStyle") or b"").startswith(b"ISO")
