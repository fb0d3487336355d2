"""The chore of webhooks: what one process at a time cleans up for all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from journal import Database
from journal.service import Service, Step
from journal.turns import Turns
from projections.failing import Backoff

log = logging.getLogger("projections")

RESTART = Backoff(timedelta(milliseconds=200), timedelta(seconds=10))
_PATIENCE = 60
"""Seconds that a step may take. It takes milliseconds: a connection that says nothing for that long is dead."""
_FORGOTTEN_AT_ONCE = 5000

_FORGET = "SELECT projections._forget_deliveries_v1($1)"
_FORGET_ANSWERS = "SELECT projections._forget_answers_v1($1)"
_RELEASE = "SELECT released, last_endpoint_id, last_key FROM projections._release_waiting_v1($1, $2)"


class Duties:
    """
    Forgets old deliveries and answers, and lets deliveries go that wait in an order behind nothing.

    One of all processes does it each ``every``, on one connection whose role needs projections_worker. A database
    that goes away is waited for.
    """

    def __init__(
        self, database: Database, *, every: timedelta = timedelta(minutes=1), restart: Backoff = RESTART
    ) -> None:
        self._database = database
        self._walked_to = ("", "")
        works: dict[str, Callable[[], Awaitable[bool]]] = {
            "old deliveries": partial(self._forget, _FORGET),
            "answers": partial(self._forget, _FORGET_ANSWERS),
            "waiting deliveries": self._release,
        }
        self._turns = Turns(database, "webhooks", every, works, partial(webhook_service, restart))

    async def run(self, stop: asyncio.Event) -> None:
        """Take turns with all other processes in doing it, until stopped. Errors are logged, and end nothing."""
        await self._turns.run(stop)

    async def _forget(self, sql: str) -> bool:
        async with self._database.session() as session:
            return bool(await session.fetchval(sql, _FORGOTTEN_AT_ONCE) == _FORGOTTEN_AT_ONCE)

    async def _release(self) -> bool:
        async with self._database.session() as session:
            row = await session.fetchrow(_RELEASE, *self._walked_to)
        assert row is not None  # noqa: S101 - the function returns one row
        if row["released"]:
            log.info(
                "let %d deliveries go that waited behind nothing", row["released"],
                extra={"action": "webhooks_released"},
            )  # fmt: skip
        more = row["last_endpoint_id"] is not None
        self._walked_to = (row["last_endpoint_id"], row["last_key"]) if more else ("", "")
        return more


def webhook_service(restart: Backoff, name: str, step: Step) -> Service:
    """What a process does again and again alongside deliveries, through failures."""
    return Service(
        f"webhooks wait, with their {name}",
        step,
        restart=restart.delay,
        action="webhooks_wait",
        patience=_PATIENCE,
    )
