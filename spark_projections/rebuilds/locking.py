"""Statements that need a table for themselves: they wait for a moment, give up, and tell who has it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from journal import DatabaseError, OwnedSession, Row
from spark_projections.rebuilds.bookkeeping import transaction

__all__ = ["PAUSE", "named", "try_with_lock"]

PAUSE = 1.0
"""Seconds between two attempts."""

_LOCK_TIMEOUT = "500ms"
"""How long to wait for who uses the tables: others wait behind. Below the server's deadlock_timeout (1 s)."""
_SILENCE = "10s"
"""How long the server keeps the locks for a client that says nothing: one that is frozen, or whose host is gone."""
_IN_USE = {"55P03", "40P01"}
_MILLISECOND = timedelta(milliseconds=1)


async def try_with_lock(
    session: OwnedSession, statement: str, *args: Any, limit: timedelta = timedelta(0)
) -> DatabaseError | None:
    """
    Run a statement in a transaction of its own; returns why not when somebody is in its way.

    Args:
        session: Outside a transaction.
        statement: What needs the lock.
        args: Its arguments.
        limit: Undo it when it takes longer (SQLSTATE 57014), for others wait; zero for no limit.

    Raises:
        DatabaseError: The database refused for another reason, or was lost.
    """
    try:
        async with transaction(session):
            await session.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            await session.execute(f"SET LOCAL statement_timeout = '{int(limit / _MILLISECOND)}ms'")
            await session.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{_SILENCE}'")
            await session.execute(statement, *args)
    except DatabaseError as error:
        if error.sqlstate not in _IN_USE:
            raise
        return error
    return None


def named(users: Iterable[Row]) -> str:
    """Who uses the tables, for messages: rows of pid, application_name, state and age."""
    return "; ".join(map(_named, users)) or "by somebody who has gone meanwhile"


def _named(user: Row) -> str:
    if not user["pid"]:
        return "a prepared transaction"
    return (
        f"process {user['pid']} ({user['application_name'] or 'unnamed'}, {user['state']}) for {user['age']}"
    )
