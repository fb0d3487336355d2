"""Ending a run of the demo early."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from journal import tasks
from journal.tasks import raise_errors, running
from projections.demo.errors import DemoInterrupted

T = TypeVar("T")
U = TypeVar("U")


class StopRequest:
    """Whether the run is to stop."""

    def __init__(self, event: asyncio.Event) -> None:
        self.event = event

    def check(self) -> None:
        """Go on only if it is not; else DemoInterrupted."""
        if self.event.is_set():
            raise DemoInterrupted("the demo was stopped; run it again to go on")

    async def unless(self, work: Coroutine[Any, Any, T], *others: asyncio.Task[None]) -> T:
        """Wait for work until something else ends first, or until the run is to stop (DemoInterrupted)."""
        async with running(work, self.event.wait()) as begun:
            await asyncio.wait([*begun, *others], return_when=asyncio.FIRST_COMPLETED)
            raise_errors(others)
            self.check()
            found: T = await begun[0]
            return found


async def together(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Do two things side by side; the failure of one ends the other."""
    async with tasks.together() as group:
        begun = group.create_task(first), group.create_task(second)
    return begun[0].result(), begun[1].result()
