"""What the statements of read models in SQL are given of a batch: keys of events, or the events themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from pydantic import BaseModel

from journal import EventEnvelope, InvalidPayload, Session, Unreadable, event_type_of, unstorable, upcast_json
from projections.defining import BATCH
from projections.errors import describe

Columns: TypeAlias = tuple[list[Any], ...]
"""A list for each column, with a value for each event."""

_OLDER = f"""
SELECT e.source_id, e.seq_nr, e.event_type, e.version, e.payload::text AS payload
FROM ({BATCH}) AS e
INNER JOIN unnest($4::text[], $5::smallint[]) AS m (event_type, version)
    ON e.event_type = m.event_type AND e.version < m.version
"""
_HIGHEST_VERSION = 32767


def keys_of(envelopes: Sequence[EventEnvelope]) -> Columns:
    """The columns of ``BATCH``: sources, numbers and times."""
    return (
        [envelope.source_id for envelope in envelopes],
        [envelope.seq_nr for envelope in envelopes],
        [envelope.db_timestamp for envelope in envelopes],
    )


async def lifted_columns(
    session: Session, models: Iterable[type[BaseModel]], keys: Columns
) -> Columns | None:
    """
    Sources, numbers and payloads of events of older versions, lifted to the current ones; None: there are none.

    Raises InvalidPayload where one cannot be lifted.
    """
    current = {event_type_of(model).name: model for model in models if event_type_of(model).version > 1}
    if not current:
        return None
    versions = [event_type_of(model).version for model in current.values()]
    rows = await session.fetch(_OLDER, *keys, list(current), versions)
    if not rows:
        return None
    lifted = [
        upcast_json(
            current[row["event_type"]], row["version"], row["payload"], row["source_id"], row["seq_nr"]
        )
        for row in rows
    ]
    return [row["source_id"] for row in rows], [row["seq_nr"] for row in rows], lifted


def given_columns(models: Iterable[type[BaseModel]], envelopes: Sequence[EventEnvelope]) -> Columns | None:
    """
    The columns of ``GIVEN``: the events of models, with payloads lifted to the current versions; None: there are none.

    Raises InvalidPayload where a payload cannot be read, lifted or sent.
    """
    current = {event_type_of(model).name: model for model in models}
    events = [envelope for envelope in envelopes if envelope.event_type in current]
    if not events:
        return None
    payloads = [_payload(current[e.event_type], e) for e in events]
    _check_text(events, payloads)
    return (
        *keys_of(events),
        [e.event_id for e in events],
        [e.entity_type for e in events],
        [e.event_type for e in events],
        # What was lifted is of the version of its model; a later one is refused, whatever another system has as such.
        [min(max(e.version, event_type_of(current[e.event_type]).version), _HIGHEST_VERSION) for e in events],
        payloads,
    )


def _payload(model: type[BaseModel], envelope: EventEnvelope) -> str:
    if isinstance(envelope.payload_json, Unreadable):
        raise InvalidPayload(envelope.payload_json)
    if envelope.version < event_type_of(model).version:
        return upcast_json(
            model, envelope.version, envelope.payload_json, envelope.source_id, envelope.seq_nr
        )
    return envelope.payload_json


def _check_text(events: Sequence[EventEnvelope], payloads: Sequence[str]) -> None:
    if unstorable("".join(payloads)) is None:  # one look at all of them is fast
        return
    for envelope, payload in zip(events, payloads, strict=True):
        if found := unstorable(payload):
            raise InvalidPayload(
                f"the payload of {describe(envelope)} holds {found}, which PostgreSQL cannot store"
            )
