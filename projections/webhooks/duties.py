"""
Duties: what one process at a time does for all, in turns.

Nothing depends on its being one: each duty is safe when two do it at once.
"""

from __future__ import annotations

import asyncio
import logging
import math
from datetime import timedelta

from journal import Database
from projections.failing.retries import Backoff
from projections.webhooks.steps import RESTART, Step, rest

__all__ = ["Duties"]

log = logging.getLogger("projections")

_LOOKS_IN_A_TURN = 10
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
