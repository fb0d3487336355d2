"""From events that were read to effects that are committed: one batch of one range, exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from journal import EventEnvelope, OwnedSession
from journal.database import Fault, fault_of
from projections.defining import Projection
from projections.errors import HandlerFailed
from projections.running.dispatch import Dispatcher
from projections.running.page_limit import PageLimit
from projections.running.parking import Parking
from projections.running.reporting import Reporting, too_large
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
        self, session: OwnedSession, envelopes: Sequence[EventEnvelope], *, settled: bool = False
    ) -> None:
        """
        Handle accepted events and store their offsets; an event that fails is set apart, and recovery decides.

        With ``settled``, all events before them are handled, and offsets may be left out: see ``Transactions.commit``.

        Raises:
            ProjectionFailed: Recovery says to stop.
            Stopping: The range is to stop, and an event still has attempts left.
            RangeLost, OffsetOvertaken, TransactionEnded, DatabaseError: Not an event's fault.
        """
        size = self._parts.projection.batch_size  # filled gaps may have made it more
        pages = self._parts.pages
        todo = [list(envelopes[start : start + size]) for start in range(0, len(envelopes), size)][::-1]
        suspects = Suspects(self._parts.projection, self._parts.retrying.limit)
        while todo or suspects.any:
            await self._parts.transactions.wait(0)
            if not todo:
                todo = suspects.decide()[::-1]
            if not (batch := suspects.left(self._parts.parking.left(todo.pop()))):
                continue
            try:
                await self._commit(session, batch, settled=settled)
                suspects.passed(batch)
            except HandlerFailed as failure:
                if len(batch) > 1:
                    todo.extend(reversed(_around(batch, failure.index)))
                elif suspects.hold(batch[0], failure):
                    settled = False  # from here on, what is handled comes after events that are not
                else:
                    await self._recover(session, batch[0], failure, suspects)
            except Exception as error:
                if len(batch) > 1 and fault_of(error) is Fault.BATCH:
                    todo.extend(reversed(_around(batch, None)))  # less may pass where more took too long
                elif (
                    isinstance(error, MemoryError) and len(batch) == 1 and pages.reads_little(len(envelopes))
                ):
                    await self._recover(session, batch[0], too_large(batch[0], error), suspects)
                else:
                    raise

    async def _commit(
        self, session: OwnedSession, batch: Sequence[EventEnvelope], *, settled: bool = False
    ) -> None:
        parts = self._parts
        with parts.reporting.batch(batch):
            await parts.transactions.commit(
                session, batch, lambda: parts.dispatcher.handle(session, batch),
                until=batch[-1].db_timestamp if settled else None,
            )  # fmt: skip
        parts.retrying.handled(batch)
        parts.reporting.handled(batch)

    async def _recover(
        self, session: OwnedSession, envelope: EventEnvelope, failure: HandlerFailed, suspects: Suspects
    ) -> None:
        async def handle() -> None:
            try:
                await self._commit(session, [envelope])
            except MemoryError as error:
                raise too_large(envelope, error) from error

        retrying, transactions = self._parts.retrying, self._parts.transactions
        if last := await retrying.attempts(envelope, handle, failure):
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
