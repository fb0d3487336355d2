"""One place where an error of any driver becomes an error of this library."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from journal.errors import (
    AppendConflict,
    DatabaseError,
    DatabaseUnavailable,
    EventIdConflict,
    InvalidEvent,
    MissingPrivilege,
    ProjectionsError,
    ReadOnlyDatabase,
    SchemaError,
)

# Raised by the functions in sql/ with RAISE ... USING ERRCODE; sql/README.md lists them.
_CONFLICT, _EVENT_ID_CONFLICT, _INVALID_EVENT = "PJ001", "PJ002", "PJ003"

_MISSING_OBJECT = {"3F000", "42P01", "42883"}  # schema, table, function
_UNAVAILABLE = {"57P01", "57P02", "57P03", "57P05", "53300", "25P03"}
_PASSWORD = re.compile(r"(://[^:/@\s]*:)\S*@|(password\s*=\s*)('[^']*'|\S+)", re.IGNORECASE)



def hide_password(text: str) -> str:
    """Replace the password in a DSN, or in a message that quotes one, by ``***``."""
    return _PASSWORD.sub(lambda m: f"{m[1]}***@" if m[1] else f"{m[2]}***", text)


def _chain(error: BaseException) -> Iterator[Any]:
    """The error and what it wraps: SQLAlchemy keeps the driver's error in ``orig`` or ``__cause__``."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = getattr(current, "orig", None) or current.__cause__


def translate(error: BaseException) -> ProjectionsError:
    """
    The error of this library that says what a driver's error means.

    Args:
        error: An error of asyncpg, psycopg or SQLAlchemy, or an OSError from connecting.
    """
    for cause in _chain(error):
        if isinstance(sqlstate := getattr(cause, "sqlstate", None), str):
            diagnostics = getattr(cause, "diag", None)
            message = getattr(diagnostics, "message_primary", None) or str(cause).split("\n", 1)[0]
            detail = getattr(diagnostics, "message_detail", None) or getattr(cause, "detail", None)
            return _from_sqlstate(sqlstate, hide_password(str(message)), detail)
    reason = hide_password(str(error)).strip() or type(error).__name__
    return DatabaseUnavailable(f"no connection to the database: {reason}")


def _from_sqlstate(sqlstate: str, message: str, detail: str | None) -> ProjectionsError:
    if sqlstate == _CONFLICT and detail:
        return AppendConflict(**json.loads(detail))
    if sqlstate == _EVENT_ID_CONFLICT:
        return EventIdConflict(message)
    if sqlstate == _INVALID_EVENT:
        return InvalidEvent(message)
    if sqlstate in _MISSING_OBJECT and "projections" in message:
        return SchemaError(f"{message}: run `projections schema install`, or `schema upgrade`, on this database")
    if sqlstate == "25006":
        return ReadOnlyDatabase(f"the database takes no writes: {message}", sqlstate=sqlstate)
    if sqlstate == "42501":
        return MissingPrivilege(
            f"{message}: grant the role projections_writer, projections_worker or projections_reader", sqlstate=sqlstate
        )
    if sqlstate in _UNAVAILABLE or sqlstate.startswith(("08", "28")) or sqlstate == "3D000":
        return DatabaseUnavailable(f"no connection to the database: {message}", sqlstate=sqlstate)
    return DatabaseError(message, sqlstate=sqlstate)


@contextmanager
def translated(*kinds: type[BaseException]) -> Iterator[None]:
    """Raise errors of ``kinds`` as errors of this library, with the original as ``__cause__``."""
    try:
        yield
    except ProjectionsError:
        raise
    except kinds as error:
        raise translate(error) from error
