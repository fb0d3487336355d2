"""Sources of a range that wait, each at an event that could not be handled, and how they go on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from journal import EventEnvelope, OwnedSession, Page, SliceReader
from journal.database import Fault, fault_of
from offsets import Parked
from projections.errors import HandlerFailed
from projections.failing import Backoff
from projections.running.dispatch import Dispatcher
from projections.running.read_journal import Reading
from projections.running.reporting import Reporting, failed_alone
from projections.running.transactions import Transactions

_AGAIN = Backoff(timedelta(milliseconds=200), timedelta(minutes=5))
"""Pauses before a source is tried again by itself."""
_IN_A_LEASE = 10
"""Sources that are tried again in each lease, as soon as pauses have grown: each failure costs a transaction, and there
may be many sources. When one of them is handled, what they fail for may be repaired, and all are tried."""


class _Again(NamedTuple):
    """A source that is to be tried again by itself."""

    tries: int
    due_at: float
    slow: bool
    """Whether it failed because it took too long."""


class Parking:
    """
    Sets sources aside, and has those go on that somebody has decided about.

    Args:
        dispatcher: Calls the handlers of the projection.
        transactions: Those of the range.
        reporting: Gets what happens to events, for the log and the observer.
        batch_size: The most events of a source that are handled together.
        reader: Reads what has come of a source since it was set aside.
        reading: Lends what to read the journal with.
        lease: While few sources wait to be tried again by themselves, no pause is longer.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        transactions: Transactions,
        reporting: Reporting,
        batch_size: int,
        reader: SliceReader,
        *,
        reading: Reading,
        lease: timedelta,
    ) -> None:
        self._dispatcher = dispatcher
        self._transactions = transactions
        self._reporting = reporting
        self._batch_size = batch_size
        self._reader = reader
        self._reading = reading
        self._lease = lease
        self._again: dict[str, _Again] = {}
        self._due_at = 0.0

    def left(self, envelopes: Iterable[EventEnvelope]) -> list[EventEnvelope]:
        """Of events, those whose sources do not wait."""
        parked = self._transactions.state.parked
        return [envelope for envelope in envelopes if envelope.source_id not in parked]

    async def park(
        self, session: OwnedSession, envelope: EventEnvelope, failure: HandlerFailed, attempts: int
    ) -> None:
        """Set a source aside at an event that has failed this number of times."""
        await self._transactions.park(session, envelope, failure, attempts)
        self._again.pop(envelope.source_id, None)
        if failure.fault is not Fault.EVENT:
            self._try_later(envelope.source_id, slow=failure.fault is Fault.BATCH)
        self._reporting.parked(envelope, failure)

    def follow(self, sources: Iterable[Parked]) -> bool:
        """At the start of a range: try again soon what is to be; whether there are decisions to follow."""
        decided = False
        for parked in sources:
            decided |= parked.decision != "waiting"
            if parked.again:
                self._try_later(parked.source_id, slow=False)
        return decided

    @property
    def is_due(self) -> bool:
        """Whether a source is to be tried again by itself."""
        return bool(self._again) and self._due_at <= asyncio.get_running_loop().time()

    async def follow_decisions(self, session: OwnedSession) -> None:
        """
        Let sources go on that somebody has decided about, and try again what may have been repaired.

        First the event they wait at, then what has come since.
        """
        now = asyncio.get_running_loop().time()
        for parked in await self._transactions.store.parked(session):
            again = self._again.get(parked.source_id)
            due = again is None or again.due_at <= now
            if parked.decision != "waiting" or (parked.again and due):
                await self._unpark(session, parked)
        self._due_at = min((again.due_at for again in self._again.values()), default=0.0)

    def _try_later(self, source_id: str, *, slow: bool) -> int:
        """Try a source again by itself, after a pause that grows: how often. A slow attempt holds others up."""
        before = self._again.get(source_id)
        tries = 1 if before is None else before.tries + 1
        pause = _AGAIN.delay(tries)
        if not slow:
            pause = min(pause, self._lease * max(1, len(self._again) / _IN_A_LEASE))
        due_at = asyncio.get_running_loop().time() + pause.total_seconds()
        self._due_at = min(self._due_at, due_at) if self._again else due_at
        self._again[source_id] = _Again(tries, due_at, slow)
        return tries

    async def _unpark(self, session: OwnedSession, parked: Parked) -> None:
        """Handle what came while a source was parked, in order; what is not visible yet comes through the log."""
        await self._transactions.look_up(session, {parked.source_id})
        drop, size = parked.decision == "drop", 1
        next_seq_nr = parked.seq_nr
        while page := await self._read(session, parked.source_id, next_seq_nr, size):
            try:
                await self._go_on(session, page, drop=drop)
            except HandlerFailed as failure:
                if len(page) == 1:
                    waits = failure.fault is not Fault.EVENT and parked.decision == "waiting"
                    if waits and page[0].seq_nr == parked.seq_nr:
                        tries = self._try_later(parked.source_id, slow=failure.fault is Fault.BATCH)
                        self._reporting.attempt_failed(page[0], failure, tries)
                        return
                    self._reporting.attempt_failed(page[0], failure, 1)
                    await self.park(session, page[0], failure, 1)  # it waits for another decision
                    return
                size = failure.index or len(page) // 2
            except Exception as error:
                if len(page) == 1 or fault_of(error) is not Fault.BATCH:  # a decision to drop, too
                    raise
                size = len(page) // 2
            else:
                next_seq_nr = page[-1].seq_nr + 1
                drop, size = False, min(2 * size, self._batch_size)
            if await self._transactions.pause(0):
                return
        await self._transactions.unpark(session, parked.source_id)
        self._again.pop(parked.source_id, None)
        if parked.again and parked.decision != "drop":
            self._try_all()
        self._reporting.unparked(parked.source_id)

    def _try_all(self) -> None:
        """Try all again now that wait for a repair: it may have been made."""
        now = asyncio.get_running_loop().time()
        for source_id, again in self._again.items():
            if not again.slow:
                self._again[source_id] = again._replace(due_at=now)
                self._due_at = now

    async def _read(
        self, session: OwnedSession, source_id: str, first: int, size: int
    ) -> Page[EventEnvelope]:
        async with self._reading(session) as journal:
            return await self._reader.of_source(journal, source_id, first, first + size - 1)

    async def _go_on(self, session: OwnedSession, page: Sequence[EventEnvelope], *, drop: bool) -> None:
        """
        Handle the next events of a source that waits, or pass over the one that it waits at.

        The source stays parked, at the event after them: until all that came meanwhile is handled, a crash must
        find it so, because the stored horizon is past these events.
        """
        first, last = page[0], page[-1]

        async def work() -> None:
            await self._transactions.store.advance_parked_in_tx(
                session, first.source_id, first.seq_nr, last.seq_nr + 1
            )
            if not drop:
                await self._dispatcher.handle(session, page)

        if drop:
            await self._transactions.commit(session, page, work)
            return
        try:
            with self._reporting.batch(page):
                await self._transactions.commit(session, page, work)
        except HandlerFailed:
            raise
        except Exception as error:
            if len(page) > 1 or fault_of(error) is not Fault.BATCH:
                raise
            raise failed_alone(first, error) from error
        self._reporting.handled(page)
