"""Read models in SQL over events that are given, and not read from the journal: those of an append."""

from __future__ import annotations

from collections.abc import Sequence

from journal import EventEnvelope, Session, event_type_of, upcast_json
from projections.defining import GIVEN, Projection
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
        journal.InvalidPayload: An older version of an event cannot be lifted to the current one.
    """
    for plan in await writer.plans(session, projection, creates=False):
        models = {event_type_of(model).name: model for model in plan.read_model.models.values()}
        events = [envelope for envelope in envelopes if envelope.event_type in models]
        if not events:
            continue
        payloads = []
        for e in events:
            model = models[e.event_type]
            is_older = e.version < event_type_of(model).version
            payloads.append(
                upcast_json(model, e.version, e.payload_json, e.source_id, e.seq_nr)
                if is_older
                else e.payload_json
            )
        await session.execute(
            _WRITE,
            plan.upsert(GIVEN),
            [e.source_id for e in events],
            [e.seq_nr for e in events],
            [e.db_timestamp for e in events],
            [e.event_id for e in events],
            [e.entity_type for e in events],
            [e.event_type for e in events],
            # What was lifted is of the version of its model.
            [min(e.version, event_type_of(models[e.event_type]).version) for e in events],
            payloads,
        )
