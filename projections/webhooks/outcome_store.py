"""Outcomes of attempts, on their way to the database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NoReturn

from journal import Database, DatabaseError
from journal.database import Fault, fault_of
from journal.service import AT_ONCE, WHEN_WOKEN, Service
from journal.tasks import end
from projections.webhooks.claims import Claimed, Outcome, finish
from projections.webhooks.delivery_observer import DeliveryObserver
from projections.webhooks.settings import DeliverySettings

log = logging.getLogger("projections")

_LOCKED = "55P03"
_FINISHED_TOGETHER = 200
"""Outcomes that are stored in one transaction."""


class _EndpointHeldError(Exception):
    """Somebody holds an endpoint of several outcomes for long."""


class Outcomes:
    """
    Stores outcomes, those that come together in one transaction, until the database has them.

    It calls ``stored`` after each, and tells the observer of outcomes that came too late.
    """

    def __init__(
        self,
        database: Database,
        settings: DeliverySettings,
        observer: DeliveryObserver,
        *,
        stored: Callable[[], None],
    ) -> None:
        self._database = database
        self._settings = settings
        self._observer = observer
        self._patience = settings.patience.total_seconds()
        self._stored = stored
        self._waiting: list[tuple[Claimed, Outcome]] = []
        self._storing: list[tuple[Claimed, Outcome]] = []
        self._apart: set[asyncio.Task[None]] = set()
        # Stopped, it goes on until all are stored, for as long as their leases may last.
        self._service = Service(
            "outcomes of webhooks", self._store_some, restart=settings.restart.delay, failed=_raise,
            goes_on=self._goes_on, grace=settings.grace.total_seconds(),
        )  # fmt: skip
        self.stop = self._service.stop

    def add(self, claimed: Claimed, outcome: Outcome) -> None:
        """Have one stored soon."""
        self._waiting.append((claimed, outcome))
        self._service.wake()

    async def run(self) -> None:
        """Store what is added, until all is stored after :meth:`stop`."""
        try:
            if not await self._service.run():
                log.warning(
                    "%d outcomes of webhooks were not stored: their deliveries come back when their leases are over",
                    len(self._waiting) + len(self._storing), extra={"action": "outcomes_lost"},
                )  # fmt: skip
        finally:
            await end(*self._apart)

    def _goes_on(self) -> bool:
        return bool(self._waiting or self._storing or self._apart) or not self._service.stopping.is_set()

    async def _store_some(self) -> float:
        self._storing = self._waiting[:_FINISHED_TOGETHER]
        del self._waiting[:_FINISHED_TOGETHER]
        if not self._storing:
            return WHEN_WOKEN
        await self._store_and_tell(self._storing)
        self._storing = []
        return AT_ONCE

    async def _store_and_tell(self, several: Sequence[tuple[Claimed, Outcome]]) -> None:
        endpoints = {claimed.endpoint_id for claimed, _ in several}
        try:
            held = await self._store([outcome for _, outcome in several], divisible=len(endpoints) > 1)
        except _EndpointHeldError:
            self._store_apart(several)
            return
        for claimed, _ in several:
            if claimed.delivery_id not in held:
                self._observer.lost(claimed)
        self._stored()

    def _store_apart(self, several: Sequence[tuple[Claimed, Outcome]]) -> None:
        """Let outcomes of an endpoint that somebody holds for long, such as who removes it, hold up no others."""
        by_endpoint: dict[str, list[tuple[Claimed, Outcome]]] = {}
        for claimed, outcome in several:
            by_endpoint.setdefault(claimed.endpoint_id, []).append((claimed, outcome))
        for each in by_endpoint.values():
            task = asyncio.create_task(self._store_and_tell(each))
            self._apart.add(task)
            task.add_done_callback(self._apart_ended)

    def _apart_ended(self, task: asyncio.Task[None]) -> None:
        self._apart.discard(task)
        self._service.wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("outcomes were not stored", exc_info=error, extra={"action": "outcomes_lost"})

    async def _store(self, outcomes: Sequence[Outcome], *, divisible: bool = False) -> set[int]:
        failures = 0
        loop = asyncio.get_running_loop()
        # Later, the leases are over: the deliveries have gone to others.
        until = loop.time() + self._settings.margin.total_seconds()
        while True:
            try:
                async with asyncio.timeout(self._patience):
                    return await finish(self._database, outcomes)
            except (DatabaseError, TimeoutError) as error:
                # It refuses what it was given, or the driver cannot encode it.
                if isinstance(error, DatabaseError) and fault_of(error) is Fault.EVENT:
                    return await self._store_each(outcomes, error)
                if divisible and getattr(error, "sqlstate", None) == _LOCKED:
                    raise _EndpointHeldError from error
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
        """One that cannot be stored keeps none of the others from it; its delivery comes back."""
        if len(outcomes) == 1:
            log.error(
                "the outcome of delivery %d cannot be stored: %s", outcomes[0].delivery_id, error,
                extra={"action": "outcome_refused"},
            )  # fmt: skip
            return set()
        return {held for outcome in outcomes for held in await self._store([outcome])}


def _raise(error: Exception) -> NoReturn:
    raise error
