"""
Whose fault an error is that came up while events were handled.

What a statement of the range's own session was refused with is judged by the table of faults. Whatever else a handler
raises is its event's, such as an error of another database, even where the code or the class is one of the table.
"""

from __future__ import annotations

import asyncio
from typing import Any

from journal import OutOfMemory, OwnedSession, ProjectionsError
from journal.database import Doubt, Fault, chain, fault_of, is_conflict, is_of_the_server, sqlstate_of

_LATER = {Fault.BATCH, Fault.DATABASE}


async def blame(session: Any, error: BaseException) -> Fault:
    """
    Whose fault an error is.

    Args:
        session: Of the batch, or of whoever appends, also after it is rolled back; what is queued on it is dropped.
        error: The error.
    """
    fault = fault_of(error)
    if fault is Fault.EVENT or lacks_memory(error) or _is_hidden(session, fault, error):
        return fault
    if not await _is_of(session, error):
        return Fault.EVENT
    if fault is not Fault.DATABASE or _is_doubted(session):
        return fault
    code = sqlstate_of(error)
    if (code is not None and is_of_the_server(code)) or await session.is_sound() is None:
        return fault
    # The connection lives, so this is not about it: a foreign table, another server that a function asks, a code that
    # somebody chose, a call of the driver that it refuses.
    return Fault.EVENT if code is None else Fault.PROJECTION


async def blame_beside(session: Any, error: BaseException) -> Fault:
    """
    Whose fault an error is of a handler that has no session of ours, but may use others of a session's pool.

    Args:
        session: Of the pool, outside of a transaction.
        error: The error.
    """
    fault, code = fault_of(error), sqlstate_of(error)
    if fault is Fault.EVENT or lacks_memory(error):
        return fault
    if not _names(session, error):
        return Fault.EVENT
    if fault is not Fault.DATABASE or code is None or is_of_the_server(code):
        return fault
    return Fault.PROJECTION if await session.is_sound() else fault


def _is_hidden(session: Any, fault: Fault, error: BaseException) -> bool:
    """Whether a conflict may be of the session, and hidden by a savepoint of the driver: it may pass at once."""
    return fault is Fault.BATCH and bool(session.lends) and is_conflict(error)


def _is_doubted(session: Any) -> bool:
    """Whether the connection is at fault, and goes when the transaction ends."""
    return getattr(session, "doubt", Doubt.NONE) is Doubt.NOW


async def before_it(session: OwnedSession, error: BaseException) -> ProjectionsError | None:
    """What has ended the transaction that a handler went on in, where that is no event's fault, nor the error."""
    ended = session.failure if session.in_transaction or session.lost else None
    if ended is None or ended is error or fault_of(ended) not in _LATER:
        return None
    return ended if await blame(session, ended) in _LATER else None


def comes_from_outside(error: BaseException) -> bool:
    """Whether an error ends the run, and is not one that a handler has raised or brought along."""
    if isinstance(error, KeyboardInterrupt):
        return True
    if isinstance(error, Exception | SystemExit):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True  # the loop has ended, and what was waiting in it is closed
    if isinstance(error, GeneratorExit):
        return task is None
    return task is not None and task.cancelling() > 0


async def _is_of(session: Any, error: BaseException) -> bool:
    """Whether an error is of a session, or of another of its pool; of a driver's own, by what it has left."""
    if _names(session, error):
        return True
    if not session.lends or any(isinstance(cause, ProjectionsError) for cause in chain(error)):
        return False
    return not session.in_transaction or not await session.is_sound()


def _names(session: Any, error: BaseException) -> bool:
    """Whether an error says that it is of a session, or of another of its pool."""
    return any(
        isinstance(cause, ProjectionsError) and cause.origin is session.origin for cause in chain(error)
    )


def lacks_memory(error: BaseException) -> bool:
    """Whether this process lacks memory, whoever has noticed."""
    return sqlstate_of(error) is None and any(isinstance(c, MemoryError | OutOfMemory) for c in chain(error))
