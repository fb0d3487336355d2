"""Tasks that share an event loop: running them for a while, ending them for good, and giving others a turn."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_AGAIN = 1.0
"""Seconds after which a task that goes on is cancelled again."""
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


class Shared(Generic[T]):
    """Work that is done once for all who want it at the same time; each piece has a key."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[T]] = {}

    async def get(self, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """
        Give what the work results in, which is begun unless it is under way.

        One who stops waiting does not end it, so whoever wants the result later can be given what the work has kept.

        Args:
            key: The same for all who want the same.
            work: Does it.

        Raises:
            Exception: That of the work, for each who waits.
        """
        if (task := self._tasks.get(key)) is None:
            task = self._tasks[key] = asyncio.create_task(work())
            task.add_done_callback(lambda done: self._done(key, done))
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """End all that is under way."""
        await end(*self._tasks.values())

    def _done(self, key: str, task: asyncio.Task[T]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled():
            task.exception()  # who waits gets it; where nobody does any more it is nobody's


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, for this number of seconds at most (``inf``: no limit); returns whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(None if seconds == math.inf else seconds):
            await event.wait()
    return event.is_set()


@asynccontextmanager
async def together() -> AsyncIterator[asyncio.TaskGroup]:
    """
    A group of tasks in which the first error ends all: this one is raised, for the others are of its making.

    Raises:
        Exception: That of the first task that failed.
    """
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


@asynccontextmanager
async def running(*works: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """
    Run coroutines as tasks for the length of the block, and end them with it; an error of one ends no other.

    Returns:
        Their tasks, in the same order.
    """
    tasks = [asyncio.create_task(work, name=getattr(work, "__qualname__", None)) for work in works]
    try:
        yield tasks
    finally:
        await end(*tasks)


async def first_of(*works: Coroutine[Any, Any, Any]) -> None:
    """
    Run coroutines until one of them has ended; the others are cancelled.

    Raises:
        Exception: What ended it was an error of one of them.
    """
    async with running(*works) as tasks:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        raise_errors(tasks)


def raise_errors(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Raise the error of the first task that has ended with one."""
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()


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
