"""From events that were read to effects that are committed: one batch of one range, exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from journal import EventEnvelope, OwnedSession
from journal.database import Fault, fault_of
from projections.defining import Projection
from projections.errors import HandlerFailed
from projections.running.blame import lacks_memory
from projections.running.dispatch import Dispatcher
from projections.running.page_limit import PageLimit
from projections.running.parking import Parking
from projections.running.reporting import Reporting, failed_alone
from projections.running.retrying import Retrying
from projections.running.suspects import Suspects
from projections.running.transactions import Transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the events of a range are handled with."""

    projection: Projection
    dispatcher: Dispatcher
    transactions: Transactions
    parking: Parking
    retrying: Retrying
    reporting: Reporting
    pages: PageLimit


class Pipeline:
    """Handles batches of one range, exactly once."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def handle(
        self, session: OwnedSession, envelopes: Sequence[EventEnvelope], *, more: bool, settled: bool = False
    ) -> None:
        """
        Handle accepted events and store their offsets; an event that fails is set apart, and recovery decides.

        With ``settled``, all events before them are handled, and offsets may be left out: see ``Transactions.commit``.
        With ``more``, others wait behind them.

        Raises:
            ProjectionFailed: Recovery says to stop.
            Stopping: The range is to stop, and an event still has attempts left.
            RangeLost, OffsetOvertaken, TransactionEnded, DatabaseError: Not an event's fault.
        """
        size = self._parts.projection.batch_size  # filled gaps may have made it more
        todo = [list(envelopes[start : start + size]) for start in range(0, len(envelopes), size)][::-1]
        suspects = Suspects(self._parts.projection, self._parts.retrying.limit, more=more)
        little = self._parts.pages.reads_little(len(envelopes))
        while todo or suspects.any:
            await self._parts.transactions.wait(0)
            # From here on, what is handled comes after events that are not.
            settled = settled and not suspects.any
            if not todo:
                todo = suspects.decide()[::-1]
            if batch := suspects.left(self._parts.parking.left(todo.pop())):
                parts = await self._attempt(session, batch, suspects, settled=settled, little=little)
                todo.extend(reversed(parts))

    async def _attempt(
        self,
        session: OwnedSession,
        batch: list[EventEnvelope],
        suspects: Suspects,
        *,
        settled: bool,
        little: bool,
    ) -> list[list[EventEnvelope]]:
        """Handle a batch; returns the parts of one that has failed, which are to be tried."""
        try:
            await self._commit(session, batch, settled=settled)
            suspects.passed(batch)
        except HandlerFailed as failure:
            if len(batch) > 1:
                return _around(batch, failure.index)
            if not suspects.hold(batch[0], failure):
                await self._recover(session, batch[0], failure, suspects)
        except Exception as error:
            if fault_of(error) is not Fault.BATCH:
                raise
            if len(batch) > 1:
                return _around(batch, None)  # less may pass where more took too long
            if not little:
                raise
            await self._recover(session, batch[0], failed_alone(batch[0], error), suspects)  # it lacks memory
        return []

    async def _commit(
        self, session: OwnedSession, batch: Sequence[EventEnvelope], *, settled: bool = False
    ) -> None:
        parts = self._parts
        try:
            with parts.reporting.batch(batch):
                await parts.transactions.commit(
                    session, batch, lambda: parts.dispatcher.handle(session, batch),
                    until=batch[-1].db_timestamp if settled else None,
                )  # fmt: skip
        except HandlerFailed:
            raise
        except Exception as error:
            if len(batch) > 1 or fault_of(error) is not Fault.BATCH or lacks_memory(error):
                raise
            raise failed_alone(batch[0], error) from error
        parts.retrying.handled(batch)
        parts.reporting.handled(batch)

    async def _recover(
        self, session: OwnedSession, envelope: EventEnvelope, failure: HandlerFailed, suspects: Suspects
    ) -> None:
        async def handle() -> None:
            try:
                await self._commit(session, [envelope])
            except Exception as error:
                if not lacks_memory(error):
                    raise
                raise failed_alone(envelope, error) from error

        retrying, transactions = self._parts.retrying, self._parts.transactions
        if last := await retrying.attempts(envelope, handle, failure):
            suspects.check(last)
            await retrying.give_up(
                session, envelope, last, lambda: transactions.commit(session, [envelope]),
                alone=suspects.is_alone(envelope),
            )  # fmt: skip


def _around(batch: list[EventEnvelope], index: int | None) -> list[list[EventEnvelope]]:
    """The parts before, at and after the event that failed; halves, when only the whole is known to fail."""
    if index is None:
        middle = len(batch) // 2
        return [batch[:middle], batch[middle:]]
    return [part for part in (batch[:index], [batch[index]], batch[index + 1 :]) if part]
