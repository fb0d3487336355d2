"""
Whose fault an error of the database is: one table for all classes of SQLSTATE.

Whoever retries, sets aside or counts an item (an event, a failed batch, a delivery, a condition) asks here first. Only
what is an item's own fault counts against it; all else passes, or is to be fixed, and the item is handled then.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

from journal.errors import DatabaseUnavailable, OutOfMemory, SchemaError


class Fault(Enum):
    """Whose fault an error is; the value says what is to be done, for messages."""

    EVENT = "the event, or what the handler makes of it, is refused each time"
    """Its recovery decides: tried again, skipped, parked."""
    BATCH = "a transaction collided with another, took too long, or was cancelled: look for what holds it up"
    """The same may pass the next time, or in smaller parts."""
    PROJECTION = "the handler's SQL does not fit the database: fix its statements, its tables or its grants"
    """Every event fails alike until somebody fixes it."""
    DATABASE = "the database, or the way to it, is at fault"
    """Everything fails alike until it is back."""


CONFLICTS: Final = frozenset({"40001", "40P01", "55P03"})
"""Serialization failure, deadlock, lock_timeout: the same transaction may well pass at once."""

# By class: https://www.postgresql.org/docs/current/errcodes-appendix.html. What is not here is the event's fault: codes
# that a function of the user raises, class P0 (RAISE) among them.
_BY_CLASS: Final = {
    "00": Fault.EVENT,  # success, warnings and no data are not errors: somebody's RAISE chose the code
    "01": Fault.EVENT,
    "02": Fault.EVENT,
    "03": Fault.PROJECTION,  # statement not yet complete
    "08": Fault.DATABASE,  # connection
    "09": Fault.EVENT,  # triggered action: a trigger refuses the row
    "0A": Fault.PROJECTION,  # feature not supported
    "0B": Fault.PROJECTION,  # invalid transaction initiation
    "0F": Fault.PROJECTION,  # locator
    "0L": Fault.PROJECTION,  # invalid grantor
    "0P": Fault.PROJECTION,  # invalid role
    "0Z": Fault.PROJECTION,  # diagnostics: GET DIAGNOSTICS outside of a handler
    "10": Fault.EVENT,  # XQuery, over the event's data
    "20": Fault.EVENT,  # CASE without a branch for this value
    "21": Fault.EVENT,  # cardinality: more rows than one, or one row twice
    "22": Fault.EVENT,  # data
    "23": Fault.EVENT,  # constraint
    "24": Fault.PROJECTION,  # cursor state
    "25": Fault.PROJECTION,  # transaction state
    "26": Fault.DATABASE,  # a prepared statement is gone: a pooler gave another connection
    "27": Fault.EVENT,  # a trigger changed the row that the statement changes
    "28": Fault.DATABASE,  # authorization
    "2B": Fault.PROJECTION,  # privileges depend on it
    "2D": Fault.PROJECTION,  # COMMIT where there can be none
    "2F": Fault.EVENT,  # a function ended without RETURN, for this data
    "34": Fault.PROJECTION,  # cursor name
    "38": Fault.EVENT,  # a function in another language failed
    "39": Fault.PROJECTION,  # a trigger or a function returned what it cannot
    "3B": Fault.PROJECTION,  # savepoint
    "3D": Fault.DATABASE,  # no such database
    "3F": Fault.PROJECTION,  # no such schema
    "40": Fault.BATCH,  # rollback: serialization, deadlock
    "42": Fault.PROJECTION,  # syntax, names, types, privileges
    "44": Fault.EVENT,  # WITH CHECK OPTION
    "53": Fault.DATABASE,  # disk, memory, connections
    "54": Fault.EVENT,  # a limit: a value too long for its index, too deep a recursion
    "55": Fault.PROJECTION,  # object not in the state that a statement needs
    "57": Fault.DATABASE,  # operator intervention: shutdown, crash
    "58": Fault.DATABASE,  # files of the server
    "72": Fault.BATCH,  # snapshot too old
    "F0": Fault.DATABASE,  # configuration file
    "HV": Fault.DATABASE,  # foreign server
    "P0": Fault.EVENT,  # PL/pgSQL: RAISE, no data, too many rows, ASSERT
    "XX": Fault.DATABASE,  # corrupted data or index
}
_BY_CODE: Final = {
    "25006": Fault.DATABASE,  # read-only: a standby
    "25P03": Fault.DATABASE,  # time-outs that end the connection
    "25P04": Fault.DATABASE,
    "40002": Fault.EVENT,  # a constraint that is checked at COMMIT
    "53400": Fault.EVENT,  # more than a limit that was set, such as temp_file_limit
    "55006": Fault.BATCH,  # object in use
    "55P03": Fault.BATCH,  # lock_timeout, NOWAIT
    "57014": Fault.BATCH,  # statement_timeout, pg_cancel_backend
    # Extensions raise it for data that they cannot read. A session says it of its connection first (doubts.py): it is
    # an item's where one that was opened since says the same.
    "XX000": Fault.EVENT,
}
IN_FAILED_TRANSACTION: Final = "25P02"
"""Says nothing: what came before it has spoiled the transaction."""

_OF_THE_DATABASE = (DatabaseUnavailable, SchemaError)
_OF_THE_SERVER = ("25", "53", "57", "58")
"""Classes of a database that is read-only, shuts down, or lacks what it needs: its connections may live on."""


_LONGEST_CHAIN = 1_000
"""Errors that are looked at: an ``orig`` that makes another one each time has no end."""


def chain(error: BaseException) -> Iterator[Any]:
    """The error and what it wraps: SQLAlchemy keeps the driver's error in ``orig`` or ``__cause__``."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < _LONGEST_CHAIN:
        seen.add(id(current))
        yield current
        wrapped = _attribute(current, "orig")
        current = wrapped if isinstance(wrapped, BaseException) else current.__cause__


