"""
Payloads and metadata as JSON text.

Every check that PostgreSQL would make in the middle of an append is made here before it, naming the value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, from_json, to_json

from journal.errors import InvalidEvent
from journal.events import RawJson
from journal.storable_text import unstorable

MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
"""A page of events is held in memory: what is larger belongs elsewhere, with a reference in the event."""

LONGEST_INTEGER = 4300
"""Digits of an integer: neither Python nor pydantic reads more, for that takes a time that grows with their square."""


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
            # What pydantic writes for a string, or a float, that cannot be stored.
            suspicious = "\\u0000" in text or "NaN" in text or "Infinity" in text
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
    raise ValueError(f"{name} is not a JSON number; use null or a string")


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
        raise ValueError(f"{value} is not a JSON number; use null or a string")
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
    Check that PostgreSQL can store a string; the error does not show it, because it may be secret.

    Raises:
        InvalidEvent: It holds NUL or half a surrogate pair.
    """
    if found := unstorable(text):
        raise InvalidEvent(f"{what} holds {found}, which PostgreSQL cannot store")
