"""
Projections over a journal in PostgreSQL: what an application imports.

Define a class with :func:`projection` and :class:`handles`, append with :func:`append`, run with :func:`run`.
"""

from projections.import_names import check_import_names

check_import_names()  # before the first import of what may be another's

from journal import (
    ALL_SLICES,
    AppendConflict,
    Appended,
    CapturedTable,
    ConnectionSettings,
    Database,
    DatabaseError,
    DatabaseUnavailable,
    Event,
    EventEnvelope,
    EventIdConflict,
    HistoricEvent,
    ImportResult,
    InvalidEvent,
    InvalidPayload,
    MissingPrivilege,
    Notifier,
    Origin,
    OtherSchemaVersion,
    ProjectionsError,
    RawJson,
    SchemaError,
    Session,
    SliceRange,
    UnknownEventType,
    append,
    append_sync,
    capture_table,
    captured_tables,
    connect,
    current_events,
    event_type,
    find_event,
    import_events,
    latest_seq_nr,
    read_source,
    release_table,
    slice_of,
    slice_ranges,
)
from journal.embedded import DsnError, EmbeddedServerError, database_dsn
from journal.schema import install
from offsets import (
    OffsetOvertaken,
    RangeLost,
    TransactionEnded,
    UnknownProjection,
    WrongEntityType,
    live_events,
)
from projections.defining.handlers import Projection, handles, handles_group, projection
from projections.defining.settings import AtLeastOnce, ExactlyOnce, Group
from projections.defining.tables import Change, Changes, Table, TableError
from projections.errors import HandlerFailed, InvalidHandler, PoolTooSmall, ProjectionFailed
from projections.failing.recovery import Recovery
from projections.failing.retries import Backoff, Retries
from projections.running.observer import StatusObserver
from projections.running.runner import run
from projections.running.settings import RunSettings

__all__ = [
    "ALL_SLICES",
    "AppendConflict",
    "Appended",
    "AtLeastOnce",
    "Backoff",
    "CapturedTable",
    "Change",
    "Changes",
    "ConnectionSettings",
    "Database",
    "DatabaseError",
    "DatabaseUnavailable",
    "DsnError",
    "EmbeddedServerError",
    "Event",
    "EventEnvelope",
    "EventIdConflict",
    "ExactlyOnce",
    "Group",
    "HandlerFailed",
    "HistoricEvent",
    "ImportResult",
    "InvalidEvent",
    "InvalidHandler",
    "InvalidPayload",
    "MissingPrivilege",
    "Notifier",
    "OffsetOvertaken",
    "Origin",
    "OtherSchemaVersion",
    "PoolTooSmall",
    "Projection",
    "ProjectionFailed",
    "ProjectionsError",
    "RangeLost",
    "RawJson",
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
    "WrongEntityType",
    "append",
    "append_sync",
    "capture_table",
    "captured_tables",
    "connect",
    "current_events",
    "database_dsn",
    "event_type",
    "find_event",
    "handles",
    "handles_group",
    "import_events",
    "install",
    "latest_seq_nr",
    "live_events",
    "projection",
    "read_source",
    "release_table",
    "run",
    "slice_of",
    "slice_ranges",
]
