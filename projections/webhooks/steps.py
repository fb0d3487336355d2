"""Steps: what a process does again and again beside deliveries, through failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from journal import ProjectionsError
from projections.failing.retries import Backoff

__all__ = ["RESTART", "Step", "rest"]

log = logging.getLogger("projections")

RESTART = Backoff(timedelta(milliseconds=200), timedelta(seconds=10))
_PATIENCE = 60
"""Seconds that a step may take. It takes milliseconds: a connection that says nothing for so long is dead."""


class Step:
    """
    Something that is done again and again.

    Args:
        name: For the log.
        step: Does it; returns after how many seconds it is to be done again.
        restart: Pauses after failures.
        due: When it is to be done first, by the clock of the event loop.
    """

    def __init__(
        self, name: str, step: Callable[[], Awaitable[float]], restart: Backoff = RESTART, due: float = 0.0
    ) -> None:
        self._name = name
        self._step = step
        self._restart = restart
        self.due = due
        self.failures = 0
        """One after the other, until now."""

    async def do(self) -> bool:
        """Do it if it is due; a failure is logged. Returns whether it has not failed."""
        clock = asyncio.get_running_loop().time
        if clock() < self.due:
            return not self.failures
        try:
            async with asyncio.timeout(_PATIENCE):
                pause = await self._step()
            self.failures = 0
        except Exception as error:  # whatever it is, the next look may succeed
            self.failures += 1
            pause = self._restart.delay(self.failures).total_seconds()
            log.warning(
                "webhooks wait, with their %s: %s", self._name, str(error) or type(error).__name__,
                exc_info=None if isinstance(error, ProjectionsError | TimeoutError) else error,
                extra={"action": "webhooks_wait"},
            )  # fmt: skip
        self.due = clock() + pause
        return not self.failures


async def rest(stop: asyncio.Event, *steps: Step) -> None:
    """Wait until one of the steps is due, or the event is set."""
    due = min(step.due for step in steps)
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), max(0, due - asyncio.get_running_loop().time()))
