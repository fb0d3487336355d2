"""
Projections over a journal in PostgreSQL: what an application imports.

Define a class with :func:`projection` and :class:`handles`, append with :func:`append`, run with :func:`run`.
"""

from projections.import_names import check_import_names

check_import_names()  # before the first import of what may be another's

from journal import (
    AppendConflict,
    Appended,
    ConnectionSettings,
    Database,
    DatabaseError,
    DatabaseUnavailable,
    Event,
    EventEnvelope,
    EventIdConflict,
    HistoricEvent,
    InvalidEvent,
    InvalidPayload,
    InvalidToken,
    LostGeneration,
    ProjectionsError,
    RawJson,
    SchemaError,
    Session,
    SliceRange,
    UnknownEventType,
    append,
    append_sync,
    capture_table,
    connect,
    current_events,
    event_type,
    import_events,
    read_source,
    release_table,
)
from journal.embedded import database_dsn
from journal.schema import install
from offsets import TransactionEnded, UnknownProjection, WrongEntityType, live_events
from projections.defining.handlers import handles, handles_group, projection
from projections.defining.settings import AtLeastOnce, ExactlyOnce, Group
from projections.defining.tables import Changes, Table, TableError
from projections.errors import HandlerFailed, InvalidHandler, ProjectionFailed
from projections.failing.recovery import Recovery
from projections.failing.retries import Backoff, Retries
from projections.running.observer import StatusObserver
from projections.running.runner import run
from projections.running.settings import RunSettings
from projections.waiting import ReadYourWrites, WaitTimeout, wait_for

__all__ = [
    "AppendConflict",
    "Appended",
    "AtLeastOnce",
    "Backoff",
    "Changes",
    "ConnectionSettings",
    "Database",
    "DatabaseError",
    "DatabaseUnavailable",
    "Event",
    "EventEnvelope",
    "EventIdConflict",
    "ExactlyOnce",
    "Group",
    "HandlerFailed",
    "HistoricEvent",
    "InvalidEvent",
    "InvalidHandler",
    "InvalidPayload",
    "InvalidToken",
    "LostGeneration",
    "ProjectionFailed",
    "ProjectionsError",
    "RawJson",
    "ReadYourWrites",
    "Recovery",
    "Retries",
    "RunSettings",
    "SchemaError",
    "Session",
    "SliceRange",
    "StatusObserver",
    "Table",
    "TableError",
    "TransactionEnded",
    "UnknownEventType",
    "UnknownProjection",
    "WaitTimeout",
    "WrongEntityType",
    "append",
    "append_sync",
    "capture_table",
    "connect",
    "current_events",
    "database_dsn",
    "event_type",
    "handles",
    "handles_group",
    "import_events",
    "install",
    "live_events",
    "projection",
    "read_source",
    "release_table",
    "run",
    "wait_for",
]
