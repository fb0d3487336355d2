"""Reports handlers that nothing in the event loop can end: those that hold it, or swallow their cancellation."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from journal import EventEnvelope
from projections.errors import describe

log = logging.getLogger("projections")

ABORTED = 70
"""Exit code of a process that was ended because of a handler that nothing else could end."""
_GRACE = 10.0
"""Seconds that a handler has to end after it was cancelled."""


class LoopMonitor:
    """
    A thread that notices when the event loop has stopped turning, or a handler does not end, and names its event.

    Args:
        blocked_after: Report when the loop has not turned for this long.
        cancelled_after: When a handler is cancelled; report it when it has not ended some seconds later.
        abort_after: End the process when the loop has not turned for this long, and when a handler has not ended; None
            for never.
    """

    def __init__(
        self, blocked_after: timedelta, cancelled_after: timedelta, abort_after: timedelta | None = None
    ) -> None:
        self._limit = blocked_after.total_seconds()
        self._cancelled_after = cancelled_after.total_seconds()
        self._abort_limit = abort_after.total_seconds() if abort_after else None
        self._turned_at = time.monotonic()
        self._handling: dict[asyncio.Task[Any] | None, tuple[EventEnvelope, float]] = {}
        self._stop = threading.Event()
        self.blocked = 0
        """How often a blocked loop has been reported."""

    @contextmanager
    def handling(self) -> Iterator[Callable[[EventEnvelope], None]]:
        """Lend a function that names what the current task is handling, for the length of the block."""
        task = asyncio.current_task()
        try:
            yield lambda envelope: self._handling.__setitem__(task, (envelope, time.monotonic()))
        finally:
            self._handling.pop(task, None)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the running event loop."""
        loop = asyncio.get_running_loop()
        turning = loop.create_task(self._turn())
        thread = threading.Thread(
            target=self._watch, args=(loop,), name="projections-loop-monitor", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            turning.cancel()
            thread.join()

    async def _turn(self) -> None:
        while True:
            self._turned_at = time.monotonic()
            await asyncio.sleep(self._limit / 4)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        reported, looked_at = 0.0, time.monotonic()
        thawed_at, stuck = looked_at, set[float]()
        while not self._stop.wait(self._limit / 4):
            now = time.monotonic()
            if now - looked_at > self._limit:
                thawed_at = now  # this thread stood still, too: the process was stopped, or its machine
            looked_at = now
            since = max(self._turned_at, thawed_at)
            blocked = now - since
            if since != reported and blocked > self._limit:
                reported = since
                self.blocked += 1
                log.warning(
                    "the event loop has been blocked for more than %g s, %s: a handler must await, or use a thread",
                    self._limit, self._what(loop), extra={"action": "loop_blocked"},
                )  # fmt: skip
            if self._abort_limit is not None and blocked > self._abort_limit:
                what = f"the event loop has been blocked for more than {self._abort_limit:g} s, {self._what(loop)}"
                self._abort(what)
            for envelope, begun_at in list(self._handling.values()):
                if now - max(begun_at, thawed_at) > self._cancelled_after + _GRACE and begun_at not in stuck:
                    stuck.add(begun_at)
                    self._report_stuck(envelope)

    def _report_stuck(self, envelope: EventEnvelope) -> None:
        what = f"the handler of {describe(envelope)} goes on after it was cancelled: it must not swallow that"
        if self._abort_limit is not None:
            self._abort(what)
        log.error(
            "%s. Its range stands still until this process ends", what, extra={"action": "handler_stuck"}
        )

    def _abort(self, what: str) -> None:
        # Nothing can be ended in order: the database rolls back, and others take over.
        log.critical("%s: this process ends", what, extra={"action": "aborted"})
        logging.shutdown()
        os._exit(ABORTED)

    def _what(self, loop: asyncio.AbstractEventLoop) -> str:
        found = self._handling.get(asyncio.current_task(loop))
        return f"while handling {describe(found[0])}" if found else "outside of handlers"
