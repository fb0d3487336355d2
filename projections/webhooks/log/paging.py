"""
Pages of a list, both ways: cursors that say where one begins, which rows a store is to read, and what happens to them.

A cursor is a word that callers hand back. It names its list, its version, the order and a digest of the filters that
it was made for, the generation of the database, and a place: the time of a row in microseconds and its id. It holds no
secret and grants nothing: the filters apply to the page that it begins.

A store reads one row more than the page has: that one says whether there are more in this direction. It may stop
before, where it has looked at many rows that the filters do not let pass: then the page is short, or empty, and the
list goes on behind it. A page is short, too, where its payloads and answers have many bytes: these are read once it is
known which rows are on the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final, Generic, TypeVar

from journal import PAGE_BYTES, DatabaseWentBack, Generation
from projections.webhooks.errors import InvalidPageCursor, InvalidQuery
from projections.webhooks.log.records import AttemptsRequest, ListRequest, LogPage

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
    """Between two rows of a list."""

    time: datetime
    id: str
    inclusive: bool = False
    """Whether the row itself is on the page that begins here."""


@dataclass(frozen=True, slots=True)
class Cursors:
    """
    Makes and reads the cursors of one list, which ``resource`` names by three letters.

    ``filters`` is the same text for the same filters, and for no others. ``generation`` is that of the database that
    has the rows; None where none has.
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
        """The place of a cursor; InvalidValue: it is of another version, list, order, filter, tenant or state."""
        head = _HEAD.fullmatch(_text(cursor))
        if head is None or head["resource"] != self.resource:
            raise InvalidPageCursor(
                f"{_shown(cursor)} is not a cursor of this list: pass what a page of it said"
            )
        if int(head["version"]) != VERSION:
            raise InvalidPageCursor(
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
        except DatabaseWentBack as error:
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
        raise InvalidPageCursor(f"{_shown(cursor)} is at a time that cannot be") from None


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
            raise InvalidPageCursor(f"{_shown(cursor)} is not a cursor: it has {digit!r}")
        number = number * 62 + _VALUES[digit]
    try:
        text = number.to_bytes((number.bit_length() + 7) // 8).decode()
    except UnicodeDecodeError:
        raise InvalidPageCursor(f"{_shown(cursor)} is not a cursor: pass what a page said") from None
    if "\0" in text:
        raise InvalidPageCursor(f"{_shown(cursor)} is not a cursor: it has a NUL")
    return text


def _shown(cursor: str) -> str:
    return repr(cursor if len(cursor) <= 40 else f"{cursor[:37]}...")  # noqa: PLR2004 - as much as one reads


T = TypeVar("T")

EVENTS: Final = "evt"
ATTEMPTS: Final = "att"
"""What cursors call the two lists."""

LOOKED: Final = 10_000
"""Rows that a page looks at, at most."""

_FILTERS = ("tenants", "event_ids", "endpoint_ids", "topics")
_STATUSES = ("success", "failed")


@dataclass(frozen=True, slots=True)
class Walk:
    """
    How a store reads the rows of a page, one more than ``rows``, from ``start`` on; None: from the end of the list.

    ``backward``: the page is before its place, and the rows so in the reverse of their order. ``cursor`` names the
    place, and is empty where there is none.
    """

    cursors: Cursors
    ascending: bool
    backward: bool
    start: PagePlace | None
    rows: int
    cursor: str

    def under(self, generation: Generation) -> Walk:
        """The same in a database of this generation; InvalidValue: it has lost the state that the cursor is of."""
        cursors = replace(self.cursors, generation=generation)
        if self.cursor:
            cursors.decode(self.cursor)
        return replace(self, cursors=cursors)


@dataclass(frozen=True, slots=True)
class RowStep(Generic[T]):
    """A row that a store has come to."""

    row: T
    wanted: bool = True
    """Whether the filters let it pass."""
    is_last: bool = False
    """Whether the store has looked at as many rows as it may, this one included."""
    size: int = 0
    """Bytes of what is long in it, and was asked for: a page has PAGE_BYTES at most, unless it has one row alone."""


def walk_of(request: ListRequest, resource: str) -> Walk:
    """How to read what a request asks for of a list; InvalidValue: a cursor or a filter is invalid."""
    cursors = Cursors(resource, request.ascending, _filters(request))
    if request.next and request.prev:
        raise InvalidPageCursor("pass next or prev, not both")
    backward = bool(request.prev)
    cursor = request.prev or request.next or ""
    return Walk(
        cursors,
        request.ascending != backward,
        backward,
        cursors.decode(cursor) if cursor else None,
        request.rows,
        cursor,
    )


def page_of(
    walk: Walk, steps: Sequence[RowStep[T]], place: Callable[[T], tuple[datetime, str]]
) -> LogPage[T]:
    """The page that was walked."""
    rows: list[T] = []
    size = 0
    end: T | None = None  # of the page, where the list goes on behind it
    for step in steps:
        if step.wanted:
            size += step.size
            if len(rows) == walk.rows or (rows and size > PAGE_BYTES):
                end = rows[-1]
                break
            rows.append(step.row)
        if step.is_last:
            end = step.row
            break
    onward = None if end is None else walk.cursors.encode(PagePlace(*place(end)))
    back = _back(walk, rows, place)
    if walk.backward:
        return LogPage(tuple(rows[::-1]), next=back, prev=onward)
    return LogPage(tuple(rows), next=onward, prev=back)


def _back(walk: Walk, rows: Sequence[T], place: Callable[[T], tuple[datetime, str]]) -> str | None:
    """The cursor against the direction of reading: from an empty page, with the row that it was after."""
    if walk.start is None:
        return None
    if rows:
        return walk.cursors.encode(PagePlace(*place(rows[0])))
    return walk.cursors.encode(PagePlace(walk.start.time, walk.start.id, inclusive=not walk.start.inclusive))


def _filters(request: ListRequest) -> str:
    """The same text for the same filters, in whatever order and zone they are written."""
    values: list[object] = [request.values(name) for name in _FILTERS]
    values += [None if time is None else time.astimezone(UTC).isoformat() for time in request.times()]
    if isinstance(request, AttemptsRequest):
        values += [request.values("endpoint_types"), _status(request.status)]
    return json.dumps(values)


def _status(status: str | None) -> str | None:
    if status and status not in _STATUSES:
        raise InvalidQuery(f"status is success or failed, not {status!r}")
    return status or None
