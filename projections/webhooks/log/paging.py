"""
Pages of a list, both ways: which rows a store is to read for one, and what becomes of them.

A store reads one row more than the page has: that one says whether there are more in this direction. It may stop
before, where it has looked at many rows that the filters do not let pass: then the page is short, or empty, and the
list goes on behind it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

from journal import Generation
from projections.webhooks.errors import InvalidPageCursor, InvalidQuery
from projections.webhooks.log.cursors import Cursors, PagePlace
from projections.webhooks.log.records import LogPage
from projections.webhooks.log.requests import AttemptsRequest, ListRequest

__all__ = ["ATTEMPTS", "EVENTS", "LOOKED", "RowStep", "Walk", "page_of", "walk_of"]

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
    How a store reads the rows of a page.

    Args:
        cursors: What makes the page's cursors.
        ascending: Whether it goes from old to new.
        backward: Whether the page is before its place, and the rows so in the reverse of their order.
        start: Where it begins; None: at the end of the list.
        rows: How many rows the page has at most; one more is to be read.
        cursor: What names the place; empty where there is none.
    """

    cursors: Cursors
    ascending: bool
    backward: bool
    start: PagePlace | None
    rows: int
    cursor: str

    def under(self, generation: Generation) -> Walk:
        """
        The same in a database that has been asked for its generation.

        Raises:
            InvalidPageCursor: The cursor is of a state that the database has lost.
        """
        cursors = replace(self.cursors, generation=generation)
        if self.cursor:
            cursors.decode(self.cursor)
        return replace(self, cursors=cursors)


@dataclass(frozen=True, slots=True)
class RowStep(Generic[T]):
    """
    A row that a store has come to.

    Args:
        row: The row.
        wanted: Whether the filters let it pass.
        is_last: Whether the store has looked at as many rows as it may, this one included.
    """

    row: T
    wanted: bool = True
    is_last: bool = False


def walk_of(request: ListRequest, resource: str) -> Walk:
    """
    How to read what a request asks for.

    Args:
        request: The request.
        resource: Three letters that name the list.

    Raises:
        InvalidPageCursor: A cursor is malformed or of another list, or there are two.
        InvalidQuery: A filter can not be.
    """
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
    """
    The page that was walked.

    Args:
        walk: The filters, the order and the size of pages.
        steps: What was read, in the order of reading.
        place: Time and id of a row.
    """
    rows: list[T] = []
    end: T | None = None  # of the page, where the list goes on behind it
    for step in steps:
        if step.wanted:
            if len(rows) == walk.rows:
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
