"""
Payloads: pydantic models to JSON text and back, with older versions lifted to the newest.

Every check that PostgreSQL would make in the middle of an append is made here before it, naming the value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from journal.errors import InvalidEvent, InvalidPayload
from journal.events import EventEnvelope, RawJson

MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
"""A page of events is held in memory: what is larger belongs elsewhere, with a reference in the event."""

LONGEST_INTEGER = 4300
"""Digits of an integer: neither Python nor pydantic reads more, for that takes a time that grows with their square."""

Model = TypeVar("Model", bound=BaseModel)
Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


class EventType(NamedTuple):
    """The name and version under which a model's events are stored, and how older versions become it."""

    name: str
    version: int
    upcast: Mapping[int, Upcaster]


def event_type(
    name: str | None = None, *, version: int = 1, upcast: Mapping[int, Upcaster] | None = None
) -> Callable[[type[Model]], type[Model]]:
    """
    Say under which name and version events of a model are stored.

    Without this decorator the name is the class's and the version is 1.

    Args:
        name: The stored name; by default the class's.
        version: Raise it when the payload's shape changes, and keep ``upcast`` functions for the old ones.
        upcast: For each older version, a function from its payload to the payload of the next version.

    Raises:
        ValueError: A version is below 1, or an older version has no function.
    """
    steps = dict(upcast or {})
    if not 1 <= version <= 32767:  # noqa: PLR2004 - a smallint column
        raise ValueError(f"version must be 1 to 32767, not {version}")
    if missing := sorted(set(range(1, version)) - set(steps)):
        raise ValueError(
            f"version {version} needs an upcast function from version {missing[0]}: upcast={{…}}"
        )

    def register(model: type[Model]) -> type[Model]:
        model.__event_type__ = EventType(name or model.__name__, version, steps)  # type: ignore[attr-defined]
        return model

    return register


@lru_cache(maxsize=1024)
def event_type_of(model: type[BaseModel]) -> EventType:
    """The name and version of a model's events."""
    declared = model.__dict__.get("__event_type__")  # not inherited: a subclass is another event
    return declared if isinstance(declared, EventType) else EventType(model.__name__, 1, {})


def encode(value: Any, what: str) -> str:
    """
    JSON text of a payload or of metadata.

    Args:
        value: A pydantic model, RawJson, or anything that pydantic can serialise.
        what: Names the value in errors, e.g. ``payload of source 'a'``.

    Raises:
        InvalidEvent: It is not JSON, holds what JSON or PostgreSQL cannot (NaN, infinities, numbers beyond a
            float, integers of more than 4,300 digits, NUL, half a surrogate pair), or is larger than 16 MiB.
    """
    try:
        encoded = value.encode() if isinstance(value, RawJson) else to_json(value, inf_nan_mode="constants")
        text = encoded.decode()
        if len(text) > LONGEST_INTEGER and _LONG_INTEGER.search(text):
            _parsed(text)  # before others say of such a number what helps nobody
        if isinstance(value, RawJson):
            from_json(encoded, allow_inf_nan=False)
            suspicious = (
                "\\u" in text or _EXPONENT.search(text) is not None or _DIGITS.search(text, 280) is not None
            )
        else:
            suspicious = any(map(text.__contains__, _NEVER))
        if suspicious:
            _check_value(_parsed(text))
        if "null" in text and not isinstance(value, RawJson):
            _check_finite(value)  # pydantic writes NaN as null unless the model says otherwise
    except (ValueError, RecursionError, PydanticSerializationError) as error:
        raise InvalidEvent(f"{what} is not JSON: {str(error)[:200]}") from error
    if len(encoded) > MAX_PAYLOAD_BYTES:
        raise InvalidEvent(
            f"{what} has {len(encoded):,} bytes, more than {MAX_PAYLOAD_BYTES:,}: "
            "store it elsewhere and append a reference"
        )
    return text


