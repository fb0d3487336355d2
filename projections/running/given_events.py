"""Read models in SQL over events that are given, and not read from the journal: those of an append."""

from __future__ import annotations

from collections.abc import Sequence

from journal import EventEnvelope, Session
from projections.defining import GIVEN, Projection
from projections.running.event_columns import given_columns
from projections.running.read_model_writer import ReadModelWriter

_WRITE = "SELECT projections._write_given_events_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)"


async def write_given(
    session: Session, writer: ReadModelWriter, projection: Projection, envelopes: Sequence[EventEnvelope]
) -> None:
    """
    Bring events into the tables of a projection, in a transaction of the caller, whose settings stay as they are.

    Raises:
        TableError: A table is not there, or does not fit.
        journal.DatabaseError: The database refused, an event's data among the reasons.
        journal.InvalidPayload: A payload does not fit its model, or cannot be lifted to its version.
    """
    for plan in await writer.plans(session, projection, creates=False):
        if columns := given_columns(plan.read_model, envelopes, every=True):
            await session.execute(_WRITE, plan.upsert(GIVEN), *columns)
