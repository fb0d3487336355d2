"""The journal: events as they are stored, appended and read."""

from journal.backtracking import (
    Backtracking,
    IntervalBacktracking,
    Poll,
    ReadEvents,
    ReadKeys,
    WriterLockBacktracking,
    WritersPoll,
)
from journal.drivers import Database, KeptSession, OwnedSession, Row, Session, connect, hide_password
from journal.errors import (
    AppendConflict,
    DatabaseError,
    DatabaseUnavailable,
    EventIdConflict,
    InvalidEvent,
    InvalidPayload,
    MissingPrivilege,
    ProjectionsError,
    ReadOnlyDatabase,
    SchemaError,
    UnknownEventType,
)
from journal.events import BEGINNING, Appended, Event, EventEnvelope, HistoricEvent, Origin, Position, RawJson
from journal.importing import ImportResult, import_events
from journal.maintenance import MaintainedPartition, maintain
from journal.payload import decode, decoder, event_type, event_type_of
from journal.polling import Notifier, PollPacing, WritersPoller
from journal.reader import (
    Key,
    SliceReader,
    current_events,
    find_event,
    has_events,
    latest_seq_nr,
    read_source,
)
from journal.settings import ConnectionSettings
from journal.slices import ALL_SLICES, NUMBER_OF_SLICES, SliceRange, slice_of, slice_ranges
from journal.writer import append, append_sync

__all__ = [
    "ALL_SLICES",
    "BEGINNING",
    "NUMBER_OF_SLICES",
    "AppendConflict",
    "Appended",
    "Backtracking",
    "ConnectionSettings",
    "Database",
    "DatabaseError",
    "DatabaseUnavailable",
    "Event",
    "EventEnvelope",
    "EventIdConflict",
    "HistoricEvent",
    "ImportResult",
    "IntervalBacktracking",
    "InvalidEvent",
    "InvalidPayload",
    "KeptSession",
    "Key",
    "MaintainedPartition",
    "MissingPrivilege",
    "Notifier",
    "Origin",
    "OwnedSession",
    "Poll",
    "PollPacing",
    "Position",
    "ProjectionsError",
    "RawJson",
    "ReadEvents",
    "ReadKeys",
    "ReadOnlyDatabase",
    "Row",
    "SchemaError",
    "Session",
    "SliceRange",
    "SliceReader",
    "UnknownEventType",
    "WriterLockBacktracking",
    "WritersPoll",
    "WritersPoller",
    "append",
    "append_sync",
    "connect",
    "current_events",
    "decode",
    "decoder",
    "event_type",
    "event_type_of",
    "find_event",
    "has_events",
    "hide_password",
    "import_events",
    "latest_seq_nr",
    "maintain",
    "read_source",
    "slice_of",
    "slice_ranges",
]
