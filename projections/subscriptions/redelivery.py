"""Failed batches on their way back to their handlers: each to the one that failed on it, and to no other."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from journal.database import Fault
from journal.tasks import end
from projections.errors import name_of, representation
from projections.failing import ALIKE, Streak
from projections.subscriptions.dead_letters import (
    Retry,
    decode_batch,
    encode_batch,
    finish_retry,
    halve_retry,
    take_retries,
)
from projections.subscriptions.group_handler import RegisteredHandler
from projections.subscriptions.group_member import GroupMember
from projections.subscriptions.matched_event import MatchedEvent, describe

log = logging.getLogger("projections")

_DOUBTFUL = {Fault.PROJECTION, Fault.BATCH}
"""Of one event or of all: no retry is used up."""
_MARGIN = timedelta(minutes=1)
"""How much longer than a handler may take a batch is its own."""


class _Outcome(NamedTuple):
    retry: Retry
    events: Sequence[MatchedEvent]
    error: Exception | None


class Redelivery:
    """Has batches that are due handled again, one at a time for each handler, alongside what is read."""

    def __init__(self, ask: GroupMember, group: str, every: timedelta, changed: Callable[[], None]) -> None:
        self.handlers: Mapping[str, RegisteredHandler] = {}
        self.running: dict[str, asyncio.Task[None]] = {}
        self._ask = ask
        self._group = group
        self._every = every.total_seconds()
        self._changed = changed
        self._look_at = 0.0
        self._due: list[float] = []
        """When batches are due that failed here."""
        self._outcomes: deque[_Outcome] = deque()
        self._alike = Streak(ALIKE)

    async def turn(self, *, taking: bool) -> None:
        """Store what has become of batches, and take others if that is wanted."""
        while self._outcomes:
            await self._store(self._outcomes[0])
            done = self._outcomes.popleft()
            del self.running[done.retry.handler]
            self._look_at = 0.0
        if taking and asyncio.get_running_loop().time() >= self._look_at:
            await self._take()

    async def close(self) -> None:
        """Cancel what is running; it is due again when its lease is over."""
        await end(*self.running.values())

    async def _take(self) -> None:
        free = [name for name in self.handlers if name not in self.running]
        lease = max(handler.timeout for handler in self.handlers.values()) + _MARGIN
        while free:
            taken: Sequence[Retry] = await self._ask(take_retries, self._group, free, lease, 1)
            for retry in taken:
                free.remove(retry.handler)
                self.running[retry.handler] = asyncio.create_task(self._run(retry))
            if not taken:
                break
        now = asyncio.get_running_loop().time()
        self._due = [at for at in self._due if at > now]
        self._look_at = min([now + self._every, *self._due])

    async def _run(self, retry: Retry) -> None:
        events: Sequence[MatchedEvent] = ()
        failure: Exception | None = None
        try:
            events = tuple(decode_batch(retry.matches))
            await self.handlers[retry.handler].handle(events)
        except Exception as error:  # noqa: BLE001 - it is the user's
            failure = error
        self._outcomes.append(_Outcome(retry, events, failure))
        self._changed()

    async def _store(self, outcome: _Outcome) -> None:
        retry, events, error = outcome
        handler, attempts, told, delay = self.handlers[retry.handler], retry.attempts + 1, None, None
        halves: Sequence[Sequence[MatchedEvent]] = ()
        if error is not None:
            fault, told = await self._ask.blame(error), representation(error)
            attempts, delay = handler.after(retry.attempts, fault)
            if delay is None or fault in _DOUBTFUL:
                halves = self._halves(handler, events, error)
        if halves and told is not None:
            delay = delay or timedelta(0)
            texts = map(encode_batch, halves)
            finished = await self._ask(
                halve_retry, self._group, retry, texts, attempts=attempts, error=told, delay=delay
            )
        else:
            finished = await self._ask(finish_retry, retry, attempts=attempts, error=told, delay=delay)
        if not finished:
            # Its lease was over, somebody has decided, the group was removed, or the database went back in time.
            log.warning(
                "group %s: the outcome of try %d of %s by handler %r is not stored: the batch is another's by now",
                self._group, attempts, describe(events) if events else "a batch", handler.name,
                extra=self._extra("retry_lost"),
            )  # fmt: skip
        elif error is None:
            self.succeeded(handler)
            log.info(
                "group %s: handler %r succeeded on %s with try %d",
                self._group, handler.name, describe(events), attempts, extra=self._extra("retried"),
            )  # fmt: skip
        else:
            self.tell_failed(handler, events, error, delay)

    def succeeded(self, handler: RegisteredHandler) -> None:
        """A handler has handled a batch: it does not fail on all."""
        self._alike.handled([handler.name])

    def _halves(
        self, handler: RegisteredHandler, events: Sequence[MatchedEvent], error: Exception
    ) -> Sequence[Sequence[MatchedEvent]]:
        """
        The halves of a batch that has no retry left, or is tried without an end: what fails is to stand alone.

        None where it is of one event, where its parts are the handler's, or where the handler fails on all.
        """
        if len(events) < 2 or handler.split_by is not None:  # noqa: PLR2004 - two halves
            return ()
        if self._alike.failed(handler.name, name_of(error), str(events[0].match_id)):
            return ()
        middle = len(events) // 2
        return events[:middle], events[middle:]

    def tell_failed(
        self,
        handler: RegisteredHandler,
        events: Sequence[MatchedEvent],
        error: Exception,
        delay: timedelta | None,
    ) -> None:
        """Log that a batch has failed, and what happens to it; it is looked at when it is due."""
        if delay is not None:
            self._due.append(asyncio.get_running_loop().time() + delay.total_seconds())
            self._look_at = min(self._look_at, self._due[-1])
        what = describe(events) if events else "a batch"
        if delay is None:
            log.error(
                "group %s: handler %r failed on %s, and no retry is left: it is a dead letter now: %s",
                self._group, handler.name, what, representation(error), extra=self._extra("dead_letter"),
            )  # fmt: skip
        else:
            log.warning(
                "group %s: handler %r failed on %s, which is handled again in %.1f s: %s",
                self._group, handler.name, what, delay.total_seconds(), representation(error),
                extra=self._extra("retry"),
            )  # fmt: skip

    def _extra(self, action: str) -> dict[str, object]:
        return {"action": action, "group": self._group}
