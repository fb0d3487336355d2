"""
Cursors: where a page of a list begins, as a word that callers hand back.

A cursor names its list, its version, the order and a digest of the filters that it was made for, the generation of the
database, and a place: the time of a row in microseconds and its id. It holds no secret and grants nothing: the filters
apply to the page that it begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final

from journal import Generation, LostGeneration
from projections.webhooks.errors import CursorVersionError, InvalidPageCursor

__all__ = ["LONGEST", "VERSION", "Cursors", "PagePlace"]

VERSION: Final = 3
LONGEST: Final = 512
"""Characters: an id has at most 255 bytes."""

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_VALUES: Final[Mapping[str, int]] = {digit: value for value, digit in enumerate(_DIGITS)}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO: Final = timedelta(microseconds=1)

_HEAD = re.compile(r"(?P<resource>[a-z]{3})v(?P<version>\d{2}):(?P<rest>.*)", re.DOTALL | re.ASCII)
_REST = re.compile(
    r"(?P<order>asc|desc):(?P<digest>[0-9a-f]{16}):(?P<generation>[0-9a-f.]*):(?P<time>-?\d{1,18}):(?P<side>at|past)::(?P<id>.+)",
    re.DOTALL | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class PagePlace:
    """
    Between two rows of a list.

    Args:
        time: Of a row.
        id: Of that row.
        inclusive: Whether the row itself is on the page that begins here.
    """

    time: datetime
    id: str
    inclusive: bool = False


@dataclass(frozen=True, slots=True)
class Cursors:
    """
    Makes and reads the cursors of one list.

    Args:
        resource: Three letters that name the list.
        ascending: Its order.
        filters: A text that is the same for the same filters, and for no others.
        generation: Of the database that has the rows; None where none has.
    """

    resource: str
    ascending: bool
    filters: str
    generation: Generation | None = None

    def encode(self, place: PagePlace) -> str:
        """The cursor of a place."""
        time = (place.time - _EPOCH) // _MICRO
        side = "at" if place.inclusive else "past"
        generation = "" if self.generation is None else self.generation.token()
        text = f"{self.resource}v{VERSION:02}:{self._binding}:{generation}:{time}:{side}::{place.id}"
        return _base62(text.encode())

    def decode(self, cursor: str) -> PagePlace:
        """
        The place of a cursor.

        Raises:
            CursorVersionError: It is of another version.
            InvalidPageCursor: It is malformed, of another list, order, filter or tenant, or of a lost state.
        """
        head = _HEAD.fullmatch(_text(cursor))
        if head is None or head["resource"] != self.resource:
            raise InvalidPageCursor(
                f"{_shown(cursor)} is no cursor of this list: pass what a page of it said"
            )
        if int(head["version"]) != VERSION:
            raise CursorVersionError(
                f"the cursor is of version {int(head['version'])}, expected version {VERSION}: "
                "begin with the first page"
            )
        rest = _REST.fullmatch(head["rest"])
        if rest is None:
            raise InvalidPageCursor(f"{_shown(cursor)} has no place in a list: pass what a page of it said")
        if f"{rest['order']}:{rest['digest']}" != self._binding:
            raise InvalidPageCursor(
                "the cursor is of a list in another order, or of other filters or tenants"
            )
        self._check(cursor, rest["generation"])
        return PagePlace(_time(cursor, int(rest["time"])), rest["id"], rest["side"] == "at")

    def _check(self, cursor: str, token: str) -> None:
        if self.generation is None:
            return
        try:
            self.generation.check(token)
        except LostGeneration as error:
            raise InvalidPageCursor(
                f"the cursor is of a state of the database that may be gone: {error}"
            ) from error
        except ValueError:
            raise InvalidPageCursor(
                f"{_shown(cursor)} is of no database: pass what a page of it said"
            ) from None

    @property
    def _binding(self) -> str:
        digest = blake2b(self.filters.encode(), digest_size=8).hexdigest()
        return f"{'asc' if self.ascending else 'desc'}:{digest}"


def _time(cursor: str, micros: int) -> datetime:
    try:
        return _EPOCH + micros * _MICRO
    except OverflowError:
        raise InvalidPageCursor(f"{_shown(cursor)} is at a time that can not be") from None


def _base62(data: bytes) -> str:
    number = int.from_bytes(data)
    digits: list[str] = []
    while number:
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


def _text(cursor: str) -> str:
    # The work grows with the square of the length: what is too long is refused before it is looked at.
    if len(cursor) > LONGEST:
        raise InvalidPageCursor(f"a cursor has at most {LONGEST} characters, not {len(cursor)}")
    number = 0
    for digit in cursor:
        if digit not in _VALUES:
            raise InvalidPageCursor(f"{_shown(cursor)} is no cursor: it has {digit!r}")
        number = number * 62 + _VALUES[digit]
    try:
        text = number.to_bytes((number.bit_length() + 7) // 8).decode()
    except UnicodeDecodeError:
        raise InvalidPageCursor(f"{_shown(cursor)} is no cursor: pass what a page said") from None
    if "\0" in text:
        raise InvalidPageCursor(f"{_shown(cursor)} is no cursor: it has a NUL")
    return text


def _shown(cursor: str) -> str:
    return repr(cursor if len(cursor) <= 40 else f"{cursor[:37]}...")  # noqa: PLR2004 - as much as one reads
