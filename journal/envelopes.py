"""The envelope in which a reader gets a stored event."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from journal.errors import InvalidPayload, UnknownEventType
from journal.event_types import EventType, Model, declare, declared_model, event_type_of, upcast_json
from journal.events import Origin, Position, Unreadable
from journal.exact_numbers import decimal_keys, exactly, has_decimals, parsed
from journal.naive_times import validator


class EventEnvelope(NamedTuple):
    """
    A stored event as a reader gets it.

    ``payload_json`` and ``metadata_json`` are the text as written, ``version`` is that of ``payload_json``.
    """

    source_id: str
    seq_nr: int
    db_timestamp: datetime
    slice: int
    event_id: UUID
    entity_type: str
    event_type: str
    version: int
    payload_json: str
    metadata_json: str | None
    tags: list[str] | None
    origin: Origin = Origin.QUERY

    @property
    def position(self) -> Position:
        """Its place in the order of the log."""
        return Position(self.db_timestamp, self.slice, self.source_id, self.seq_nr)

    @property
    def event(self) -> BaseModel:
        """
        The payload as the model that the program declares for its type, in the newest version.

        It is made each time it is asked for.

        Raises:
            InvalidPayload: No model is declared for its type by :func:`event_type`, or the payload does not fit, or
                cannot be converted.
        """
        model = declared_model(self.entity_type, self.event_type)
        if model is None:
            raise UnknownEventType(
                f"{_named(self)}: no model is declared for it: decorate one with "
                f"@event_type({self.event_type!r}), or call decode() with it"
            )
        return decode(model, self)

    @property
    def payload(self) -> Any:
        """
        The payload as plain Python values, in the newest version that the program declares for its type.

        A number that a float rounds is a float whose ``str`` is the number as it was written. InvalidPayload: it cannot
        be converted.
        """
        return parsed(newest_json(self))

    @property
    def stored_payload(self) -> Any:
        """The payload as plain Python values, in the version in which it was stored."""
        return parsed(self.payload_json)

    @property
    def metadata(self) -> Any:
        """The metadata as plain Python values; empty when there is none."""
        return from_json(self.metadata_json) if self.metadata_json else {}


def decoder(model: type[Model], fields: frozenset[str] | None = None) -> Callable[[EventEnvelope], Model]:
    """
    What turns stored events into a model, lifting older versions to the newest.

    With ``fields``, it looks at no others, and the model has only these; it has no validators of its own then.

    The function raises InvalidPayload where a payload does not fit; the error names event type, source, seq_nr
    and field.
    """
    declare(model)
    current = event_type_of(model)
    version, validate = current.version, _reader(model, fields)

    def decode(envelope: EventEnvelope) -> Model:
        payload = envelope.payload_json
        if isinstance(payload, Unreadable):
            raise InvalidPayload(payload)
        try:
            if envelope.version == version:
                return validate(payload)
            return _decode_older(model, current, envelope, fields)
        except ValidationError as error:
            raise _does_not_fit(model, envelope, error) from None

    return decode


def _validate(model: type[Model], fields: frozenset[str] | None) -> Callable[[str | bytes], Model]:
    return validator(model, event_type_of(model).naive_times, fields).validate_json


def _reader(model: type[Model], fields: frozenset[str] | None) -> Callable[[str | bytes], Model]:
    """What makes the model of JSON; only where it has Decimals, numbers are looked at that a float rounds."""
    validate = _validate(model, fields)
    if not has_decimals(model):
        return validate
    keys = decimal_keys(model)
    return lambda payload: validate(exactly(payload, keys))


@lru_cache(maxsize=1024)
def _decoder(model: type[BaseModel]) -> Callable[[EventEnvelope], Any]:
    return decoder(model)


def decode(model: type[Model], envelope: EventEnvelope) -> Model:
    """
    The payload of a stored event as its model, in the model's version.

    Args:
        model: The payload model.
        envelope: The event.

    Raises:
        InvalidPayload: The payload does not fit, or cannot be converted; the error names event type, source, seq_nr
            and field.
    """
    event: Model = _decoder(model)(envelope)
    return event


def newest_json(envelope: EventEnvelope) -> str:
    """
    The JSON of a stored event in the newest version that is declared for its type: the text as written if it has that.

    Raises:
        InvalidPayload: It cannot be converted.
    """
    payload, model = envelope.payload_json, declared_model(envelope.entity_type, envelope.event_type)
    if model is None or envelope.version >= event_type_of(model).version or isinstance(payload, Unreadable):
        return payload
    return upcast_json(model, envelope.version, payload, envelope.source_id, envelope.seq_nr)


def _does_not_fit(model: type[BaseModel], envelope: EventEnvelope, error: ValidationError) -> InvalidPayload:
    fields = "; ".join(
        f"{'.'.join(map(str, e['loc'])) or 'payload'}: {e['msg']}"
        for e in error.errors(include_input=False)[:3]
    )
    return InvalidPayload(f"{_named(envelope)} does not fit {model.__name__}: {fields}")


def _decode_older(
    model: type[Model], current: EventType, envelope: EventEnvelope, fields: frozenset[str] | None
) -> Model:
    if envelope.version > current.version:
        raise InvalidPayload(
            f"{_named(envelope)} was written as version {envelope.version}; this program knows "
            f"{model.__name__} up to version {current.version}: deploy the newer one"
        )
    return _validate(model, fields)(
        upcast_json(model, envelope.version, envelope.payload_json, envelope.source_id, envelope.seq_nr)
    )


def _named(envelope: EventEnvelope) -> str:
    return f"event {envelope.event_type!r} of source {envelope.source_id!r}, seq_nr {envelope.seq_nr}"
