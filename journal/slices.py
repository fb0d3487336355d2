"""
Slices: every source belongs to one of 1024, and workers share ranges of them.

The number is fixed: another one would move every source. The hash is Java's, so that journals of Akka and
Pekko keep their slices (pekko.md: ``|hashCode % 1024|``).
"""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import NamedTuple

from journal.errors import InvalidValue

NUMBER_OF_SLICES = 1024


def slice_of(source_id: str) -> int:
    """
    Slice of a source, 0 to 1023: ``abs(h % 1024)`` with ``h`` = Java's ``String.hashCode``.

    Java hashes UTF-16 units, keeps 32 signed bits, and its ``%`` keeps the sign.

    Raises:
        UnicodeEncodeError: The id has half a surrogate pair, which PostgreSQL cannot store either.
    """
    hashed = 0
    for unit in array("H", source_id.encode("utf-16-le" if _LITTLE_ENDIAN else "utf-16-be")):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >> 31 else hashed
    return abs(signed) % NUMBER_OF_SLICES


_LITTLE_ENDIAN = array("H", [1]).tobytes()[0] == 1


class SliceRange(NamedTuple):
    """An inclusive range of slices."""

    min_slice: int
    max_slice: int

    def __contains__(self, slice_number: object) -> bool:
        """Whether a slice is in the range."""
        return isinstance(slice_number, int) and self.min_slice <= slice_number <= self.max_slice

    def __str__(self) -> str:
        """``0-255``."""
        return f"{self.min_slice}-{self.max_slice}"

    @classmethod
    def of(cls, min_slice: int, max_slice: int) -> SliceRange:
        """
        Make a checked range.

        Raises:
            InvalidValue: The bounds are not 0 <= min <= max <= 1023.
        """
        if not 0 <= min_slice <= max_slice < NUMBER_OF_SLICES:
            raise InvalidValue(
                f"slice range {min_slice}-{max_slice} is not within 0-{NUMBER_OF_SLICES - 1} in ascending order"
            )
        return cls(min_slice, max_slice)


ALL_SLICES = SliceRange(0, NUMBER_OF_SLICES - 1)


def slice_ranges(count: int) -> list[SliceRange]:
    """
    Cut all slices into contiguous ranges whose sizes differ by one at most.

    Args:
        count: How many ranges, 1 to 1024; it need not divide 1024.

    Raises:
        InvalidValue: ``count`` is out of bounds.
    """
    if not 1 <= count <= NUMBER_OF_SLICES:
        raise InvalidValue(f"the number of ranges must be 1 to {NUMBER_OF_SLICES}, not {count}")
    bounds = [i * NUMBER_OF_SLICES // count for i in range(count + 1)]
    return [SliceRange(low, high - 1) for low, high in pairwise(bounds)]
