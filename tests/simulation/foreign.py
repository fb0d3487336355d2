"""A journal of another system: a table whose rows are stamped with the start of the transaction that inserts them."""

from __future__ import annotations

from uuid import UUID

from journal import Log, OwnedSession, WriterLockBacktracking
from journal.foreign.log import Envelopes
from journal.foreign.payloads import json_text
from journal.log import Queries
from tests.simulation.driver import SimulatedDatabase
from tests.simulation.history import Event
from tests.simulation.postgres.foreign import INSERT, QUERIES

_QUERIES = Queries(**QUERIES, decode=Envelopes("outbox", json_text))


def log(database: SimulatedDatabase) -> Log:
    """The table as a log."""
    return Log(database, "outbox", _QUERIES, WriterLockBacktracking)


async def insert(session: OwnedSession, source_id: str) -> Event:
    """Add an event; the other system has numbers without gaps, and fails where two draw the same."""
    (row,) = await session.fetch(INSERT, source_id)
    event_id: UUID = row["event_id"]
    return Event(source_id, row["seq_nr"], event_id)
