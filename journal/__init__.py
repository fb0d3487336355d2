"""The journal: events as they are stored, appended and read."""

from journal.backtracking import Backtracking as Backtracking
from journal.backtracking import IntervalBacktracking as IntervalBacktracking
from journal.backtracking import Poll as Poll
from journal.backtracking import ReadEvents as ReadEvents
from journal.backtracking import ReadKeys as ReadKeys
from journal.backtracking import WriterLockBacktracking as WriterLockBacktracking
from journal.backtracking import WritersPoll as WritersPoll
from journal.capture import CapturedTable, capture_table, captured_tables, release_table
from journal.database import Database, Session, connect
from journal.database import KeptSession as KeptSession
from journal.database import OwnedSession as OwnedSession
from journal.database import Row as Row
from journal.database import hide_password as hide_password
from journal.database.generation import Generation as Generation
from journal.database.generation import generation as generation
from journal.database.settings import ConnectionSettings
from journal.errors import (
    AppendConflict,
    DatabaseError,
    DatabaseUnavailable,
    EventIdConflict,
    InvalidEvent,
    InvalidPayload,
    MissingPrivilege,
    OtherSchemaVersion,
    ProjectionsError,
    SchemaError,
    UnknownEventType,
)
from journal.errors import LostGeneration as LostGeneration
from journal.errors import NeedsPrimary as NeedsPrimary
from journal.errors import NoAnswer as NoAnswer
from journal.errors import OutOfMemory as OutOfMemory
from journal.errors import OutOfResources as OutOfResources
from journal.errors import ReadOnlyDatabase as ReadOnlyDatabase
from journal.events import BEGINNING as BEGINNING
from journal.events import Appended, Event, EventEnvelope, HistoricEvent, Origin, RawJson
from journal.events import Position as Position
from journal.importing import ImportResult, import_events
from journal.payload import decode as decode
from journal.payload import decoder as decoder
from journal.payload import event_type
from journal.payload import event_type_of as event_type_of
from journal.polling import Look as Look
from journal.polling import Notifier
from journal.polling import PollPacing as PollPacing
from journal.polling import WritersPoller as WritersPoller
from journal.reader import PAGE_BYTES as PAGE_BYTES
from journal.reader import HeadReader as HeadReader
from journal.reader import Key as Key
from journal.reader import Page as Page
from journal.reader import SliceReader as SliceReader
from journal.reader import current_events, find_event, latest_seq_nr, read_source
from journal.reader import entity_types as entity_types
from journal.reader import has_events as has_events
from journal.reader import read_source_page as read_source_page
from journal.slices import ALL_SLICES, NUMBER_OF_SLICES, SliceRange, slice_of, slice_ranges
from journal.writer import append, append_sync

__all__ = [
    "ALL_SLICES",
    "NUMBER_OF_SLICES",
    "AppendConflict",
    "Appended",
    "CapturedTable",
    "ConnectionSettings",
    "Database",
    "DatabaseError",
    "DatabaseUnavailable",
    "Event",
    "EventEnvelope",
    "EventIdConflict",
    "HistoricEvent",
    "ImportResult",
    "InvalidEvent",
    "InvalidPayload",
    "MissingPrivilege",
    "Notifier",
    "Origin",
    "OtherSchemaVersion",
    "ProjectionsError",
    "RawJson",
    "SchemaError",
    "Session",
    "SliceRange",
    "UnknownEventType",
    "append",
    "append_sync",
    "capture_table",
    "captured_tables",
    "connect",
    "current_events",
    "event_type",
    "find_event",
    "import_events",
    "latest_seq_nr",
    "read_source",
    "release_table",
    "slice_of",
    "slice_ranges",
]
