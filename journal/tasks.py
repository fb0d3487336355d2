"""Ending tasks for good."""

from __future__ import annotations

import asyncio
from typing import Any

_AGAIN = 1.0
"""Seconds after which a task that goes on is cancelled once more."""


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
