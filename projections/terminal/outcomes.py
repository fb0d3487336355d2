"""Waiting for what others do with what a command has decided: ``--wait``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, TypeVar

from projections.durations import Duration
from projections.terminal.commands import Opt

T = TypeVar("T")

_LOOK_EVERY = 0.1
"""Seconds."""

Wait = Annotated[
    timedelta | None, Opt("Wait for the outcome, and for how long at most.", type=Duration(least="1ms"))
]


async def settled(look: Callable[[], Awaitable[T]], open_: Callable[[T], object], patience: timedelta) -> T:
    """What is seen when nothing is open any more, or when the time is over."""
    found = await look()
    with suppress(TimeoutError):
        async with asyncio.timeout(patience.total_seconds()):
            while open_(found):
                await asyncio.sleep(_LOOK_EVERY)
                found = await look()
    return found
