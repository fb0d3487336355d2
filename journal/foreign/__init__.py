"""Journals of other systems, read in place: nothing is written to them, and nothing installed."""

from journal.errors import DatabaseUnavailable, ForeignJournalError, InvalidPayload, InvalidValue
from journal.foreign.eventsourcing_states import states
from journal.foreign.kinds import emmett, eventsourcing, message_db, pekko_jdbc, pekko_r2dbc
from journal.foreign.log import table_log
from journal.foreign.mapping import Constant, Expression, TableMapping
from journal.foreign.payloads import Stored
from journal.foreign.pekko_payloads import pekko_payloads

__all__ = [
    "Constant",
    "DatabaseUnavailable",
    "Expression",
    "ForeignJournalError",
    "InvalidPayload",
    "InvalidValue",
    "Stored",
    "TableMapping",
    "emmett",
    "eventsourcing",
    "message_db",
    "pekko_jdbc",
    "pekko_payloads",
    "pekko_r2dbc",
    "states",
    "table_log",
]