# What pydantic writes for a string, or a float, that cannot be stored.
_NEVER = ("\\u0000", "NaN", "Infinity")
# What may be beyond a float: an exponent of three digits, or more than 308 digits, the last ones of which come late.
_EXPONENT = re.compile(r"[eE]\+?\d{3}")
_DIGITS = re.compile(r"\d{20}")
_LONG_INTEGER = re.compile(rf"(?<!\d)\d{{{LONGEST_INTEGER + 1}}}")


class _Pairs(list[tuple[str, Any]]):
    """An object with all of its keys, also those that are there twice."""


def _parsed(text: str) -> Any:
    return json.loads(
        text, parse_constant=_refuse_constant, parse_float=_checked_float, parse_int=_checked_integer,
        object_pairs_hook=_Pairs,
    )  # fmt: skip


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number; use null or a string")


def _checked_float(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"number {text[:40]} is beyond what a float holds; use a string")
    return number


def _checked_integer(text: str) -> int:
    digits = len(text.removeprefix("-"))
    if digits > LONGEST_INTEGER:
        raise ValueError(
            f"integer {text[:20]}… has {digits:,} digits, more than the {LONGEST_INTEGER:,} that Python reads; "
            "use a string"
        )
    return int(text)


def _check_value(value: Any) -> None:
    if isinstance(value, str):
        check_text(value, "a string")
    elif isinstance(value, _Pairs):
        for name, item in value:
            check_text(name, "a key")
            _check_value(item)
    elif isinstance(value, list):
        for item in value:
            _check_value(item)


def _check_finite(value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no JSON number; use null or a string")
    if isinstance(value, BaseModel):
        if "ser_json_inf_nan" in value.model_config:
            return
        value = value.model_dump()
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        for item in value:
            _check_finite(item)


def check_text(text: str, what: str) -> None:
    """
    Check that PostgreSQL can store a string.

    Raises:
        InvalidEvent: It holds NUL or half a surrogate pair.
    """
    if "\0" in text:
        raise InvalidEvent(f"{what} holds the character NUL, which PostgreSQL cannot store: {text[:40]!r}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidEvent(
            f"{what} holds half of a surrogate pair at {error.start}: {text[:40]!r}"
        ) from error


def decoder(model: type[Model]) -> Callable[[EventEnvelope], Model]:
    """
    What turns stored events into a model, lifting older versions to the newest.

    The function raises InvalidPayload where a payload does not fit; the error names event type, source, seq_nr
    and field.
    """
    current = event_type_of(model)
    version, validate = current.version, model.__pydantic_validator__.validate_json

    def decode(envelope: EventEnvelope) -> Model:
        try:
            if envelope.version == version:
                return cast("Model", validate(envelope.payload_json))
            return _decode_older(model, current, envelope)
        except ValidationError as error:
            raise _does_not_fit(model, envelope, error) from None

    return decode


def decode(model: type[Model], envelope: EventEnvelope) -> Model:
    """The payload of one stored event as its model; see :func:`decoder`."""
    return decoder(model)(envelope)


def _does_not_fit(model: type[BaseModel], envelope: EventEnvelope, error: ValidationError) -> InvalidPayload:
    fields = "; ".join(
        f"{'.'.join(map(str, e['loc'])) or 'payload'}: {e['msg']}"
        for e in error.errors(include_input=False)[:3]
    )
    return InvalidPayload(f"{_named(envelope)} does not fit {model.__name__}: {fields}")


def _decode_older(model: type[Model], current: EventType, envelope: EventEnvelope) -> Model:
    if envelope.version > current.version:
        raise InvalidPayload(
            f"{_named(envelope)} was written as version {envelope.version}; this program knows "
            f"{model.__name__} up to version {current.version}: deploy the newer one"
        )
    payload = from_json(envelope.payload_json)
    for version in range(envelope.version, current.version):
        try:
            payload = current.upcast[version](payload)
        except Exception as error:
            raise InvalidPayload(
                f"{_named(envelope)}: upcast from version {version} failed: {error!r}"
            ) from error
    return model.model_validate_json(to_json(payload))


def _named(envelope: EventEnvelope) -> str:
    return f"event {envelope.event_type!r} of source {envelope.source_id!r}, seq_nr {envelope.seq_nr}"
