"""Event types: the name and version under which a pydantic model is stored, and older versions lifted to the newest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json

from journal.errors import InvalidPayload
from journal.events import EventEnvelope, Unreadable
from journal.exact_numbers import decimal_keys, exactly, has_decimals, parsed, written
from journal.naive_times import NaiveTimes, validator

Model = TypeVar("Model", bound=BaseModel)
Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


class EventType(NamedTuple):
    """The name and version under which a model's events are stored, and how older versions become it."""

    name: str
    version: int
    upcast: Mapping[int, Upcaster]
    naive_times: NaiveTimes = "refuse"


def event_type(
    name: str | None = None,
    *,
    version: int = 1,
    upcast: Mapping[int, Upcaster] | None = None,
    naive_times: NaiveTimes = "refuse",
) -> Callable[[type[Model]], type[Model]]:
    """
    Say under which name and version events of a model are stored.

    Without this decorator the name is the class's and the version is 1.

    Args:
        name: The stored name; by default the class's.
        version: Raise it when the payload's shape changes, and keep ``upcast`` functions for the old ones.
        upcast: For each older version, a function from its payload to the payload of the next version.
        naive_times: What a datetime without a time zone is, in a field ``datetime``: ``refuse`` refuses the event, to
            append and to read; ``utc`` takes it for one in UTC. A field ``NaiveDatetime`` has none, and needs neither.

    Raises:
        ValueError: A version is below 1, an older version has no function, or ``naive_times`` is another word.
    """
    if naive_times not in get_args(NaiveTimes):
        raise ValueError(f"naive_times must be 'refuse' or 'utc', not {naive_times!r}")
    steps = dict(upcast or {})
    if not 1 <= version <= 32767:  # noqa: PLR2004 - a smallint column
        raise ValueError(f"version must be 1 to 32767, not {version}")
    if missing := sorted(set(range(1, version)) - set(steps)):
        raise ValueError(
            f"version {version} needs an upcast function from version {missing[0]}: upcast={{…}}"
        )

    def register(model: type[Model]) -> type[Model]:
        model.__event_type__ = EventType(name or model.__name__, version, steps, naive_times)  # type: ignore[attr-defined]
        return model

    return register


@lru_cache(maxsize=1024)
def event_type_of(model: type[BaseModel]) -> EventType:
    """The name and version of a model's events."""
    declared = model.__dict__.get("__event_type__")  # not inherited: a subclass is another event
    return declared if isinstance(declared, EventType) else EventType(model.__name__, 1, {})


def decoder(model: type[Model], fields: frozenset[str] | None = None) -> Callable[[EventEnvelope], Model]:
    """
    What turns stored events into a model, lifting older versions to the newest.

    With ``fields``, it looks at no others, and the model has only these; it has no validators of its own then.

    The function raises InvalidPayload where a payload does not fit; the error names event type, source, seq_nr
    and field.
    """
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


def decode(model: type[Model], envelope: EventEnvelope) -> Model:
    """The payload of one stored event as its model; see :func:`decoder`."""
    return decoder(model)(envelope)


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
    payload = envelope.payload_json
    return _validate(model, fields)(_upcast(model, envelope.version, payload, _named(envelope)))


def _upcast(model: type[BaseModel], version: int, payload: str | bytes, what: str) -> bytes:
    current, exact = event_type_of(model), has_decimals(model)
    value = parsed(payload) if exact else from_json(payload)
    for step in range(version, current.version):
        try:
            value = current.upcast[step](value)
        except Exception as error:
            raise InvalidPayload(f"{what}: upcast from version {step} failed: {error!r}") from error
    return written(value, decimal_keys(model)) if exact else to_json(value)


def _named(envelope: EventEnvelope) -> str:
    return f"event {envelope.event_type!r} of source {envelope.source_id!r}, seq_nr {envelope.seq_nr}"
