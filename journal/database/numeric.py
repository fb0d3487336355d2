"""Numbers in the form in which PostgreSQL sends and takes a ``numeric``."""

from __future__ import annotations

from decimal import Decimal
from struct import pack, unpack_from
from typing import Any

_NAN, _INFINITY, _MINUS_INFINITY, _MINUS = 0xC000, 0xD000, 0xF000, 0x4000
_SIGNS = {"NaN": _NAN, "Infinity": _INFINITY, "-Infinity": _MINUS_INFINITY}
_SPECIAL = {sign: Decimal(text) for text, sign in _SIGNS.items()}
MOST_DIGITS = 131_072, 16_383
"""Before and after the point, as PostgreSQL has them."""


def numeric_text(value: Any) -> str:
    """
    A number in plain digits, or ``NaN``, ``Infinity`` or ``-Infinity``; a float is the number that it prints as.

    Raises:
        ValueError: PostgreSQL cannot hold it.
        TypeError: It is not a number.
    """
    number = value if isinstance(value, Decimal) else Decimal(
        float.__repr__(value) if isinstance(value, float) else value
    )  # fmt: skip
    if not number.is_finite():
        return _infinite(number)
    before, after = MOST_DIGITS
    if -after <= number.adjusted() < before:
        text = format(number, "f")
        if len(text) <= after or len(text.partition(".")[2]) <= after:
            return text
    raise ValueError(
        f"a number has more than {before:,} digits before the point, or {after:,} after it, which is all that "
        "PostgreSQL holds"
    )


def _infinite(number: Decimal) -> str:
    if number.is_snan():
        raise ValueError("a signaling NaN cannot be stored")
    return "NaN" if number.is_nan() else str(number)


def encode_numeric(value: Any) -> bytes:
    """The bytes of a number; raises as :func:`numeric_text`."""
    text = numeric_text(value)
    if text in _SIGNS:
        return pack("!HhHH", 0, 0, _SIGNS[text], 0)
    whole, _, fraction = text.partition(".")
    sign = _MINUS if whole.startswith("-") else 0
    whole = whole.lstrip("-0")
    groups = -(-len(whole) // 4)
    aligned = whole.zfill(4 * groups) + fraction + "0" * (-len(fraction) % 4)
    digits = [int(aligned[place : place + 4]) for place in range(0, len(aligned), 4)]
    return pack(f"!HhHH{len(digits)}H", len(digits), groups - 1, sign, len(fraction), *digits)


def decode_numeric(data: bytes) -> Decimal:
    """The number that bytes are."""
    count, weight, sign, scale = unpack_from("!HhHH", data)
    if sign in _SPECIAL:
        return _SPECIAL[sign]
    text = "".join([f"{digit:04}" for digit in unpack_from(f"!{count}H", data, 8)])
    point = 4 * (weight + 1)
    if point < 0:
        text, point = "0" * -point + text, 0
    text = text.ljust(point + scale, "0")
    return Decimal(f"{'-' if sign else ''}{text[:point] or '0'}.{text[point : point + scale]}")
