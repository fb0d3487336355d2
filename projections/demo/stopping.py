"""Ending a run of the demo early."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

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
        task, stopped = asyncio.create_task(work), asyncio.create_task(self.event.wait())
        try:
            await asyncio.wait([task, stopped, *others], return_when=asyncio.FIRST_COMPLETED)
            for other in others:
                if other.done():
                    other.result()
            self.check()
            return await task
        finally:
            stopped.cancel()
            task.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)


async def together(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Do two things side by side; the failure of one ends the other."""
    tasks = asyncio.create_task(first), asyncio.create_task(second)
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
