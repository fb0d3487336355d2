"""The journal: events as they are stored, appended and read."""

from journal.appending import append, append_sync
from journal.appending import check_entity_type as check_entity_type
from journal.appending import check_kind as check_kind
from journal.appending import check_list as check_list
from journal.appending import check_name as check_name
from journal.appending import event_row as event_row
from journal.backtracking import CLOCK_MARGIN as CLOCK_MARGIN
from journal.backtracking import END_OF_TIME as END_OF_TIME
from journal.backtracking import INSTANT as INSTANT
from journal.backtracking import Backtracking as Backtracking
from journal.backtracking import Poll as Poll
from journal.backtracking import ReadEvents as ReadEvents
from journal.backtracking import ReadKeys as ReadKeys
from journal.backtracking import WriterLockBacktracking as WriterLockBacktracking
from journal.capture import CapturedTable as CapturedTable
from journal.capture import (
    capture_table,
    release_table,
)
from journal.capture import captured_tables as captured_tables
from journal.database import (
    Database,
    Session,
    connect,
)
from journal.database import KeptSession as KeptSession
from journal.database import OwnedSession as OwnedSession
from journal.database import Row as Row
from journal.database import hide_password as hide_password
from journal.database.generation import Generation as Generation
from journal.database.generation import generation as generation
from journal.database.settings import ConnectionSettings
from journal.entity_types import ALL_TYPES
from journal.entity_types import EntityTypes as EntityTypes
from journal.envelopes import EventEnvelope, decode
from journal.envelopes import decoder as decoder
from journal.envelopes import newest_json as newest_json
from journal.errors import (
    AppendConflict,
    DatabaseError,
    DatabaseUnavailable,
    DatabaseWentBack,
    EventIdConflict,
    InvalidEvent,
    InvalidPayload,
    InvalidValue,
    ProjectionsError,
    SchemaError,
)
from journal.errors import InvalidToken as InvalidToken
from journal.errors import JournalUnavailable as JournalUnavailable
from journal.errors import MissingPrivilege as MissingPrivilege
from journal.errors import NeedsPrimary as NeedsPrimary
from journal.errors import NoAnswer as NoAnswer
from journal.errors import NotAllowed as NotAllowed
from journal.errors import NotFound as NotFound
from journal.errors import OtherSchemaVersion as OtherSchemaVersion
from journal.errors import OutOfMemory as OutOfMemory
from journal.errors import OutOfResources as OutOfResources
from journal.errors import ReadOnlyDatabase as ReadOnlyDatabase
from journal.errors import UnknownEventType as UnknownEventType
from journal.event_types import declared_models as declared_models
from journal.event_types import event_type
from journal.event_types import event_type_of as event_type_of
from journal.event_types import upcast_json as upcast_json
from journal.events import BEGINNING as BEGINNING
from journal.events import LIBRARY_TYPES as LIBRARY_TYPES
from journal.events import (
    Appended,
    Event,
    HistoricEvent,
    RawJson,
)
from journal.events import AppendedEvents as AppendedEvents
from journal.events import Origin as Origin
from journal.events import Position as Position
from journal.events import Unreadable as Unreadable
from journal.events import uuid7 as uuid7
from journal.importing import ImportResult as ImportResult
from journal.importing import import_events
from journal.interval_backtracking import IntervalBacktracking as IntervalBacktracking
from journal.loading import Loaded as Loaded
from journal.loading import load
from journal.log import HISTORY as HISTORY
from journal.log import JOURNAL as JOURNAL
from journal.log import OWN_NAME as OWN_NAME
from journal.log import Decode as Decode
from journal.log import Journals as Journals
from journal.log import LateCommitBound as LateCommitBound
from journal.log import Log as Log
from journal.log import LogToOpen as LogToOpen
from journal.log import Queries as Queries
from journal.log import as_log as as_log
from journal.log import as_logs as as_logs
from journal.notifier import Notifier as Notifier
from journal.payload import LONGEST_INTEGER as LONGEST_INTEGER
from journal.payload import MAX_PAYLOAD_BYTES as MAX_PAYLOAD_BYTES
from journal.payload import check_text as check_text
from journal.payload import encode as encode
from journal.polling import Look as Look
from journal.polling import Polled as Polled
from journal.polling import PollPacing as PollPacing
from journal.polling import WritersPoller as WritersPoller
from journal.polling import hearing_polls as hearing_polls
from journal.polling import shared_poller as shared_poller
from journal.reader import PAGE_BYTES as PAGE_BYTES
from journal.reader import HeadReader as HeadReader
from journal.reader import Key as Key
from journal.reader import Page as Page
from journal.reader import SliceReader as SliceReader
from journal.reader import (
    current_events,
    read_source,
)
from journal.reader import entity_types as entity_types
from journal.reader import find_event as find_event
from journal.reader import latest_seq_nr as latest_seq_nr
from journal.reader import now as now
from journal.reader import now_in as now_in
from journal.reader import read_source_page as read_source_page
from journal.slices import ALL_SLICES as ALL_SLICES
from journal.slices import NUMBER_OF_SLICES as NUMBER_OF_SLICES
from journal.slices import (
    SliceRange,
)
from journal.slices import slice_of as slice_of
from journal.slices import slice_ranges as slice_ranges
from journal.standby import Primary as Primary
from journal.storable_text import unstorable as unstorable

__all__ = [
    "ALL_TYPES",
    "AppendConflict",
    "Appended",
    "ConnectionSettings",
    "Database",
    "DatabaseError",
    "DatabaseUnavailable",
    "DatabaseWentBack",
    "Event",
    "EventEnvelope",
    "EventIdConflict",
    "HistoricEvent",
    "InvalidEvent",
    "InvalidPayload",
    "InvalidValue",
    "ProjectionsError",
    "RawJson",
    "SchemaError",
    "Session",
    "SliceRange",
    "append",
    "append_sync",
    "capture_table",
    "connect",
    "current_events",
    "decode",
    "event_type",
    "import_events",
    "load",
    "read_source",
    "release_table",
]
