"""What is checked of CBOR before it is decoded: decoding must not take more time or memory than its length says."""

from __future__ import annotations

import re

from journal.errors import InvalidPayload
from journal.payload import LONGEST_INTEGER

_LONGEST_BIGNUM = LONGEST_INTEGER * 415 // 1000
"""Bytes: integers of more digits are not read as JSON either, and making decimals of them takes their square."""
_NESTED = 400
_BIGNUMS = {2, 3}
_TAGS = {0, 1, *_BIGNUMS, 4}
"""Dates, long numbers and decimal fractions."""
_SUSPICIOUS = re.compile(
    rb"[\xc2\xc3][\x59-\x5b\x5f]"  # a long number
    rb"|[\xc5-\xd7]|\xd8[\x00-\x7f]|\xd9[\x00-\x7f]|[\xda\xdb]\x00"  # other tags, some of which refer to what is shared
)
"""In text these bytes are followed by others, so that hardly any payload is looked at more closely."""
_STRINGS, _ARRAY, _MAP, _TAG = {2, 3}, 4, 5, 6
_INDEFINITE, _BREAK = 31, 0xFF


def check_cbor(data: bytes) -> None:
    """
    Refuse what is small, and large when it is decoded: references to what is shared, and numbers of many digits.

    Raises:
        InvalidPayload: It has such, or is cut off.
    """
    if _SUSPICIOUS.search(data) is not None:
        _walk(data)


def _walk(data: bytes) -> None:
    """Go through all items; of each open array, map, tag and text in parts, it is known how many are left."""
    place, left, is_number = 0, [1], False
    while left:
        if left[-1] == 0:
            left.pop()
            continue
        if place >= len(data):
            raise InvalidPayload("it is cut off")
        if data[place] == _BREAK:
            left.pop()
            place += 1
            continue
        left[-1] -= 1
        kind, value, place = _head(data, place)
        _check_item(kind, value, is_number=is_number)
        is_number = kind == _TAG and value in _BIGNUMS
        if kind in _STRINGS and value is not None:
            place += value
        elif inside := _items(kind, value):
            left.append(inside)
        if len(left) > _NESTED:
            raise InvalidPayload(f"its values are nested more than {_NESTED} times")


def _check_item(kind: int, value: int | None, *, is_number: bool) -> None:
    if kind == _TAG and value not in _TAGS:
        raise InvalidPayload(f"it has values of CBOR's tag {value}, which are not read")
    if is_number and kind in _STRINGS and (value is None or value > _LONGEST_BIGNUM):
        raise InvalidPayload(f"it has a number of more than {LONGEST_INTEGER:,} digits, or one in parts")


def _items(kind: int, value: int | None) -> int:
    """How many items are in one; -1 where their end is marked."""
    if kind == _TAG:
        return 1
    if kind not in {_ARRAY, _MAP, *_STRINGS}:
        return 0
    return -1 if value is None else value * (2 if kind == _MAP else 1)


def _head(data: bytes, place: int) -> tuple[int, int | None, int]:
    """The kind of an item, its value (None where its end is marked), and what follows."""
    kind, small = data[place] >> 5, data[place] & 0x1F
    if small < 24:  # noqa: PLR2004 - of the format
        return kind, small, place + 1
    if small == _INDEFINITE:
        return kind, None, place + 1
    length = 1 << (small - 24)
    return kind, int.from_bytes(data[place + 1 : place + 1 + length]), place + 1 + length
