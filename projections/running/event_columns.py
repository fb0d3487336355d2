"""Arguments of the statements of read models in SQL: keys of the events of a batch, or the events themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from pydantic import BaseModel

from journal import (
    DatabaseError,
    EventEnvelope,
    InvalidPayload,
    Session,
    Unreadable,
    decoder,
    event_type_of,
    unstorable,
)
from projections.defining import BATCH, READ_BY_MODEL, SqlReadModel, as_read
from projections.errors import describe

Columns: TypeAlias = tuple[list[Any], ...]
"""A list for each column, with a value for each event."""

_OLDER = f"""
SELECT e.source_id, e.seq_nr, e.event_type, e.version, e.payload::text AS payload
FROM ({BATCH}) AS e
INNER JOIN unnest($4::text[], $5::integer[]) AS m (event_type, version)
    ON e.event_type = m.event_type AND e.version < m.version
"""
_HIGHEST_VERSION = 32767
_CONFLICT = "40001"
_ANY_VERSION = _HIGHEST_VERSION + 1


def for_models(error: DatabaseError) -> DatabaseError:
    """A conflict, where SQL has refused what models are to read: the transaction passes at once when they do."""
    conflict = DatabaseError(f"models are to read these events: {error}", sqlstate=_CONFLICT)
    conflict.origin = error.origin
    return conflict


def keys_of(envelopes: Sequence[EventEnvelope]) -> Columns:
    """The columns of ``BATCH``: sources, numbers and times."""
    return (
        [envelope.source_id for envelope in envelopes],
        [envelope.seq_nr for envelope in envelopes],
        [envelope.db_timestamp for envelope in envelopes],
    )


async def read_columns(
    session: Session,
    read_model: SqlReadModel,
    envelopes: Sequence[EventEnvelope],
    *,
    every: bool,
) -> Columns | None:
    """
    Sources, numbers and payloads of events as their models read them; None: there are none.

    Args:
        session: Of the database that has the events.
        read_model: The read model that reads them.
        envelopes: The events, without payloads.
        every: Read every event, and not only those of older versions.

    Raises:
        InvalidPayload: A payload does not fit its model, or cannot be lifted to its version.
    """
    current = _current(read_model)
    bounds = {
        name: _ANY_VERSION if every else event_type_of(one.model).version for name, one in current.items()
    }
    if not every and all(version == 1 for version in bounds.values()):
        return None
    rows = await session.fetch(_OLDER, *keys_of(envelopes), list(bounds), list(bounds.values()))
    if not rows:
        return None
    stored = {(row["source_id"], row["seq_nr"]): row for row in rows}
    events = [
        envelope._replace(version=row["version"], payload_json=row["payload"])
        for envelope in envelopes
        if (row := stored.get((envelope.source_id, envelope.seq_nr)))
    ]
    payloads = [current[envelope.event_type].read(envelope) for envelope in events]
    return [e.source_id for e in events], [e.seq_nr for e in events], payloads


def given_columns(
    read_model: SqlReadModel, envelopes: Sequence[EventEnvelope], *, every: bool
) -> Columns | None:
    """
    The columns of ``GIVEN``: the events of models; None: there are none.

    Args:
        read_model: The read model that reads them.
        envelopes: Events, those of others among them.
        every: Have the models read every event, and not only those of older versions.

    Raises:
        InvalidPayload: A payload cannot be read, does not fit its model, or cannot be sent.
    """
    current = _current(read_model)
    events = [envelope for envelope in envelopes if envelope.event_type in current]
    if not events:
        return None
    is_read = [every or e.version < event_type_of(current[e.event_type].model).version for e in events]
    payloads = [
        current[e.event_type].read(e) if by_model else _payload(e)
        for e, by_model in zip(events, is_read, strict=True)
    ]
    _check_text(events, payloads)
    return (
        *keys_of(events),
        [e.event_id for e in events],
        [e.entity_type for e in events],
        [e.event_type for e in events],
        # A later version is refused, whatever another system has as such.
        [
            READ_BY_MODEL if by_model else min(e.version, _HIGHEST_VERSION)
            for e, by_model in zip(events, is_read, strict=True)
        ],
        payloads,
    )


def _payload(envelope: EventEnvelope) -> str:
    if isinstance(envelope.payload_json, Unreadable):
        raise InvalidPayload(envelope.payload_json)
    return envelope.payload_json


class _Reading(NamedTuple):
    """How a model reads its events for a statement: the fields that this looks at, unless it has validators."""

    model: type[BaseModel]
    used: frozenset[str]
    decode: Callable[[EventEnvelope], BaseModel]

    def read(self, envelope: EventEnvelope) -> str:
        event = self.decode(envelope)
        try:
            return as_read(event, self.used)
        except ValueError as error:
            raise InvalidPayload(f"{describe(envelope)} has a value that no column holds: {error}") from None


@lru_cache(maxsize=1024)
def _current(read_model: SqlReadModel) -> dict[str, _Reading]:
    """By event type, how it is read: its model may be several relations of the statement."""
    used: dict[type[BaseModel], frozenset[str]] = {}
    for relation, model in read_model.models.items():
        used[model] = used.get(model, frozenset()) | read_model.statement.reads[relation]
    return {
        event_type_of(model).name: _Reading(
            model, fields, decoder(model, None if read_model.by_model else fields)
        )
        for model, fields in used.items()
    }


def _check_text(events: Sequence[EventEnvelope], payloads: Sequence[str]) -> None:
    if unstorable("".join(payloads)) is None:  # one look at all of them is fast
        return
    for envelope, payload in zip(events, payloads, strict=True):
        if found := unstorable(payload):
            raise InvalidPayload(
                f"the payload of {describe(envelope)} holds {found}, which PostgreSQL cannot store"
            )