def _attribute(error: BaseException, name: str) -> Any:
    """An attribute of an error that anybody may have defined; None where there is none, or it cannot be had."""
    try:
        return getattr(error, name, None)
    except Exception:  # noqa: BLE001 - a property may raise anything
        return None


def _code_of(cause: BaseException) -> str | None:
    code = _attribute(cause, "sqlstate")
    return code if isinstance(code, str) and code != IN_FAILED_TRANSACTION else None


def sqlstate_of(error: BaseException) -> str | None:
    """The code that the database sent, whoever has wrapped it; None where it has said nothing."""
    return next((code for code in map(_code_of, chain(error)) if code), None)


def fault_of_code(sqlstate: str) -> Fault:
    """Whose fault a code of PostgreSQL is."""
    return _BY_CODE.get(sqlstate) or _BY_CLASS.get(sqlstate[:2], Fault.EVENT)


def fault_of(error: BaseException) -> Fault:
    """
    Whose fault an error is; what does not come from the database is the event's.

    Args:
        error: Of this library, of a driver, or anything that has one of them as its cause.
    """
    for cause in chain(error):
        if isinstance(cause, MemoryError):
            return Fault.BATCH
        if code := _code_of(cause):
            return fault_of_code(code)
        if isinstance(cause, OutOfMemory):  # this process: the server sends a code
            return Fault.BATCH
        if isinstance(cause, _OF_THE_DATABASE):  # without a word from the server, or said of its code
            return Fault.DATABASE
    return Fault.EVENT


def is_of_the_server(sqlstate: str) -> bool:
    """Whether a code of ``Fault.DATABASE`` is of the server itself; of another, not where the connection lives on."""
    return sqlstate[:2] in _OF_THE_SERVER


def is_conflict(error: BaseException) -> bool:
    """Whether the same transaction may pass at once."""
    return sqlstate_of(error) in CONFLICTS
