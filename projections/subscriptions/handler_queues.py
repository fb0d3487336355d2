"""
What was read of a range on its way through the handlers: from one start of the range to its next failure.

Each handler has a queue of its own, and takes one batch at a time from it. No I/O: what is to be stored is asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from journal.tasks import end
from projections.subscriptions.group_handler import HandlerSubscription, RegisteredHandler
from projections.subscriptions.matched_event import MatchedEvent
from projections.subscriptions.reading import Match, MatchPlace

log = logging.getLogger("projections")


@dataclass(slots=True, eq=False)
class Checkpoint:
    """The place after a page that was read; ``open`` is how many handlers have not done their part of it."""

    cursor: MatchPlace
    open: int


class Checkpoints:
    """
    The pages of a range that are not behind its cursor yet.

    The cursor is the end of the last page before which everything is done: one that is done waits for those before
    it.
    """

    def __init__(self, cursor: MatchPlace) -> None:
        self.cursor = cursor
        self.begun_until = cursor
        """The end of the last page that anybody has begun with."""
        self._active: deque[Checkpoint] = deque()

    def __len__(self) -> int:
        return len(self._active)

    def add(self, cursor: MatchPlace, parts: int) -> Checkpoint:
        """
        Take in the next page, which ends at this cursor, and how many handlers have a part of it: with none it is done.

        ValueError: it does not come after the page before.
        """
        last = self._active[-1].cursor if self._active else self.cursor
        if cursor <= last:
            raise ValueError(f"a page that ends at {cursor.match_id} does not come after {last.match_id}")
        checkpoint = Checkpoint(cursor, parts)
        self._active.append(checkpoint)
        self._advance()
        return checkpoint

    def begin(self, checkpoint: Checkpoint) -> None:
        """A handler begins with its part of a page."""
        self.begun_until = max(self.begun_until, checkpoint.cursor)

    def done(self, checkpoint: Checkpoint) -> None:
        """A handler has done its part of a page."""
        checkpoint.open -= 1
        self._advance()

    def pass_over(self, cursor: MatchPlace) -> None:
        """Nothing up to here is for this range; does nothing while a page is not done."""
        if not self._active:
            self.cursor = max(self.cursor, cursor)

    @property
    def all_begun_are_done(self) -> bool:
        """Whether the cursor is past every page that anybody has begun with: stopping here repeats nothing."""
        return self.cursor >= self.begun_until

    def _advance(self) -> None:
        while self._active and self._active[0].open == 0:
            self.cursor = self._active.popleft().cursor


_Queue: TypeAlias = asyncio.Queue[tuple[Checkpoint, list[MatchedEvent]]]


@dataclass(slots=True, eq=False)
class FailedPart:
    """A part of a batch that a handler failed on; its handler goes on once it is kept."""

    handler: RegisteredHandler
    events: Sequence[MatchedEvent]
    error: Exception
    page: MatchPlace
    """The end of the page that it is of."""
    kept: asyncio.Event = field(default_factory=asyncio.Event)


class Flow:
    """
    The pages of a range that are being handled, by each handler of a subscription.

    ``changed`` is called when there is something to store, or to read.
    """

    def __init__(
        self, cursor: MatchPlace, handlers: Mapping[str, HandlerSubscription], changed: Callable[[], None]
    ) -> None:
        self.checkpoints = Checkpoints(cursor)
        self.failed_parts: deque[FailedPart] = deque()
        """To be kept for a later try."""
        self.failure: tuple[RegisteredHandler, Exception] | None = None
        """Why the range is to start again."""
        self._handlers = handlers
        self._changed = changed
        self._stopping = False
        self._queues: dict[str, _Queue] = {name: asyncio.Queue() for name in handlers}
        self._tasks = [
            asyncio.create_task(self._work(one.handler, self._queues[name])) for name, one in handlers.items()
        ]

    def take(self, page: Sequence[Match]) -> int:
        """Hand out the next page; returns how many of its events were gone from the journal."""
        by_subscription: defaultdict[int, list[MatchedEvent]] = defaultdict(list)
        gone = 0
        for match in page:
            if match.envelope is None:
                gone += 1
                continue
            event = MatchedEvent(match.match_id, match.subscription_ids, match.envelope, match.matched_at)
            for subscription_id in match.subscription_ids:
                by_subscription[subscription_id].append(event)
        parts = {
            name: events
            for name, one in self._handlers.items()
            if (events := by_subscription.get(one.subscription_id))
        }
        checkpoint = self.checkpoints.add(page[-1].place, len(parts))
        for name, events in parts.items():
            self._queues[name].put_nowait((checkpoint, events))
        return gone

    def wind_down(self) -> None:
        """Start no page that no handler has started."""
        self._stopping = True

    @property
    def wound_down(self) -> bool:
        """Whether everything that was begun is done, and nothing else will be begun."""
        return self._stopping and self.checkpoints.all_begun_are_done

    async def end(self) -> None:
        """Cancel what is running."""
        await end(*self._tasks)

    async def _work(self, handler: RegisteredHandler, queue: _Queue) -> None:
        try:
            while True:
                checkpoint, events = await queue.get()
                if self._stopping and checkpoint.cursor > self.checkpoints.begun_until:
                    return
                self.checkpoints.begin(checkpoint)
                for batch in handler.batches(events):
                    await self._handle(handler, batch, checkpoint.cursor)
                self.checkpoints.done(checkpoint)
                self._changed()
        except Exception as error:  # noqa: BLE001 - whatever it is, the range starts again
            self.failure = self.failure or (handler, error)
            self._changed()

    async def _handle(
        self, handler: RegisteredHandler, batch: Sequence[MatchedEvent], page: MatchPlace
    ) -> None:
        """Handle a batch; what fails is kept for later, where the handler says so."""
        try:
            parts = handler.parts(batch)
        except Exception as error:  # noqa: BLE001 - it is the user's
            await self._fail(handler, batch, error, page)
            return
        for part in parts:
            try:
                await handler.handle(part)
            except Exception as error:  # noqa: BLE001 - it is the user's
                await self._fail(handler, part, error, page)

    async def _fail(
        self, handler: RegisteredHandler, events: Sequence[MatchedEvent], error: Exception, page: MatchPlace
    ) -> None:
        if handler.retries is None:
            raise error
        failed = FailedPart(handler, events, error, page)
        self.failed_parts.append(failed)
        self._changed()
        await failed.kept.wait()
