"""JSON values as filters see them: numbers exact, booleans no numbers, and what PostgreSQL can store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from journal import unstorable

MISSING: Final = object()
"""Stands for the value of a field that is not there."""

# Far beyond what is compared, well within PostgreSQL's numeric and Python's limit for reading integers.
_MOST_BITS = 13_000
_LARGEST_EXPONENT = 4_000
# What is longer is a Decimal: integers take a time that grows with the square of their digits to be read and compared.
_LONGEST_INTEGER = 18


def read_json(text: str | bytes) -> Any:
    """
    Read JSON without rounding a number: with a point or an exponent it is a Decimal.

    A number beyond what a Decimal holds, such as 1e9999999999999999999, is infinite or zero.

    Raises:
        ValueError: The text is not JSON.
    """
    return json.loads(text, parse_float=_decimal, parse_int=_integer)


def number(value: object) -> int | Decimal | None:
    """Return the exact number that a value is; None if it is none (a boolean is none, nor is NaN)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        value = Decimal(repr(value))  # the number that was written, not the binary one next to it
    if isinstance(value, Decimal):
        return None if value.is_nan() else value
    return value if isinstance(value, int) else None


def same(one: Any, other: Any) -> bool:
    """Tell whether two values are equal as JSON: 1 is 1.0 but not true, and the order of fields says nothing."""
    one_number, other_number = number(one), number(other)
    if one_number is not None and other_number is not None:
        return one_number == other_number
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(each, other[name]) for name, each in one.items())
    if is_list(one) and is_list(other):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def key(value: Any) -> object:
    """A scalar, or a time, for looking it up: the keys of two are equal if they are the :func:`same`."""
    if isinstance(value, str):
        return value
    exact = number(value)
    return (type(value), value) if exact is None else exact


def holds(comparison: Callable[[Any, Any], bool], one: object, other: object) -> bool:
    """Compare two numbers, two strings or two times; what differs in kind fulfils no comparison."""
    one_number, other_number = number(one), number(other)
    if one_number is not None and other_number is not None:
        return comparison(one_number, other_number)
    return any(isinstance(one, kind) and isinstance(other, kind) for kind in (str, datetime)) and comparison(
        one, other
    )


def is_list(value: object) -> bool:
    """Tell whether a value is a JSON array."""
    return isinstance(value, (list, tuple))


def is_scalar(value: object) -> bool:
    """Tell whether a value is a string, a number, a boolean or null."""
    return value is None or isinstance(value, (str, bool)) or number(value) is not None


def storable(value: object) -> bool:
    """Tell whether a scalar is JSON that PostgreSQL stores: no NUL, no half of a surrogate pair, no endless number."""
    if isinstance(value, str):
        return unstorable(value) is None
    exact = number(value)
    if isinstance(exact, Decimal):
        return exact.is_finite() and abs(exact.adjusted()) <= _LARGEST_EXPONENT
    if exact is not None:
        return exact.bit_length() <= _MOST_BITS
    return value is None or isinstance(value, bool)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        size = "0" if "e-" in text.lower() else "Infinity"
        return Decimal(f"-{size}" if text.startswith("-") else size)


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= _LONGEST_INTEGER else Decimal(text)
