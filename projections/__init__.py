"""
Projections over a journal in PostgreSQL: what an application imports.

Define a class with :func:`projection` and :class:`handles`, append with :func:`append`, run with :func:`run`.
"""

from journal import (
    ALL_SLICES,
    AppendConflict,
    Appended,
    ConnectionSettings,
    Database,
    DatabaseError,
    DatabaseUnavailable,
    Event,
    EventEnvelope,
    EventIdConflict,
    InvalidEvent,
    InvalidPayload,
    Notifier,
    Origin,
    ProjectionsError,
    RawJson,
    SchemaError,
    Session,
    SliceRange,
    UnknownEventType,
    append,
    append_sync,
    connect,
    current_events,
    event_type,
    find_event,
    latest_seq_nr,
    read_source,
    slice_of,
    slice_ranges,
)
from offsets import live_events
from projections.errors import HandlerFailed, InvalidHandler, ProjectionFailed
from projections.handlers import AtLeastOnce, ExactlyOnce, Group, Projection, handles, handles_group, projection
from projections.observer import StatusObserver
from projections.recovery import Backoff, Recovery
from projections.runner import run
from projections.settings import RunSettings
from projections.tables import Change, Changes, Table, TableError

__all__ = [
    "ALL_SLICES",
    "AppendConflict",
    "Appended",
    "AtLeastOnce",
    "Backoff",
    "Change",
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
    "InvalidEvent",
    "InvalidHandler",
    "InvalidPayload",
    "Notifier",
    "Origin",
    "Projection",
    "ProjectionFailed",
    "ProjectionsError",
    "RawJson",
    "Recovery",
    "RunSettings",
    "SchemaError",
    "Session",
    "SliceRange",
    "StatusObserver",
    "Table",
    "TableError",
    "UnknownEventType",
    "append",
    "append_sync",
    "connect",
    "current_events",
    "event_type",
    "find_event",
    "handles",
    "handles_group",
    "latest_seq_nr",
    "live_events",
    "projection",
    "read_source",
    "run",
    "slice_of",
    "slice_ranges",
]
