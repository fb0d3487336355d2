"""
Errors of running projections.

    ProjectionsError
    ├── InvalidHandler      a projection class is not declared as it must be
    ├── PoolTooSmall        too few connections to run projections with
    ├── UnknownGroup        there is no such group of consumers
    ├── HandlerFailed       a handler raised; names the event
    └── ProjectionFailed    recovery gave up; the range restarts from its stored offset
"""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from types import TracebackType

from journal import EventEnvelope, ProjectionsError, hide_password
from journal.database import chain, sqlstate_of

_CALLS_HANDLERS = {str(Path(__file__).parent / "running" / "dispatch.py"), asyncio.timeouts.__file__}
"""Files whose lines come before those of a handler in a traceback."""


class InvalidHandler(ProjectionsError, TypeError):
    """A projection class, or a method of it, is not declared as it must be."""


class PoolTooSmall(ProjectionsError, ValueError):
    """Projections cannot run with so few connections; the message says how many they need."""


class UnknownGroup(ProjectionsError):
    """There is no such group: subscribe for it, or create it first."""


class HandlerFailed(ProjectionsError):
    """
    A handler could not handle an event, or a batch could not be written.

    Args:
        message: What went wrong.
        index: Which event of the batch; None when only the batch as a whole is known to fail.
    """

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class ProjectionFailed(ProjectionsError):
    """An event could not be handled and its recovery says to stop: nothing after it was handled."""


def describe(envelope: EventEnvelope) -> str:
    """An event, for messages."""
    return f"event {envelope.event_type!r} of source {envelope.source_id!r}, seq_nr {envelope.seq_nr}"


_LENGTH = 2000


def said(error: BaseException) -> str:
    """What is logged and stored of an error: never nothing, as MemoryError and TimeoutError say by themselves."""
    return storable(str(error) or repr(error), _LENGTH)


def storable(text: str, most: int) -> str:
    """What PostgreSQL can store of a text, at most so many characters."""
    return text[:most].replace("\0", "").encode(errors="replace").decode()


def trace_of(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """What a handler raised, for a log record (``exc_info``): its traceback begins with the handler."""
    for cause in chain(error):
        if isinstance(cause.__context__, HandlerFailed):
            cause.__context__ = None  # an earlier attempt, which tells of itself
    return type(error), error, _from_handler(error)


def traceback_of(error: BaseException, most: int = 8000) -> str:
    """The lines of :func:`trace_of`, for storing; of a longer one the end, at most so many characters."""
    text = hide_password("".join(traceback.format_exception(*trace_of(error))))
    return storable(text if len(text) <= most else f"...{text[3 - most :]}", most)


def kind_of(error: BaseException) -> str:
    """Type, SQLSTATE and line of the handler: errors of one kind are alike, whatever values they name."""
    for cause in chain(error):
        found = _from_handler(cause)
        if found is not None and found.tb_frame.f_code.co_filename not in _CALLS_HANDLERS:
            line = f" at {Path(found.tb_frame.f_code.co_filename).name}:{found.tb_lineno}"
            break
    else:
        line = ""
    state = sqlstate_of(error)
    return f"{type(error).__name__}{f' {state}' if state else ''}{line}"


def _from_handler(error: BaseException) -> TracebackType | None:
    found = error.__traceback__
    while (
        found is not None
        and found.tb_next is not None
        and found.tb_frame.f_code.co_filename in _CALLS_HANDLERS
    ):
        found = found.tb_next
    return found
