"""Access to PostgreSQL: the only package that imports a driver."""

from journal.drivers.failures import hide_password, translate, translated
from journal.drivers.foreign import fetch_on, fetch_on_sync
from journal.drivers.kept import KeptSession
from journal.drivers.pool import connect
from journal.drivers.session import PLAN_ANEW, Database, OwnedSession, Row, Session

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
