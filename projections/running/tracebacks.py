"""Tracebacks of failed handlers, which begin with the handler, and what errors of one kind have in common."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from journal import hide_password
from journal.database import chain, sqlstate_of
from projections.errors import HandlerFailed, name_of, storable

_Trace: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None]

_CALLS_HANDLERS = {str(Path(__file__).with_name("dispatch.py")), asyncio.timeouts.__file__}
"""Files whose lines come before those of a handler in a traceback."""


def trace_of(error: BaseException) -> _Trace:
    """What a handler raised, for a log record (``exc_info``): its traceback begins with the handler."""
    for cause in chain(error):
        if isinstance(cause.__context__, HandlerFailed):
            cause.__context__ = None  # an earlier attempt, which tells of itself
    return type(error), error, _from_handler(error)


def traceback_of(error: BaseException, most: int = 8000) -> str:
    """The lines of :func:`trace_of`, for storing; of a longer one the end, at most ``most`` characters."""
    text = _formatted(error) or f"{name_of(error)}: its traceback cannot be shown"
    return storable(text if len(text) <= most else f"...{text[3 - most :]}", most)


def shown_trace(error: BaseException) -> _Trace | None:
    """As :func:`trace_of`; None where it cannot be shown, which a handler of the log would fail with."""
    return None if _formatted(error) is None else trace_of(error)


def _formatted(error: BaseException) -> str | None:
    try:
        return hide_password("".join(traceback.format_exception(*trace_of(error))))
    except Exception:  # noqa: BLE001 - groups in groups without an end, a module that cannot be read again
        return None


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
    return f"{name_of(error)}{f' {state}' if state else ''}{line}"


def _from_handler(error: BaseException) -> TracebackType | None:
    found = error.__traceback__
    while (
        found is not None
        and found.tb_next is not None
        and found.tb_frame.f_code.co_filename in _CALLS_HANDLERS
    ):
        found = found.tb_next
    return found
