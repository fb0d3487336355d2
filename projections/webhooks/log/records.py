"""The records of the delivery log, events and the attempts to deliver them, and requests for lists of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, Literal, TypeAlias, TypeVar

from journal import unstorable
from projections.webhooks.checks import check_time
from projections.webhooks.errors import InvalidQuery

Status: TypeAlias = Literal["success", "failed"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEvent:
    """An event that was for at least one endpoint."""

    event_id: str
    tenant: str
    topic: str
    time: datetime
    """Aware, to the microsecond."""
    endpoint_ids: tuple[str, ...] = ()
    """The endpoints that it was for."""
    eligible_for_retry: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    data: str | None = "{}"
    """JSON as it was written; None where it was erased, or was not asked for."""
    erased_at: datetime | None = None
    """When its payload was erased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAttempt:
    """One try to deliver an event to an endpoint."""

    attempt_id: str
    tenant: str
    event_id: str
    event_time: datetime
    topic: str
    endpoint_id: str
    status: Status
    time: datetime
    endpoint_type: str = "webhook"
    attempt_number: int = 1
    manual: bool = False
    """Somebody asked for it."""
    code: str | None = None
    """The HTTP status, or a word for why there was none."""
    response: str | None = None
    """What the endpoint answered; None where that was not asked for."""
    took: timedelta | None = None


@dataclass(frozen=True, slots=True)
class AttemptWithEvent:
    """An attempt, and its event."""

    attempt: LoggedAttempt
    event: LoggedEvent | None
    """None where the log does not have it any more."""


@dataclass(frozen=True, slots=True)
class LogPage(Generic[T]):
    """
    A page of a list.

    Args:
        data: The rows, in the order that was asked for; few or none may be followed by more pages.
        next: The cursor of the page after it; None where there is none.
        prev: The cursor of the page before it; None where there is none.
    """

    data: tuple[T, ...]
    next: str | None = None
    prev: str | None = None


DEFAULT_LIMIT = 100
MOST_ROWS = 1000
"""The number of a page, unless it says another, and the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRequest:
    """
    What both lists can be asked for. Of each filter any value may match, and all filters must; an empty one lets all.

    Args:
        tenants: Whose rows; empty: of all tenants, which is for administrators.
        event_ids: Of these events.
        endpoint_ids: For these endpoints; an event is for all that it matched.
        topics: About these.
        gte: Not before.
        lte: Not after.
        gt: After.
        lt: Before. The times are of the rows: of events when they were, of attempts when they were made.
        order: ``asc``, oldest first; anything else: newest first. Rows of equal time go by their ids.
        limit: The largest number of rows, up to 1,000; below 1: 100.
        next: A page's ``next``: the page after it. All else but the limit must be as it was for that page.
        prev: A page's ``prev``, to get the page before it; pass at most one of the two.
    """

    tenants: Iterable[str] = ()
    event_ids: Iterable[str] = ()
    endpoint_ids: Iterable[str] = ()
    topics: Iterable[str] = ()
    gte: datetime | None = None
    lte: datetime | None = None
    gt: datetime | None = None
    lt: datetime | None = None
    order: str = "desc"
    limit: int = DEFAULT_LIMIT
    next: str | None = None
    prev: str | None = None

    @property
    def ascending(self) -> bool:
        """Whether the oldest comes first."""
        return self.order == "asc"

    @property
    def rows(self) -> int:
        """How many rows a page has at most."""
        return min(self.limit, MOST_ROWS) if self.limit > 0 else DEFAULT_LIMIT

    def times(self) -> tuple[datetime | None, datetime | None, datetime | None, datetime | None]:
        """
        The bounds in time: gte, lte, gt, lt.

        Raises:
            InvalidValue: One has no time zone.
        """
        for name in ("gte", "lte", "gt", "lt"):
            check_time(name, getattr(self, name))
        return self.gte, self.lte, self.gt, self.lt

    def values(self, name: str) -> list[str] | None:
        """
        The values of a filter, each once and in order; None where it lets all.

        Raises:
            InvalidValue: A value is not a string, or one that nothing can have.
        """
        given: Iterable[str] | None = getattr(self, name)
        if isinstance(given, str):
            raise InvalidQuery(f"{name} takes several values: write [{given!r}]")
        values = sorted({checked_text(name, value) for value in given or ()})
        return values or None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsRequest(ListRequest):
    """
    What a list of events can be asked for.

    Args:
        data: With their payloads; a page has fewer rows then where these are long.
    """

    data: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsRequest(ListRequest):
    """
    What a list of attempts can be asked for.

    Args:
        endpoint_types: At endpoints of these types.
        status: Only those that ended so.
        response: With what the endpoints answered; a page has fewer rows then where answers are long.
        event_data: With the payload of the event of each; a page has fewer rows then where payloads are long.
    """

    endpoint_types: Iterable[str] = ()
    status: str | None = None
    response: bool = True
    event_data: bool = True


def checked_text(name: str, value: object) -> str:
    """Return a text, if the database can store it: no NUL, no half of a character; else InvalidValue."""
    if not isinstance(value, str):
        raise InvalidQuery(f"{name} is a string, not {value!r}")
    if found := unstorable(value):
        raise InvalidQuery(f"{name} holds {found}: {value!r}")
    return value
