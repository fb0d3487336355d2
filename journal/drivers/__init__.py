"""Access to PostgreSQL: the only package that imports a driver."""

from journal.drivers.failures import hide_password, translate, translated
from journal.drivers.pool import connect
from journal.drivers.session import Database, OwnedSession, Row, Session

__all__ = ["Database", "OwnedSession", "Row", "Session", "connect", "hide_password", "translate", "translated"]
