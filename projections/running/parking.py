"""Sources of a range that wait, each at an event that could not be handled, and how they go on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from journal import EventEnvelope, OwnedSession, Page, SliceReader
from journal.database import Fault, fault_of
from offsets import Parked
from projections.errors import HandlerFailed
from projections.running.dispatch import Dispatcher
from projections.running.read_journal import Reading
from projections.running.reporting import Reporting, too_large
from projections.running.transactions import Transactions


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
    ) -> None:
        self._dispatcher = dispatcher
        self._transactions = transactions
        self._reporting = reporting
        self._batch_size = batch_size
        self._reader = reader
        self._reading = reading

    def left(self, envelopes: Iterable[EventEnvelope]) -> list[EventEnvelope]:
        """Of events, those whose sources do not wait."""
        parked = self._transactions.state.parked
        return [envelope for envelope in envelopes if envelope.source_id not in parked]

    async def park(
        self, session: OwnedSession, envelope: EventEnvelope, failure: HandlerFailed, attempts: int
    ) -> None:
        """Set a source aside at an event that has failed this number of times."""
        await self._transactions.park(session, envelope, failure, attempts)
        self._reporting.parked(envelope, failure)

    async def follow_decisions(self, session: OwnedSession) -> None:
        """Let sources go on that somebody has decided about: first the event they wait at, then what has come since."""
        for parked in await self._transactions.store.parked(session):
            if parked.decision != "waiting":
                await self._unpark(session, parked)

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
                    self._reporting.attempt_failed(page[0], failure, 1)
                    await self.park(session, page[0], failure, 1)  # it waits for another decision
                    return
                size = failure.index or len(page) // 2
            except Exception as error:
                if len(page) == 1 or fault_of(error) is not Fault.BATCH:
                    raise
                size = len(page) // 2
            else:
                next_seq_nr = page[-1].seq_nr + 1
                drop, size = False, min(2 * size, self._batch_size)
            if await self._transactions.pause(0):
                return
        await self._transactions.unpark(session, parked.source_id)
        self._reporting.unparked(parked.source_id)

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
        except MemoryError as error:
            if len(page) > 1:
                raise
            raise too_large(first, error) from error
        self._reporting.handled(page)
