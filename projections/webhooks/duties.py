"""
What a process does again and again beside deliveries, through failures; and the duties of one process at a time.

Nothing depends on its being one: each duty is safe when two do it at once.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from journal import Database, ProjectionsError
from projections.failing.retries import Backoff

__all__ = ["RESTART", "Duties", "Step", "rest"]

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


log = logging.getLogger("projections")

_LOOKS_IN_A_TURN = 4
_FORGOTTEN_AT_ONCE = 5000

_TAKE = "SELECT projections.take_turn_v1('webhooks', $1)"
_FORGET = "SELECT projections.forget_deliveries_v1($1)"
_FORGET_ANSWERS = "SELECT projections.forget_answers_v1($1)"
_RELEASE = "SELECT released, last_endpoint_id, last_key FROM projections.release_waiting_v1($1, $2)"


class Duties:
    """
    Forgets old deliveries and answers, and lets deliveries go that wait in an order behind nothing.

    Args:
        database: Where; needs one connection. The role needs projections_worker.
        every: How often one of all processes does it.
        restart: Pauses after failures: a database that goes away is waited for.
    """

    def __init__(
        self, database: Database, *, every: timedelta = timedelta(minutes=1), restart: Backoff = RESTART
    ) -> None:
        self._database = database
        self._every = every
        self._walked_to = ("", "")
        self._turn = Step("turn", self._take, restart)
        self._duties = (
            Step("old deliveries", self._forget, restart, due=math.inf),
            Step("answers", self._forget_answers, restart, due=math.inf),
            Step("waiting deliveries", self._release, restart, due=math.inf),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Take turns with all other processes in doing it, until stopped. Errors are logged, and end nothing."""
        steps = (self._turn, *self._duties)
        while not stop.is_set():
            for step in steps:
                if not stop.is_set():
                    await step.do()
            await rest(stop, *steps)

    async def _take(self) -> float:
        async with self._database.session() as session:
            if await session.fetchval(_TAKE, self._every):
                for duty in self._duties:
                    duty.due = 0.0
        return self._every.total_seconds() / _LOOKS_IN_A_TURN

    async def _forget(self) -> float:
        return await self._forgotten(_FORGET)

    async def _forget_answers(self) -> float:
        return await self._forgotten(_FORGET_ANSWERS)

    async def _forgotten(self, sql: str) -> float:
        async with self._database.session() as session:
            forgotten = await session.fetchval(sql, _FORGOTTEN_AT_ONCE)
        return 0 if forgotten == _FORGOTTEN_AT_ONCE else math.inf

    async def _release(self) -> float:
        async with self._database.session() as session:
            row = await session.fetchrow(_RELEASE, *self._walked_to)
        assert row is not None  # noqa: S101 - the function returns one row
        if row["released"]:
            log.info(
                "let %d deliveries go that waited behind nothing", row["released"],
                extra={"action": "webhooks_released"},
            )  # fmt: skip
        if row["last_endpoint_id"] is None:
            self._walked_to = ("", "")
            return math.inf
        self._walked_to = (row["last_endpoint_id"], row["last_key"])
        return 0
