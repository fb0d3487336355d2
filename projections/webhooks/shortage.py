"""What a process lacks itself to send anything: files, memory, threads. It waits then, and says so once."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from projections.failing.retries import Backoff
from projections.webhooks.sender import NotSentError

__all__ = ["Shortage"]

log = logging.getLogger("projections")

_QUIET = 60.0
"""Seconds without a shortage after which the next one is news."""


class Shortage:
    """Remembers that nothing could be sent, and for how long to take nothing more."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._rounds = 0
        self._until = 0.0
        self._last: float | None = None

    def met(self, error: NotSentError) -> None:
        """Nothing was sent; those that were on their way together are one time."""
        if not error.everywhere:
            log.debug("a webhook was put off: %s", error, extra={"action": "webhook_put_off"})
            return
        now = asyncio.get_running_loop().time()
        if self._last is None or now - self._last > _QUIET:
            log.warning(
                "webhooks wait: this process cannot send: %s; no attempt is used up. Give it more, or lower "
                "--concurrency", error, extra={"action": "webhooks_short"},
            )  # fmt: skip
        self._last = now
        if now >= self._until:
            self._rounds += 1
            self._until = now + self._backoff.delay(self._rounds).total_seconds()

    def passed(self) -> None:
        """Something was sent."""
        if self._rounds and asyncio.get_running_loop().time() >= self._until:
            self._rounds = 0

    async def over(self, ending: asyncio.Event) -> None:
        """Wait until more may be taken, or the process ends."""
        pause = self._until - asyncio.get_running_loop().time()
        if pause > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), pause)
