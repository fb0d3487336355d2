"""Tasks that share an event loop: ending one for good, and letting the others have their turn."""

from __future__ import annotations

import asyncio
import time
from typing import Any

_AGAIN = 1.0
"""Seconds after which a task that goes on is cancelled once more."""
_TURN = 0.005
"""Seconds for which one of many may work before the others go on."""


class Turn:
    """Lets the other tasks of an event loop go on while one works for long, piece by piece."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    async def over(self) -> None:
        """Let them, once this one has worked for long enough: to be called between two pieces."""
        if time.monotonic() - self._began > _TURN:
            await asyncio.sleep(0)
            self._began = time.monotonic()


async def end(*tasks: asyncio.Task[Any]) -> None:
    """
    Cancel tasks and wait until they have ended, however that is.

    A cancellation can get lost: a driver that meets a broken connection while it cancels a query raises that instead,
    and ``asyncio.wait_for`` of Python 3.11 may return what is just there.
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_AGAIN)
    await asyncio.gather(*tasks, return_exceptions=True)  # or asyncio complains of errors that nobody saw
