"""Handling for effects outside the database: the offset is stored after them, sources are handled concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from journal import Database, EventEnvelope, OwnedSession
from journal.database.faults import Fault, fault_of
from journal.tasks import end
from projections.defining.handlers import AtLeastOnce, Kind
from projections.errors import HandlerFailed
from projections.failing.recovery import GiveUp
from projections.running.pipeline import Pipeline, Stopping, nothing, too_large


class AtLeastOncePipeline(Pipeline):
    """
    Handles events, each in its source's order, and stores offsets after their effects.

    A handler's session is no batch's transaction: each of its statements commits by itself.

    Args:
        parts: As for :class:`projections.running.pipeline.Pipeline`.
        database: Lends the handlers' sessions.
        delivery: When to store offsets, and how many sources to handle at a time.
    """

    def __init__(self, *parts: Any, database: Database, delivery: AtLeastOnce) -> None:
        super().__init__(*parts)
        self._database = database
        self._delivery = delivery
        self._done: list[EventEnvelope] = []
        self._read: Sequence[EventEnvelope] = ()

    async def handle(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        """Handle accepted events; see :meth:`Pipeline.handle`."""
        self._read = envelopes
        size = min(self._delivery.after, self._projection.batch_size)
        for start in range(0, len(envelopes), size):
            if await self._pause(0):
                raise Stopping
            chunk = [e for e in envelopes[start : start + size] if e.source_id not in self._state.parked]
            if chunk:
                with self._telling(chunk):
                    await self._handle_chunk(session, chunk)

    async def _handle_chunk(self, session: OwnedSession, chunk: Sequence[EventEnvelope]) -> None:
        work = asyncio.create_task(self._work(chunk))
        try:
            while not work.done():
                await asyncio.wait([work], timeout=self._delivery.within.total_seconds())
                await self._save_done(session)
        finally:
            await end(work)
        work.result()
        if await self._pause(0):
            raise Stopping  # perhaps before the last event; what is done is stored

    async def _save_done(self, session: OwnedSession) -> None:
        """Store what has been handled since the last time."""
        done, self._done = self._done, []
        if done:
            await self._in_transaction(session, done, nothing)
            self._observer.handled(self._projection.name, self._store.claim.slices, done)

    async def _work(self, chunk: Sequence[EventEnvelope]) -> None:
        places = asyncio.Semaphore(self._delivery.concurrency)
        if self._projection.kind is Kind.GROUP:
            chains = [list(chunk)] if chunk else []
        else:
            by_source: dict[str, list[EventEnvelope]] = {}
            for envelope in chunk:
                by_source.setdefault(envelope.source_id, []).append(envelope)
            chains = list(by_source.values())
        # All chains end before one's failure is raised: what they did is stored, not repeated.
        ended = await asyncio.gather(
            *(self._chain(places, chain) for chain in chains), return_exceptions=True
        )
        for result in ended:
            if isinstance(result, BaseException):
                raise result

    async def _chain(self, places: asyncio.Semaphore, chain: Sequence[EventEnvelope]) -> None:
        async with places, self._database.session() as session:
            if self._projection.kind is Kind.GROUP:
                await self._attempts(session, chain)
                return
            for envelope in chain:
                if await self._pause(0):
                    return
                if not await self._attempts(session, [envelope]):
                    return

    async def _attempts(self, session: OwnedSession, events: Sequence[EventEnvelope]) -> bool:
        """Handle events together, as recovery says; False when their source is parked."""
        events = [e for e in events if e.source_id not in self._state.parked]
        if not events:
            return False
        retries, first = self._projection.recovery.retries, events[0]
        for attempt in range(1, retries.attempts + 1):
            try:
                await self._call(session, events)
            except HandlerFailed as failure:
                self._report(first, failure, attempt)
                if (delay := retries.delay(attempt)) is not None:
                    await self._wait(delay.total_seconds())
                elif len(events) > 1:
                    return await self._halves(session, events)
                else:
                    return await self._give_up_on(session, first, failure, attempt)
            except Exception as error:
                if len(events) == 1 or fault_of(error) is not Fault.BATCH:
                    raise
                return await self._halves(session, events)
            else:
                self._streak.handled(envelope.event_type for envelope in events)
                self._done.extend(events)
                return True
        return False

    async def _call(self, session: OwnedSession, events: Sequence[EventEnvelope]) -> None:
        try:
            await self._dispatcher.handle(session, events)
        except MemoryError as error:
            if len(events) > 1 or not self._reads_little(self._read):
                raise
            raise too_large(events[0], error) from error

    async def _halves(self, session: OwnedSession, events: Sequence[EventEnvelope]) -> bool:
        """Try the halves of a list apart, until the event that fails stands alone."""
        middle = len(events) // 2
        ended = [await self._attempts(session, half) for half in (events[:middle], events[middle:])]
        return all(ended)

    async def _give_up_on(
        self, session: OwnedSession, envelope: EventEnvelope, failure: HandlerFailed, attempts: int
    ) -> bool:
        self._look_at_streak(envelope, failure)
        match self._projection.recovery.give_up:
            case GiveUp.FAIL:
                raise self._gave_up(envelope, failure) from failure
            case GiveUp.SKIP:
                self._done.append(envelope)  # counts as handled, or it would block its source
                self._log_skipped(envelope, failure)
                return True
            case GiveUp.PARK:
                await self.park_and_tell(session, envelope, failure, attempts)
                return False
