"""A handler of a group as it was registered, checked."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias, TypedDict

from journal import EntityTypes
from journal.database import Fault
from projections.errors import InvalidHandler
from projections.failing import Pause, Retries
from projections.running import surviving
from projections.subscriptions.errors import HandlerTimedOut
from projections.subscriptions.matched_event import MatchedEvent
from projections.subscriptions.settings import RETRIES_OF_OUTAGES

MAX_NAME_LENGTH = 255

Handler: TypeAlias = Callable[[Sequence[MatchedEvent]], Awaitable[None]]
"""What handles a batch; it has failed when it raises."""

SplitBy: TypeAlias = Callable[[Sequence[MatchedEvent]], Iterable[Sequence[MatchedEvent]]]
"""What makes parts of a batch, which are handled one after another."""


class HandlerOptions(TypedDict, total=False):
    """What :meth:`projections.subscriptions.Consumer.handle` takes alongside the name; it says what each means."""

    topics: Sequence[str] | None
    entity_types: Sequence[str] | EntityTypes | None
    contains: Mapping[str, Any] | None
    condition: str | None
    params: Mapping[str, Any] | None
    expires_after: timedelta | None
    start: datetime | str | None
    retries: Retries | Sequence[Pause] | None
    timeout: Pause | None
    split_by: SplitBy | None
    batch: int | None


_FILTERS = ("topics", "entity_types", "contains", "condition", "params", "expires_after", "start")


def register(name: str, call: Handler, options: HandlerOptions, timeout: timedelta) -> RegisteredHandler:
    """Check a handler; InvalidHandler says what is wrong with it."""
    if unknown := sorted(options.keys() - HandlerOptions.__annotations__.keys()):
        raise InvalidHandler(
            f"handler {name!r}: {unknown[0]!r} is not one of {', '.join(HandlerOptions.__annotations__)}"
        )
    return RegisteredHandler(
        name,
        call,
        {name: value for name, value in options.items() if name in _FILTERS},
        _retries(options.get("retries"), name),
        _timeout(options.get("timeout"), name) or timeout,
        options.get("split_by"),
        options.get("batch"),
    )


class HandlerSubscription(NamedTuple):
    """
    A handler as its group knows it: by the subscription whose events it gets, and by a number.

    What is kept for it while nobody has it names that number.
    """

    handler: RegisteredHandler
    subscription_id: int
    handler_id: int


@dataclass(frozen=True, slots=True)
class RegisteredHandler:
    """
    A handler.

    Args:
        name: Its name, unique within the group: failed batches are kept under it.
        call: The async function that gets the batches.
        filters: Which events it is for: arguments of :func:`projections.subscriptions.subscribe`.
        retries: When a batch that failed is tried again; None: the range starts again.
        timeout: How long a call may take.
        split_by: What makes parts of a batch.
        batch: The largest number of events in a call; None: as many as are read at a time.
    """

    name: str
    call: Handler
    filters: Mapping[str, Any]
    retries: Retries | None
    timeout: timedelta
    split_by: SplitBy | None = None
    batch: int | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not _is_async(self.call):
            raise InvalidHandler(f"handler {self.name!r} must be an async function that takes a batch")
        _check_batch(self.batch, self.name)
        if self.split_by is not None and not callable(self.split_by):
            raise InvalidHandler(
                f"handler {self.name!r}: split_by must be a function from a batch to its parts"
            )

    @property
    def start(self) -> datetime | str | None:
        """From which time on it asks for events; None: as its group was made with."""
        start: datetime | str | None = self.filters.get("start")
        return start

    async def handle(self, batch: Sequence[MatchedEvent]) -> None:
        """
        Have a batch handled within its time (HandlerTimedOut); raises whatever the handler does.

        HandlerFailed: it ended as if it, or the process, were to end, and nobody had asked for that.
        """
        limit = asyncio.timeout(self.timeout.total_seconds())
        try:
            with surviving():
                async with limit:
                    await self.call(batch)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise HandlerTimedOut(f"no end after {self.timeout.total_seconds():g} s") from error

    def after(self, attempts: int, fault: Fault) -> tuple[int, timedelta | None]:
        """
        What a failed try counts as: tries that count now, and how long to wait for the next; None: no more are left.

        What may not be the fault of the batch uses up no try: the database of the group is away, has cancelled a
        statement, or lacks a table.
        """
        if fault is not Fault.EVENT:
            retries = self.retries or RETRIES_OF_OUTAGES
            return attempts, retries.delay(min(attempts + 1, retries.limit))
        return attempts + 1, None if self.retries is None else self.retries.delay(attempts + 1)

    def batches(self, events: Sequence[MatchedEvent]) -> list[Sequence[MatchedEvent]]:
        """What the events of a page are handled in."""
        size = self.batch or len(events)
        # Nothing that a handler could change: what it fails on is kept as it was.
        return [tuple(events[place : place + size]) for place in range(0, len(events), size)]

    def parts(self, batch: Sequence[MatchedEvent]) -> list[Sequence[MatchedEvent]]:
        """
        A batch as ``split_by`` splits it; empty parts are left out.

        InvalidHandler: the parts are not the batch: something is missing, or there twice.
        """
        if self.split_by is None:
            return [batch]
        with surviving():
            parts = [tuple(part) for part in self.split_by(batch)]
            split = sorted(event.match_id for part in parts for event in part)
        if split != [event.match_id for event in batch]:
            raise InvalidHandler(
                f"split_by of handler {self.name!r} made {len(split)} events of {len(batch)}: each belongs to one part"
            )
        return [part for part in parts if part]


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidHandler(
            f"a handler's name is a text of 1 to {MAX_NAME_LENGTH} printable characters, not {name!r:.80}"
        )


def _check_batch(batch: object, name: str) -> None:
    if batch is not None and (not isinstance(batch, int) or batch < 1):
        raise InvalidHandler(f"handler {name!r}: batch must be 1 or more, not {batch!r:.80}")


def _is_async(call: Any) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


def _timeout(limit: Pause | None, name: str) -> timedelta | None:
    if limit is None:
        return None
    try:
        time = seconds(limit)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidHandler(
            f"handler {name!r}: timeout is seconds or a timedelta, not {limit!r:.80}"
        ) from error
    if time <= timedelta(0):
        raise InvalidHandler(f"handler {name!r}: timeout must be longer than 0, not {time}")
    return time


def _retries(retries: Retries | Sequence[Pause] | None, name: str) -> Retries | None:
    if retries is None:
        return None
    try:
        found = retries if isinstance(retries, Retries) else Retries(retries)
    except ValueError as error:
        raise InvalidHandler(f"handler {name!r}: {error}") from error
    if not found.limit:
        raise InvalidHandler(f"handler {name!r}: retries has no pause: leave it out for none")
    return found


def seconds(delay: Pause) -> timedelta:
    """A time that may be given as a number of seconds."""
    return delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
