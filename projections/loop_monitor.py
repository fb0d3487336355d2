"""Reports a handler that holds the event loop: everything else in the process waits for it."""

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
"""Exit code of a process that was ended because its event loop was blocked."""


class LoopMonitor:
    """
    A thread that notices when the event loop has stopped turning, and says what was being handled.

    Args:
        blocked_after: Report when the loop has not turned for so long.
        abort_after: End the process when it has not turned for so long; None for never.
    """

    def __init__(self, blocked_after: timedelta, abort_after: timedelta | None = None) -> None:
        self._limit = blocked_after.total_seconds()
        self._abort_limit = abort_after.total_seconds() if abort_after else None
        self._turned_at = time.monotonic()
        self._handling: dict[asyncio.Task[Any] | None, EventEnvelope] = {}
        self._stop = threading.Event()
        self.blocked = 0
        """How often a blocked loop has been reported."""

    @contextmanager
    def handling(self) -> Iterator[Callable[[EventEnvelope], None]]:
        """Lend a function that names what the current task is handling, for the length of the block."""
        task = asyncio.current_task()
        try:
            yield lambda envelope: self._handling.__setitem__(task, envelope)
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
        thawed_at = looked_at
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
                # Nothing but this thread runs, so nothing can be ended in order: the database rolls back.
                log.critical(
                    "the event loop has been blocked for more than %g s, %s: this process ends",
                    self._abort_limit, self._what(loop), extra={"action": "aborted"},
                )  # fmt: skip
                logging.shutdown()
                os._exit(ABORTED)

    def _what(self, loop: asyncio.AbstractEventLoop) -> str:
        envelope = self._handling.get(asyncio.current_task(loop))
        return f"while handling {describe(envelope)}" if envelope else "outside of handlers"
