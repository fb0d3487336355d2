"""Access to PostgreSQL: the only package that imports a driver."""

from journal.database.failures import hide_password, translate, translated
from journal.database.foreign import fetch_on, fetch_on_sync
from journal.database.kept import KeptSession
from journal.database.pool import connect
from journal.database.session import PLAN_ANEW, Database, OwnedSession, Row, Session

__all__ = [
    "PLAN_ANEW",
    "Database",
    "KeptSession",
    "OwnedSession",
    "Row",
    "Session",
    "connect",
    "fetch_on",
    "fetch_on_sync",
    "hide_password",
    "translate",
    "translated",
]
