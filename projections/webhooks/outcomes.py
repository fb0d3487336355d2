"""What became of attempts, on its way to the database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from journal import Database, DatabaseError
from journal.tasks import end
from projections.webhooks.claims import Claimed, Outcome, finish
from projections.webhooks.delivery_observer import DeliveryObserver, tell
from projections.webhooks.settings import DeliverySettings

__all__ = ["Outcomes"]

log = logging.getLogger("projections")

_FINISHED_TOGETHER = 200
"""Outcomes that are stored in one transaction."""


class Outcomes:
    """
    Stores outcomes, those that come together in one transaction, until the database has them.

    Args:
        database: Where.
        settings: How long a lease outlasts its attempt, and the pauses before a lost database is asked again.
        observer: Is told of outcomes that came too late.
        patience: Seconds that the database may take to answer.
        stored: Called when some were stored.
    """

    def __init__(
        self,
        database: Database,
        settings: DeliverySettings,
        observer: DeliveryObserver,
        *,
        patience: float,
        stored: Callable[[], None],
    ) -> None:
        self._database = database
        self._settings = settings
        self._observer = observer
        self._patience = patience
        self._stored = stored
        self._waiting: list[tuple[Claimed, Outcome]] = []
        self._storing: list[tuple[Claimed, Outcome]] = []
        self._some = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, claimed: Claimed, outcome: Outcome) -> None:
        """Have one stored soon."""
        self._waiting.append((claimed, outcome))
        self._empty.clear()
        self._some.set()

    async def flush(self, storing: asyncio.Task[None]) -> None:
        """Wait until all are stored, for as long as their leases may last; not if nobody stores any more."""
        empty = asyncio.create_task(self._empty.wait())
        await asyncio.wait(
            {empty, storing},
            timeout=self._settings.stop_timeout.total_seconds(),
            return_when=asyncio.FIRST_COMPLETED,
        )
        await end(empty)
        if not self._empty.is_set():
            log.warning(
                "%d outcomes of webhooks were not stored: their deliveries come back when their leases are over",
                len(self._waiting) + len(self._storing), extra={"action": "outcomes_lost"},
            )  # fmt: skip

    async def keep_storing(self) -> None:
        """Store what is added, until cancelled."""
        while True:
            await self._some.wait()
            self._storing = self._waiting[:_FINISHED_TOGETHER]
            del self._waiting[:_FINISHED_TOGETHER]
            if not self._storing:
                self._some.clear()
                self._empty.set()
                continue
            held = await self._store([outcome for _, outcome in self._storing])
            for claimed, _ in self._storing:
                if claimed.delivery_id not in held:
                    tell(self._observer.lost, claimed)
            self._storing = []
            self._stored()

    async def _store(self, outcomes: Sequence[Outcome]) -> set[int]:
        failures = 0
        loop = asyncio.get_running_loop()
        # Later, the leases are over: the deliveries have gone to others.
        until = loop.time() + self._settings.margin.total_seconds()
        while True:
            try:
                async with asyncio.timeout(self._patience):
                    return await finish(self._database, outcomes)
            except (DatabaseError, TimeoutError) as error:
                if _is_about_values(error):
                    return await self._store_each(outcomes, error)
                failures += 1
                pause = self._settings.restart.delay(failures).total_seconds()
                if loop.time() + pause > until:
                    return set()
                log.warning(
                    "outcomes of webhooks wait: %s",
                    str(error) or "no answer",
                    extra={"action": "webhooks_wait"},
                )
                await asyncio.sleep(pause)

    async def _store_each(self, outcomes: Sequence[Outcome], error: Exception) -> set[int]:
        """One that can not be stored keeps none of the others from it; its delivery comes back."""
        if len(outcomes) == 1:
            log.error(
                "the outcome of delivery %d can not be stored: %s", outcomes[0].delivery_id, error,
                extra={"action": "outcome_refused"},
            )  # fmt: skip
            return set()
        return {held for outcome in outcomes for held in await self._store([outcome])}


def _is_about_values(error: Exception) -> bool:
    """Whether the database refuses what it was given: class 22 of SQLSTATE, and the driver what it can not encode."""
    return isinstance(error, DatabaseError) and (error.sqlstate or "").startswith("22")
