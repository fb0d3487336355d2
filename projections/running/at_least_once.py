"""Handling for effects outside the database: the offset is stored after them, sources are handled concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from journal import Database, EventEnvelope, OwnedSession
from journal.database import Fault, fault_of
from journal.tasks import end
from projections.defining import AtLeastOnce, Kind
from projections.errors import HandlerFailed
from projections.running.blame import lacks_memory
from projections.running.pipeline import Parts
from projections.running.reporting import failed_alone
from projections.running.suspects import Suspects


class _Unclear(Exception):
    """Events have failed, and it is not clear whether they are at fault."""


class AtLeastOncePipeline:
    """
    Handles events, each in its source's order, and stores offsets after their effects.

    A handler's session is not a batch's transaction: each of its statements commits by itself.

    Args:
        parts: What to handle them with.
        database: Lends the handlers' sessions.
        delivery: When to store offsets, and how many sources to handle at a time.
    """

    def __init__(self, parts: Parts, database: Database, delivery: AtLeastOnce) -> None:
        self._parts = parts
        self._database = database
        self._delivery = delivery
        self._done: list[EventEnvelope] = []
        self._read: Sequence[EventEnvelope] = ()
        self._suspects = self._no_suspects(more=False)

    async def handle(
        self,
        session: OwnedSession,
        envelopes: Sequence[EventEnvelope],
        *,
        more: bool,
        settled: bool = False,  # noqa: ARG002
    ) -> None:
        """Handle accepted events, and store all offsets; see :meth:`projections.running.pipeline.Pipeline.handle`."""
        self._read = envelopes
        size = min(self._delivery.after, self._parts.projection.batch_size)
        for start in range(0, len(envelopes), size):
            await self._parts.transactions.wait(0)
            if chunk := self._parts.parking.left(envelopes[start : start + size]):
                self._suspects = self._no_suspects(more=more or start + size < len(envelopes))
                with self._parts.reporting.batch(chunk):
                    await self._handle_chunk(session, chunk)

    def _no_suspects(self, *, more: bool) -> Suspects:
        return Suspects(self._parts.projection, self._parts.retrying.limit, more=more)

    async def _handle_chunk(self, session: OwnedSession, chunk: Sequence[EventEnvelope]) -> None:
        work = asyncio.create_task(self._decided(chunk))
        try:
            while not work.done():
                await asyncio.wait([work], timeout=self._delivery.within.total_seconds())
                await self._save_done(session)
        finally:
            await end(work)
        work.result()
        await self._parts.transactions.wait(0)  # perhaps before the last event; what is done is stored

    async def _save_done(self, session: OwnedSession) -> None:
        """Store what has been handled since the last time."""
        done, self._done = self._done, []
        if done:
            await self._parts.transactions.commit(session, done)
            self._parts.reporting.handled(done)

    async def _decided(self, chunk: Sequence[EventEnvelope]) -> None:
        """Handle events, and again those of which it was not clear whether they are at fault."""
        await self._work(chunk)
        if self._suspects.any and not await self._parts.transactions.pause(0):
            await self._work([envelope for chain in self._suspects.decide() for envelope in chain])

    async def _work(self, chunk: Sequence[EventEnvelope]) -> None:
        places = asyncio.Semaphore(self._delivery.concurrency)
        if self._parts.projection.kind is Kind.GROUP:
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
            if self._parts.projection.kind is Kind.GROUP:
                await self._attempts(session, chain)
                return
            for envelope in chain:
                if await self._parts.transactions.pause(0):
                    return
                await self._attempts(session, [envelope])

    async def _attempts(self, session: OwnedSession, events: Sequence[EventEnvelope]) -> bool:
        """Handle events together, as recovery says; False when their source is parked."""
        if not (events := self._suspects.left(self._parts.parking.left(events))):
            return False
        retrying, first = self._parts.retrying, events[0]
        try:
            failure = await retrying.attempts(first, lambda: self._call(session, events))
        except _Unclear:
            return len(events) > 1 and await self._halves(session, events)
        if failure is None:
            retrying.handled(events)
            self._suspects.passed(events)
            self._done.extend(events)
            return True
        if len(events) > 1:
            return await self._halves(session, events)
        self._suspects.check(failure)
        return await retrying.give_up(
            session, first, failure, lambda: self._skip(first), alone=self._suspects.is_alone(first)
        )

    async def _call(self, session: OwnedSession, events: Sequence[EventEnvelope]) -> None:
        try:
            await self._parts.dispatcher.handle(session, events)
        except HandlerFailed as failure:
            self._hold(events, failure)
            raise
        except Exception as error:
            if fault_of(error) is not Fault.BATCH:
                raise
            if len(events) > 1:
                raise _Unclear from error
            if lacks_memory(error) and not self._parts.pages.reads_little(len(self._read)):
                raise
            alone = failed_alone(events[0], error)
            self._hold(events, alone)
            raise alone from error

    def _hold(self, events: Sequence[EventEnvelope], failure: HandlerFailed) -> None:
        """Hold back what may be no event's fault, or try less of it, by raising _Unclear."""
        if failure.fault is not Fault.EVENT and (len(events) > 1 or self._suspects.hold(events[0], failure)):
            raise _Unclear from failure

    async def _halves(self, session: OwnedSession, events: Sequence[EventEnvelope]) -> bool:
        """Try the halves of a list apart, until the event that fails stands alone."""
        middle = len(events) // 2
        ended = [await self._attempts(session, half) for half in (events[:middle], events[middle:])]
        return all(ended)

    async def _skip(self, envelope: EventEnvelope) -> None:
        self._done.append(envelope)  # counts as handled, or it would block its source
