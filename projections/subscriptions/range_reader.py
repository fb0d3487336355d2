"""The ranges of a group that this process holds: what was read of it, how far it is, and when it starts again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from journal import ProjectionsError, SliceRange
from projections.errors import said
from projections.running import shown_trace
from projections.subscriptions.group_handler import HandlerSubscription
from projections.subscriptions.groups import GroupRange
from projections.subscriptions.handler_queues import FailedPart, Flow
from projections.subscriptions.reading import Match, MatchPlace
from projections.subscriptions.settings import ConsumerSettings

log = logging.getLogger("projections")

_STUCK = 10
"""Seconds after which a handler that does not let itself be cancelled is reported."""


class RangeReader:
    """
    A held range, as the database gave it; handlers that the range is not for are left out.

    ``changed`` is called when there is something to do.
    """

    def __init__(
        self,
        group: str,
        held: GroupRange,
        handlers: Mapping[str, HandlerSubscription],
        settings: ConsumerSettings,
        changed: Callable[[], None],
    ) -> None:
        self.held = held
        """As the database has it, with the cursor that is known to be stored."""
        self.position = MatchPlace(held.cursor)
        """Up to here everything was read."""
        self.looked_until = -1
        """What was settled when the range was last read to its end; -1: it is to be read whatever is settled."""
        self.giving_up = False
        self._group = group
        self._all = handlers
        self._handlers = _handlers_of(held, handlers)
        self._settings = settings
        self._changed = changed
        self._failures = 0
        self._failed_at = held.cursor
        self._resume_at = 0.0
        self._dropped_at = 0.0
        self._told_stuck = False
        self._ending: asyncio.Task[None] | None = None
        self._flow: Flow | None = Flow(self.position, self._handlers, changed)

    @property
    def stored(self) -> int:
        """The cursor as the database has it."""
        return self.held.cursor

    @property
    def cursor(self) -> MatchPlace:
        """Everything up to here is done."""
        return self._flow.checkpoints.cursor if self._flow else MatchPlace(self.stored)

    def is_stored(self, cursor: MatchPlace) -> None:
        """The database has the cursor."""
        self.held = self.held._replace(cursor=cursor.match_id)

    @property
    def only(self) -> list[int] | None:
        """The subscription of the handler whose own range it is; None: all that matches is read."""
        if self.held.handler_id is None:
            return None
        return [one.subscription_id for one in self._handlers.values()]

    def is_idle(self, settled: int) -> bool:
        """Whether all that is settled was read, handled and stored."""
        return (
            self._flow is not None
            and not self.giving_up
            and self.looked_until == settled
            and not self._flow.checkpoints
            and self.stored == self.cursor.match_id
        )

    def read_for_all_but(self, apart: Sequence[int]) -> None:
        """Leave out those handlers that have a range of their own; where these are others now, it starts again."""
        self.held = self.held._replace(apart=apart)
        handlers = _handlers_of(self.held, self._all)
        if handlers.keys() != self._handlers.keys():
            self._handlers = handlers
            self._drop()

    @property
    def failed_part(self) -> FailedPart | None:
        """The next part that is to be kept."""
        return self._flow.failed_parts[0] if self._flow and self._flow.failed_parts else None

    def part_is_kept(self, part: FailedPart) -> None:
        """It is stored: its handler goes on."""
        if self._flow and self._flow.failed_parts and self._flow.failed_parts[0] is part:
            self._flow.failed_parts.popleft()
        part.kept.set()

    @property
    def failure(self) -> tuple[str, Exception] | None:
        """Who has failed, without anything that could be tried again later, and how."""
        if self._flow is None or self._flow.failure is None:
            return None
        handler, error = self._flow.failure
        return handler.name, error

    @property
    def has_room(self) -> bool:
        """Whether another page may be read."""
        return (
            self._flow is not None
            and not self.giving_up
            and self._flow.failure is None
            and len(self._flow.checkpoints) < self._settings.read_ahead
        )

    def take(self, page: Sequence[Match], read_until: MatchPlace) -> None:
        """Hand out the next matches, which may be none; up to ``read_until`` nothing else is left to read."""
        self.position = read_until
        if not page or self._flow is None:
            return
        if gone := self._flow.take(page):
            log.warning(
                "group %s: %d events were dropped from the journal before they were read: they are left out",
                self._group, gone, extra=self.labels("events_gone"),
            )  # fmt: skip

    def pass_over(self, distance: int) -> None:
        """Where much was read that was not for this range, let the cursor pass over it."""
        far = self.position.match_id - self.stored >= distance
        if far and self._flow is not None and self.position.matched_at is not None:
            self._flow.checkpoints.pass_over(self.position)

    def start_again(self, what: str, error: Exception) -> None:
        """Cancel all that is in hand, and go on from the stored cursor after a pause."""
        self._failures = 1 if self.stored > self._failed_at else self._failures + 1
        self._failed_at = self.stored
        delay = min(self._settings.restart.delay(self._failures), self._settings.lease)
        log.error(
            "group %s: slices %s: %s failed, starting again after match %d in %.1f s: %s",
            self._group, self.held.slices, what, self.stored, delay.total_seconds(), said(error),
            # What the library did not foresee is shown whole.
            exc_info=None if isinstance(error, ProjectionsError) else shown_trace(error),
            extra=self.labels("failed"),
        )  # fmt: skip
        self._resume_at = asyncio.get_running_loop().time() + delay.total_seconds()
        self._drop()

    def resume(self) -> None:
        """Start again, once it is time and what was running has ended."""
        if self._flow is not None or self.giving_up:
            return
        now = asyncio.get_running_loop().time()
        if self._ending is not None and not self._ending.done():
            self._tell_stuck(now)
        elif now >= self._resume_at:
            self.position, self.looked_until = MatchPlace(self.stored), -1
            self._flow = Flow(self.position, self._handlers, self._changed)

    def _tell_stuck(self, now: float) -> None:
        if now - self._dropped_at >= _STUCK and not self._told_stuck:
            self._told_stuck = True
            log.error(
                "group %s: slices %s wait for a handler that goes on although it was cancelled",
                self._group, self.held.slices, extra=self.labels("stuck"),
            )  # fmt: skip

    def give_up(self) -> None:
        """Begin with nothing new."""
        self.giving_up = True
        if self._flow is not None:
            self._flow.wind_down()

    @property
    def given_up(self) -> bool:
        """Whether all that was begun is done and stored, so that another may go on after it."""
        if not self.giving_up:
            return False
        if self._flow is None:
            return self._ending is None or self._ending.done()
        return self._flow.failure is not None or (
            self._flow.wound_down and self.stored == self.cursor.match_id
        )

    def _drop(self) -> None:
        if self._flow is not None:
            self._dropped_at, self._told_stuck = asyncio.get_running_loop().time(), False
            self._ending = asyncio.create_task(self._flow.end())
            self._ending.add_done_callback(lambda _: self._changed())
        self._flow = None

    def drop(self) -> asyncio.Task[None] | None:
        """Cancel all that is in hand, for good; returns what ends it."""
        self.giving_up = True
        self._drop()
        return self._ending

    def __str__(self) -> str:
        """The range, for messages."""
        if self.held.handler_id is None:
            return str(self.held.slices)
        return f"{self.held.slices} of handler {next(iter(self._handlers))!r}"

    def labels(self, action: str) -> dict[str, object]:
        """For log records."""
        return {"action": action, "group": self._group, "slices": str(self.held.slices)}


class HeldRanges:
    """
    A reader for each range that is held.

    Going through it goes through those that were there at its beginning.
    """

    def __init__(self, group: str, settings: ConsumerSettings, changed: Callable[[], None]) -> None:
        self._group = group
        self._settings = settings
        self._changed = changed
        self._readers: dict[tuple[SliceRange, int | None], RangeReader] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[RangeReader]:
        """Each reader."""
        return iter(list(self._readers.values()))

    def __len__(self) -> int:
        """How many ranges are held."""
        return len(self._readers)

    def get(self, key: tuple[SliceRange, int | None]) -> RangeReader | None:
        """Who reads a range, by :attr:`GroupRange.key`; None where it is not held."""
        return self._readers.get(key)

    def look_again(self) -> None:
        """Read all of them again, which says whether what they have read is still there."""
        for reader in self:
            reader.looked_until = -1

    def start(self, held: GroupRange, handlers: Mapping[str, HandlerSubscription]) -> None:
        """Read a range from its stored cursor on."""
        reader = RangeReader(self._group, held, handlers, self._settings, self._changed)
        self._readers[held.key] = reader
        log.info(
            "group %s: slices %s started after match %d", self._group, held.slices, held.cursor,
            extra=reader.labels("started"),
        )  # fmt: skip

    def lose(self, reader: RangeReader, why: str) -> None:
        """Drop a range that is another's, or not as it is remembered, and say why."""
        log.warning(
            "group %s: slices %s are lost: %s", self._group, reader.held.slices, why,
            extra=reader.labels("range_lost"),
        )  # fmt: skip
        self.drop(reader)

    def drop(self, reader: RangeReader) -> None:
        """Cancel all that is in hand of a range."""
        self._readers.pop(reader.held.key, None)
        if (ending := reader.drop()) is not None:
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def leave(self, others: Iterable[asyncio.Task[None]], limit: float) -> None:
        """Drop all; waits up to a number of seconds for what was cancelled, and for others that end."""
        for reader in self:
            self.drop(reader)
        if ending := {*self._ending, *others}:
            await asyncio.wait(ending, timeout=limit)


def _handlers_of(
    held: GroupRange, handlers: Mapping[str, HandlerSubscription]
) -> dict[str, HandlerSubscription]:
    """Those that a range is for."""
    return {
        name: one
        for name, one in handlers.items()
        if (
            one.handler_id not in held.apart if held.handler_id is None else one.handler_id == held.handler_id
        )
    }
