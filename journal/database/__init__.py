"""Access to PostgreSQL: the only package that imports a driver."""

from journal.database.callers_connection import fetch_on, fetch_on_sync
from journal.database.callers_session import at_once, driver_of, driver_of_sync, session_on, spoil
from journal.database.connecting import connect
from journal.database.doubts import Doubt
from journal.database.error_translation import raised_as, translate, translated
from journal.database.faults import Fault, chain, fault_of, is_conflict, is_of_the_server, sqlstate_of
from journal.database.identifiers import quote
from journal.database.pooler import refuses_parameters
from journal.database.session import PLAN_ANEW, Database, KeptSession, OwnedSession, Row, Session
from journal.database.session_settings import NO_FUNCTION_OF_OTHERS, OF_A_FOREIGN_JOURNAL
from journal.database.sync import SyncConnection, connect_sync
from journal.dsn import hide_password

__all__ = [
    "NO_FUNCTION_OF_OTHERS",
    "OF_A_FOREIGN_JOURNAL",
    "PLAN_ANEW",
    "Database",
    "Doubt",
    "Fault",
    "KeptSession",
    "OwnedSession",
    "Row",
    "Session",
    "SyncConnection",
    "at_once",
    "chain",
    "connect",
    "connect_sync",
    "driver_of",
    "driver_of_sync",
    "fault_of",
    "fetch_on",
    "fetch_on_sync",
    "hide_password",
    "is_conflict",
    "is_of_the_server",
    "quote",
    "raised_as",
    "refuses_parameters",
    "session_on",
    "spoil",
    "sqlstate_of",
    "translate",
    "translated",
]
