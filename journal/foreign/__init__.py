"""Journals of other systems, read in place: nothing is written to them, and nothing installed."""

from journal.errors import DatabaseUnavailable, ForeignJournalError, InvalidPayload, InvalidValue
from journal.foreign.attached import KINDS as KINDS
from journal.foreign.attached import AttachedJournal as AttachedJournal
from journal.foreign.attached import attach as attach
from journal.foreign.attached import attached_journal as attached_journal
from journal.foreign.attached import attached_journals as attached_journals
from journal.foreign.attached import decoder_of as decoder_of
from journal.foreign.attached import detach as detach
from journal.foreign.checking import PAGE_LIMIT as PAGE_LIMIT
from journal.foreign.checking import ReadableTable as ReadableTable
from journal.foreign.checking import check as check
from journal.foreign.checking import page_time as page_time
from journal.foreign.eventsourcing_states import states
from journal.foreign.kinds import emmett, eventsourcing, message_db, pekko_jdbc, pekko_r2dbc
from journal.foreign.log import table_log
from journal.foreign.mapping import Constant, Expression, TableMapping
from journal.foreign.payloads import Decoder as Decoder
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
