"""One place where an error of any driver becomes an error of this library."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from journal.database.faults import chain
from journal.dsn import hide_password
from journal.errors import (
    AppendConflict,
    DatabaseError,
    DatabaseUnavailable,
    EventIdConflict,
    InvalidEvent,
    MissingPrivilege,
    OutOfMemory,
    OutOfResources,
    ProjectionsError,
    ReadOnlyDatabase,
    SchemaError,
)
from journal.sql_files import object_names

# Raised by the functions in sql/ with RAISE ... USING ERRCODE; sql/README.md lists them.
_CONFLICT = "PJ001"
_OWN: dict[str, type[ProjectionsError]] = {
    "PJ002": EventIdConflict,
    "PJ003": InvalidEvent,
    "PJ030": SchemaError,
}

_MISSING_OBJECT = {"3F000", "42P01", "42883"}  # schema, table, function
_OF_THE_CLIENT = {
    "DataError",
    "ProgrammingError",
    "NotSupportedError",
}  # refused by the driver, nothing was sent
_UNAVAILABLE = {"57P01", "57P02", "57P03", "57P05", "53300", "25P03"}
_NO_MEMORY = "this process has no memory left for what the database sends"
_NO_PRIVILEGE = "42501"
_WORD = re.compile(r"\w+")
_FUNCTION = re.compile(r"\w+_v\d+")


def translate(error: BaseException) -> ProjectionsError:
    """
    The error of this library that says what a driver's error means.

    Args:
        error: An error of asyncpg, psycopg or SQLAlchemy, or an OSError from connecting.
    """
    if any(
        isinstance(cause, MemoryError) for cause in chain(error)
    ):  # asyncpg says that the connection is lost
        return _no_memory()
    for cause in chain(error):
        if isinstance(sqlstate := getattr(cause, "sqlstate", None), str):
            diagnostics = getattr(cause, "diag", None)
            message = getattr(diagnostics, "message_primary", None) or str(cause).split("\n", 1)[0]
            detail = getattr(diagnostics, "message_detail", None) or getattr(cause, "detail", None)
            failure = _from_sqlstate(sqlstate, hide_password(str(message)), detail)
            if isinstance(failure, DatabaseError):
                failure.context = getattr(diagnostics or cause, "context", None) or ""
            return failure
    reason = hide_password(str(error)).strip() or type(error).__name__
    if "out of memory" in reason:  # libpq, without a code
        return _no_memory()
    if isinstance(error, ValueError | TypeError) or type(error).__name__ in _OF_THE_CLIENT:
        return DatabaseError(reason)
    return DatabaseUnavailable(f"no connection to the database: {reason}")


def _from_sqlstate(sqlstate: str, message: str, detail: str | None) -> ProjectionsError:
    if sqlstate == _CONFLICT and detail:
        return AppendConflict(**json.loads(detail))
    if kind := _OWN.get(sqlstate):
        return kind(message)
    if sqlstate in _MISSING_OBJECT and "projections" in message:
        return SchemaError(
            f"{message}: run `projections schema install`, or `schema upgrade`, on this database"
        )
    if sqlstate == _NO_PRIVILEGE:
        return MissingPrivilege(f"{message}: {_grant(message)}", sqlstate=sqlstate)
    kind, text = _kind_of(sqlstate)
    return kind(text.format(message), sqlstate=sqlstate)


def _grant(message: str) -> str:
    """Who is to grant what: what is the library's by its roles, what is the application's as it likes."""
    role = (
        "grant the role projections_writer, _worker or _reader; what changes tables is for the schema's owner"
    )
    own = "grant it to the role that connects"
    words = set(_WORD.findall(message))
    if "projections" in words or any(_FUNCTION.fullmatch(word) for word in words & object_names()):
        return role
    if words & object_names():  # a table of the application may have the same name
        return f"{own}, or, of the schema projections, {role}"
    return own


def _no_memory() -> OutOfMemory:
    """
    That this process lacks memory, after what it no longer needs was freed.

    A lost connection and its half-read answer hold each other: much memory in few objects, and Python looks for such
    cycles only after many new objects, which a process without memory does not make. All its connections would fail
    to read even a small answer, forever.
    """
    gc.collect()
    return OutOfMemory(_NO_MEMORY)


def _kind_of(sqlstate: str) -> tuple[type[DatabaseError], str]:
    """The kind of error that a code of PostgreSQL is, and how to say it."""
    if sqlstate == "25006":
        return (
            ReadOnlyDatabase,
            "the database takes no writes: {}. Connect to the primary (target_session_attrs=read-write finds it)",
        )
    if sqlstate in _UNAVAILABLE or sqlstate.startswith(("08", "28")):
        return DatabaseUnavailable, "no connection to the database: {}"
    if sqlstate == "53200":
        return OutOfMemory, "the database server has no memory left: {}"
    if sqlstate.startswith(("53", "58")):
        return OutOfResources, "the database server cannot go on: {}"
    return DatabaseError, "{}"


@contextmanager
def raised_as(kinds: Mapping[str, Callable[[str], ProjectionsError]]) -> Iterator[None]:
    """Raise what the database refused with a SQLSTATE of ``kinds`` as the error alongside it."""
    try:
        yield
    except DatabaseError as error:
        kind = kinds.get(error.sqlstate or "")
        if kind is None:
            raise
        raise kind(str(error)) from error.__cause__


@contextmanager
def translated(*kinds: type[BaseException], origin: object = None) -> Iterator[None]:
    """Raise errors of ``kinds`` as errors of this library, with the original as ``__cause__``, and of this origin."""
    try:
        yield
    except ProjectionsError:
        raise
    except kinds as error:
        failure = translate(error)
        failure.origin = origin
        raise failure from error
