"""
Duties: what one process at a time does for all.

Who does them has a lease on them, so that they are not done in vain by many. Nothing depends on it: each is safe when
two do it at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from journal import Database, ProjectionsError
from projections.recovery import Backoff
from projections.webhooks.ticks import send_due

__all__ = ["Duties"]

log = logging.getLogger("projections")

_NAME = "webhooks"
_LOOKS_IN_A_LEASE = 3
_SOON = timedelta(seconds=1)
"""How often schedules are looked at; a tick that comes sooner is waited for."""
_FORGOTTEN_AT_ONCE = 5000
_PATIENCE = 60
"""Seconds that a step may take. It takes milliseconds: a connection that says nothing for so long is dead."""
_FAREWELL = 5
"""Seconds for giving the lease back; without that, it ends by itself."""

_TAKE = "SELECT projections.take_webhook_duty_v1($1, $2, $3)"
_FORGET = "SELECT projections.forget_deliveries_v1($1)"
_RELEASE = "SELECT released, last_endpoint_id, last_key FROM projections.release_waiting_v1($1, $2)"


@dataclass(slots=True)
class _Duty:
    """A step that is done again and again; it returns after how many seconds."""

    name: str
    step: Callable[[], Awaitable[float]]
    due: float = 0.0
    """By the clock of the event loop."""
    failures: int = 0


class Duties:
    """
    Sends the ticks of schedules, forgets old deliveries, and lets deliveries go that wait in an order behind nothing.

    Args:
        database: Where; needs one connection. The role needs projections_worker, and to send projections_writer.
        lease: When the process that does it dies, another goes on after so long.
        every: How often it cleans up.
        restart: Pauses after failures: a database that goes away is waited for.
    """

    def __init__(
        self,
        database: Database,
        *,
        lease: timedelta = timedelta(seconds=10),
        every: timedelta = timedelta(minutes=1),
        restart: Backoff = Backoff(timedelta(milliseconds=200), timedelta(seconds=10)),  # noqa: B008 - frozen
    ) -> None:
        self._database = database
        self._lease = lease
        self._every = every.total_seconds()
        self._restart = restart
        self._owner = uuid4().hex
        self._on_duty = False
        self._walked_to = ("", "")
        self._taking = _Duty("lease", self._take)
        self._duties = (
            _Duty("schedules", self._send),
            _Duty("old deliveries", self._forget),
            _Duty("waiting deliveries", self._release),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Take turns with all other processes in doing it, until stopped. Errors are logged, and end nothing."""
        try:
            while not stop.is_set():
                await self._do(self._taking)
                for duty in self._duties:
                    if self._on_duty and not stop.is_set():
                        await self._do(duty)
                await self._rest(stop)
        finally:
            await self._give_back()

    async def _do(self, duty: _Duty) -> None:
        """A step that is due; one that fails holds none of the others up."""
        clock = asyncio.get_running_loop().time
        if clock() < duty.due:
            return
        try:
            async with asyncio.timeout(_PATIENCE):
                pause = await duty.step()
            duty.failures = 0
        except Exception as error:  # whatever it is, the next look may succeed
            if duty is self._taking:
                self._on_duty = False
            duty.failures += 1
            pause = self._restart.delay(duty.failures).total_seconds()
            log.warning(
                "webhooks wait, with their %s: %s", duty.name, str(error) or type(error).__name__,
                exc_info=None if isinstance(error, ProjectionsError | TimeoutError) else error,
                extra={"action": "webhooks_wait"},
            )  # fmt: skip
        duty.due = clock() + pause

    async def _rest(self, stop: asyncio.Event) -> None:
        due = min(duty.due for duty in (self._taking, *(self._duties if self._on_duty else ())))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), max(0, due - asyncio.get_running_loop().time()))

    async def _take(self) -> float:
        async with self._database.session() as session:
            taken = bool(await session.fetchval(_TAKE, _NAME, self._owner, self._lease))
        if taken and not self._on_duty:
            log.info("this process does the duties of webhooks", extra={"action": "webhooks_on_duty"})
        self._on_duty = taken
        return self._lease.total_seconds() / _LOOKS_IN_A_LEASE

    async def _send(self) -> float:
        sent, next_in = await send_due(self._database, _SOON)
        if sent:
            return 0
        return _SOON.total_seconds() if next_in is None else next_in.total_seconds()

    async def _forget(self) -> float:
        async with self._database.session() as session:
            forgotten = await session.fetchval(_FORGET, _FORGOTTEN_AT_ONCE)
        return 0 if forgotten == _FORGOTTEN_AT_ONCE else self._every

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
            return self._every
        self._walked_to = (row["last_endpoint_id"], row["last_key"])
        return 0

    async def _give_back(self) -> None:
        """Also if it does not know that it has the lease: it may have been cancelled while it took it."""
        self._on_duty = False
        with suppress(ProjectionsError, TimeoutError):
            async with asyncio.timeout(_FAREWELL), self._database.session() as session:
                await session.fetchval(_TAKE, _NAME, self._owner, timedelta(0))
