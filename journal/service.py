"""
One shape for all that a process does until it is stopped: a step, again and again, through failures.

A service begins with :meth:`Service.run`, in a task of whoever owns it, and ends with that task at the latest.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TypeAlias

from journal.errors import ProjectionsError
from journal.tasks import happens, running

log = logging.getLogger("projections")

Step: TypeAlias = Callable[[], Awaitable[float]]
"""Does what there is to do; returns after how many seconds to look again, if nobody says that there is more before."""

AT_ONCE, WHEN_WOKEN = 0.0, math.inf
"""Pauses of a step after which there is more to do, and of one after which somebody says when there is."""


class Service:
    """
    Does a step again and again until it is stopped. One that fails is logged, and done again after a pause.

    Args:
        name: What it is, for the log.
        step: Does one piece of work; returns the seconds to wait before the next.
        restart: The pause after the n-th failure in a row, which only a stop ends, and then a wake-up.
        action: That of the log records of failures; ``{name}_failed`` by default.
        patience: Seconds that a step may take: where milliseconds do, a connection that says nothing is dead.
        failed: Is notified of a failure instead of the log. It may stop the service, or raise: that ends it at once.
        goes_on: Whether there is to be another step; by default until it is stopped.
        grace: Seconds after which one that was stopped ends although it would go on.
    """

    def __init__(
        self,
        name: str,
        step: Step,
        *,
        restart: Callable[[int], timedelta],
        action: str | None = None,
        patience: float | None = None,
        failed: Callable[[Exception], None] | None = None,
        goes_on: Callable[[], bool] | None = None,
        grace: float | None = None,
    ) -> None:
        self._step = step
        self._restart = restart
        self._patience = patience
        self._failed = failed or partial(log_failure, name, action=action or f"{name}_failed")
        self._goes_on = goes_on or (lambda: not self.stopping.is_set())
        self._grace = grace
        self._limit: asyncio.Timeout | None = None
        self._woken = asyncio.Event()
        self.stopping = asyncio.Event()
        """It was stopped: what is begun is to be finished, and nothing else is to be begun."""
        self.failures = 0
        """Of steps, one after the other, until now."""
        self.woken = False
        """Whether somebody has asked for the step; else it is time for it."""

    def wake(self) -> None:
        """There is something to do: the next step follows at once."""
        self._woken.set()

    def stop(self) -> None:
        """End after the step that runs now, or after those that ``goes_on`` asks for."""
        if not self.stopping.is_set() and self._limit is not None and self._grace is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._grace)
        self.stopping.set()
        self._woken.set()

    async def run(self, stop: asyncio.Event | None = None, *, first: float = AT_ONCE) -> bool:
        """
        Run until it is stopped.

        Args:
            stop: Stops it when set.
            first: Seconds until the first step.

        Returns:
            Whether it has ended by itself; False at the end of the grace.

        Raises:
            Exception: What ``failed`` raises.
        """
        grace = self._grace if self.stopping.is_set() else None
        try:
            async with asyncio.timeout(grace) as limit, running(*([self._follow(stop)] if stop else [])):
                self._limit = limit
                if stop is not None and stop.is_set():
                    self.stop()
                self.woken = await happens(self._woken, first)
                while self._goes_on() and not limit.expired():
                    self._woken.clear()
                    await self._try()
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            self._limit = None
        return not self._goes_on()

    async def _follow(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.stop()

    async def _try(self) -> None:
        try:
            async with asyncio.timeout(self._patience):
                pause = await self._step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the next step may succeed
            self.failures += 1
            self._failed(error)
            # Once it is stopping, what does not answer is not asked all the time either.
            awaited = self._woken if self.stopping.is_set() else self.stopping
            await happens(awaited, self._restart(self.failures).total_seconds())
        else:
            self.failures = 0
            self.woken = await happens(self._woken, pause)


def log_failure(name: str, error: Exception, **labels: object) -> None:
    """Log that a step has failed, with labels such as ``action``; what the library did not foresee is shown whole."""
    foreseen = isinstance(error, ProjectionsError | TimeoutError)
    log.warning(
        "%s: %s", name, str(error) or ("no answer" if foreseen else repr(error)),
        exc_info=None if foreseen else error, extra=labels,
    )  # fmt: skip


class Pace:
    """
    The pause between two questions: short while there is news, longer each time that there is none.

    Args:
        shortest: The first.
        longest: It gets no longer.
        growth: Which part of itself it gets longer by: 1 doubles it. A pause is about this part of the time for which
            there has been no news.
    """

    def __init__(self, shortest: timedelta, longest: timedelta, growth: float = 1.0) -> None:
        self._shortest = shortest.total_seconds()
        self._growth = 1.0 + growth
        self.longest = longest.total_seconds()
        self.pause = self._shortest
        """In seconds."""

    def quicken(self) -> None:
        """There was news."""
        self.pause = self._shortest

    def slow_down(self) -> float:
        """There was none; returns the pause before it gets longer."""
        before, self.pause = self.pause, min(self._growth * self.pause, self.longest)
        return before
