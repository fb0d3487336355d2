"""
Duties: what one process at a time does for all.

Who does them has a lease on them, so that they are not done in vain by many. Nothing depends on it: each is safe when
two do it at once.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

from journal import Database, KeptSession, ProjectionsError
from projections.failing.retries import Backoff
from projections.webhooks.steps import RESTART, Step, rest

__all__ = ["Duties"]

log = logging.getLogger("projections")

_NAME = "webhooks"
_LOOKS_IN_A_LEASE = 3
_FORGOTTEN_AT_ONCE = 5000
_FAREWELL = 5
"""Seconds for giving the lease back; without that, it ends by itself."""

_TAKE = "SELECT projections.take_webhook_duty_v1($1, $2, $3)"
_FORGET = "SELECT projections.forget_deliveries_v1($1)"
_FORGET_ANSWERS = "SELECT projections.forget_answers_v1($1)"
_RELEASE = "SELECT released, last_endpoint_id, last_key FROM projections.release_waiting_v1($1, $2)"


class Duties:
    """
    Forgets old deliveries and answers, and lets deliveries go that wait in an order behind nothing.

    Args:
        database: Where; needs one connection. The role needs projections_worker.
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
        restart: Backoff = RESTART,
    ) -> None:
        self._session = KeptSession(database.session)
        self._lease = lease
        self._every = every.total_seconds()
        self._owner = uuid4().hex
        self._on_duty = False
        self._walked_to = ("", "")
        self._taking = Step("lease", self._take, restart)
        self._duties = (
            Step("old deliveries", self._forget, restart),
            Step("answers", self._forget_answers, restart),
            Step("waiting deliveries", self._release, restart),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Take turns with all other processes in doing it, until stopped. Errors are logged, and end nothing."""
        try:
            while not stop.is_set():
                if not await self._taking.do():
                    self._on_duty = False
                for duty in self._duties:
                    if self._on_duty and not stop.is_set():
                        await duty.do()
                await rest(stop, self._taking, *(self._duties if self._on_duty else ()))
        finally:
            await self._give_back()

    async def _take(self) -> float:
        async with self._session.use() as session:
            taken = bool(await session.fetchval(_TAKE, _NAME, self._owner, self._lease))
        if taken and not self._on_duty:
            log.info("this process does the duties of webhooks", extra={"action": "webhooks_on_duty"})
        self._on_duty = taken
        return self._lease.total_seconds() / _LOOKS_IN_A_LEASE

    async def _forget(self) -> float:
        return await self._forgotten(_FORGET)

    async def _forget_answers(self) -> float:
        return await self._forgotten(_FORGET_ANSWERS)

    async def _forgotten(self, sql: str) -> float:
        async with self._session.use() as session:
            forgotten = await session.fetchval(sql, _FORGOTTEN_AT_ONCE)
        return 0 if forgotten == _FORGOTTEN_AT_ONCE else self._every

    async def _release(self) -> float:
        async with self._session.use() as session:
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
            async with asyncio.timeout(_FAREWELL):
                async with self._session.use() as session:
                    await session.fetchval(_TAKE, _NAME, self._owner, timedelta(0))
                await self._session.close()
