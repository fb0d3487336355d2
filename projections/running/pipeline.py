"""
From events that were read to effects that are committed: one batch of one range.

Invariant: what a range remembers moves only after COMMIT, and a batch commits its effects, its offsets and the check of
its fence together or not at all.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from journal import DatabaseError, EventEnvelope, OwnedSession
from journal.database.faults import Fault, fault_of, is_conflict
from offsets import OffsetState, OffsetStore
from projections.defining.handlers import Projection
from projections.errors import (
    HandlerFailed,
    ProjectionFailed,
    describe,
    kind_of,
    said,
    trace_of,
    traceback_of,
)
from projections.failing.recovery import GiveUp
from projections.failing.streak import Streak
from projections.running.dispatch import Dispatcher
from projections.running.observer import StatusObserver
from projections.running.page_limit import PageLimit

log = logging.getLogger("projections")

_CONFLICT_RETRIES = 10


class Stopping(Exception):
    """The range is to stop before an event is done with; its next holder begins with that event."""


class Pipeline:
    """
    Handles batches of one range, exactly once.

    Args:
        projection: What to run.
        dispatcher: Calls its handlers.
        store: Its offsets.
        state: What the range knows of its sources.
        observer: Is told.
        progress: The horizon and the last import, as they are to be stored now.
        pause: Waits between attempts; true, and early, when the range is to stop.
        idle: The database ends a batch's transaction that is without a statement for so long.
        streak: Notices that sources fail alike.
        pages: How large pages are in this process.
    """

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        projection: Projection,
        dispatcher: Dispatcher,
        store: OffsetStore,
        state: OffsetState,
        observer: StatusObserver,
        progress: Callable[[], tuple[datetime, int]],
        pause: Callable[[float], Awaitable[bool]],
        idle: timedelta,
        streak: Streak,
        pages: PageLimit,
    ) -> None:
        self._projection = projection
        self._dispatcher = dispatcher
        self._store = store
        self._state = state
        self._observer = observer
        self._progress = progress
        self._pause = pause
        self._idle = idle
        self._streak = streak
        self._pages = pages

    async def handle(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        """
        Handle accepted events and store their offsets; an event that fails is set apart, and recovery decides.

        Raises:
            ProjectionFailed: Recovery says to stop.
            Stopping: The range is to stop, and an event still has attempts left.
            RangeLost, OffsetOvertaken, TransactionEnded, DatabaseError: Not an event's fault.
        """
        size = self._projection.batch_size  # filled gaps may have made it more
        todo = [list(envelopes[start : start + size]) for start in range(0, len(envelopes), size)][::-1]
        while todo:
            if await self._pause(0):
                raise Stopping
            batch = [e for e in todo.pop() if e.source_id not in self._state.parked]
            if not batch:
                continue
            try:
                await self._commit(session, batch)
            except HandlerFailed as failure:
                if len(batch) == 1:
                    await self._recover(session, batch[0], failure)
                else:
                    todo.extend(reversed(_around(batch, failure.index)))
            except Exception as error:
                if len(batch) > 1 and fault_of(error) is Fault.BATCH:
                    todo.extend(reversed(_around(batch, None)))  # less may pass where more took too long
                elif isinstance(error, MemoryError) and len(batch) == 1 and self._reads_little(envelopes):
                    await self._recover(session, batch[0], too_large(batch[0], error))
                else:
                    raise

    def _reads_little(self, read: Sequence[EventEnvelope]) -> bool:
        """Whether not what was read beside an event takes the memory that it lacks."""
        return len(read) == 1 or self._pages.smallest

    async def skip(self, session: OwnedSession, envelope: EventEnvelope) -> None:
        """Count an event as handled without handling it: an event that is dropped must not block its source."""
        await self._in_transaction(session, [envelope], nothing)

    async def drop_parked(self, session: OwnedSession, envelope: EventEnvelope) -> None:
        """Count the event that a source was parked at as handled; what came after it is to be handled next."""

        async def work() -> None:
            at = envelope.seq_nr
            await self._store.advance_parked_in_tx(session, envelope.source_id, at, at + 1)

        await self._in_transaction(session, [envelope], work)

    async def retry_parked(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        """
        Handle the next events of a parked source.

        The source stays parked, at the event after them: until all that came meanwhile is handled, a crash must
        find it so, because the stored horizon is past these events.
        """
        first, last = envelopes[0], envelopes[-1]

        async def work() -> None:
            await self._store.advance_parked_in_tx(session, last.source_id, first.seq_nr, last.seq_nr + 1)
            await self._dispatcher.handle(session, envelopes)

        try:
            with self._telling(envelopes):
                await self._in_transaction(session, envelopes, work)
        except MemoryError as error:
            if len(envelopes) > 1:
                raise
            raise too_large(first, error) from error
        self._observer.handled(self._projection.name, self._store.claim.slices, envelopes)

    async def retry_failed(
        self, session: OwnedSession, envelope: EventEnvelope, failure: HandlerFailed
    ) -> None:
        """Park a source again that somebody had retried: it waits for another decision."""
        self._report(envelope, failure, 1)
        await self.park_and_tell(session, envelope, failure, 1)

    async def unpark(self, session: OwnedSession, source_id: str) -> None:
        """Let a source go on with what the log brings."""
        await self._in_transaction(session, [], lambda: self._store.unpark_in_tx(session, source_id))
        self._state.parked.pop(source_id, None)
        name = self._projection.name
        log.info(
            "%s: source %r is parked no more: it goes on", name, source_id,
            extra={"action": "unparked", "projection": name, "source_id": source_id},
        )  # fmt: skip

    async def _commit(self, session: OwnedSession, batch: Sequence[EventEnvelope]) -> None:
        with self._telling(batch):
            await self._in_transaction(session, batch, lambda: self._dispatcher.handle(session, batch))
        self._streak.handled(envelope.event_type for envelope in batch)
        self._observer.handled(self._projection.name, self._store.claim.slices, batch)

    @contextmanager
    def _telling(self, envelopes: Sequence[EventEnvelope]) -> Iterator[None]:
        """Tell when a batch begins, and how it ends."""
        name, slices = self._projection.name, self._store.claim.slices
        self._observer.batch_started(name, slices, envelopes)
        try:
            yield
        except BaseException as error:
            self._observer.batch_ended(name, slices, error)
            raise
        self._observer.batch_ended(name, slices, None)

    async def _in_transaction(
        self, session: OwnedSession, handled: Sequence[EventEnvelope], work: Callable[[], Awaitable[None]]
    ) -> None:
        """Run work and store offsets in one transaction; only then the state moves."""
        last = {envelope.source_id: envelope for envelope in handled}
        for attempt in range(1, _CONFLICT_RETRIES + 1):
            try:
                await self._try(session, last, len(handled), work)
                break
            except DatabaseError as error:
                if fault_of(error) is Fault.EVENT:
                    raise HandlerFailed(f"the batch could not be written: {error}") from error
                if attempt == _CONFLICT_RETRIES or not is_conflict(error):
                    raise
                log.info(
                    "%s: conflict, trying again: %s",
                    self._projection.name,
                    error,
                    extra={"action": "conflict", "projection": self._projection.name, "attempt": attempt},
                )
                await self._wait(0.01 * attempt)
        self._state.committed({source_id: envelope.seq_nr for source_id, envelope in last.items()})

    async def _try(
        self,
        session: OwnedSession,
        last: dict[str, EventEnvelope],
        handled: int,
        work: Callable[[], Awaitable[None]],
    ) -> None:
        mark = secrets.token_hex(8)
        previous = self._state.previous(last)
        async with self._store.storing:
            progress = self._progress()
            try:
                await session.begin(mark, self._idle)
                await work()
                await self._store.save_in_tx(session, mark, progress, last, handled, previous=previous)
                await session.commit()
            except BaseException:
                # After a COMMIT that broke, the outcome is unknown: the range restarts and reads it back.
                with suppress(Exception):  # a connection that is gone must not hide why
                    await session.rollback()
                raise
            self._store.commits += 1

    async def _recover(self, session: OwnedSession, envelope: EventEnvelope, failure: HandlerFailed) -> None:
        retries = self._projection.recovery.retries
        for attempt in range(1, retries.attempts + 1):
            self._report(envelope, failure, attempt)
            if (delay := retries.delay(attempt)) is None:
                break
            await self._wait(delay.total_seconds())
            try:
                await self._commit(session, [envelope])
            except HandlerFailed as again:
                failure = again
            except MemoryError as error:
                failure = too_large(envelope, error)
            else:
                return
        await self._give_up(session, envelope, failure, retries.attempts)

    async def _wait(self, seconds: float) -> None:
        """Wait before another attempt; a range that is to stop must not use up the attempts at once."""
        if await self._pause(seconds):
            raise Stopping

    async def _give_up(
        self, session: OwnedSession, envelope: EventEnvelope, failure: HandlerFailed, attempts: int
    ) -> None:
        self._look_at_streak(envelope, failure)
        match self._projection.recovery.give_up:
            case GiveUp.FAIL:
                raise self._gave_up(envelope, failure) from failure
            case GiveUp.SKIP:
                await self.skip(session, envelope)
                self._log_skipped(envelope, failure)
            case GiveUp.PARK:
                await self.park_and_tell(session, envelope, failure, attempts)

    def _look_at_streak(self, envelope: EventEnvelope, failure: HandlerFailed) -> None:
        """Stop rather than give up one source after the other for a fault of the handler, or of what it uses."""
        give_up = self._projection.recovery.give_up
        if give_up is GiveUp.FAIL:
            return
        kind = kind_of(failure.__cause__ or failure)
        if not self._streak.failed(envelope.event_type, kind, envelope.source_id):
            return
        name, done = self._projection.name, "skipped" if give_up is GiveUp.SKIP else "parked"
        again = f", and `projections parked retry {name} --all` handles those" if done == "parked" else ""
        raise ProjectionFailed(
            f"projection {name!r}: more than {self._streak.limit} sources failed alike, one after the other "
            f"({kind}): the handler is at fault, or what it uses, and no more of them are {done}. Mend it: the range "
            f"goes on by itself{again}. If the events are at fault, raise alike_failures (--alike-failures). "
            f"The last: {_at(envelope, failure)}"
        ) from failure

    def _gave_up(self, envelope: EventEnvelope, failure: HandlerFailed) -> ProjectionFailed:
        return ProjectionFailed(f"projection {self._projection.name!r}: {_at(envelope, failure)}")

    def _log_skipped(self, envelope: EventEnvelope, failure: HandlerFailed) -> None:
        self._log_given_up("skipped", envelope, failure)
        self._observer.skipped(self._projection.name, envelope, failure)

    async def park_and_tell(
        self, session: OwnedSession, envelope: EventEnvelope, failure: HandlerFailed, attempts: int
    ) -> None:
        """Set a source aside, and remember it once that is committed."""

        async def work() -> None:
            trace = traceback_of(failure.__cause__ or failure)
            await self._store.park_in_tx(session, envelope, said(failure), trace, attempts)

        await self._in_transaction(session, [], work)
        self._state.parked[envelope.source_id] = envelope.seq_nr
        self._log_given_up("parked", envelope, failure)
        self._observer.parked(self._projection.name, envelope, failure)

    def _log_given_up(self, action: str, envelope: EventEnvelope, failure: HandlerFailed) -> None:
        log.error(
            "%s: %s %s", self._projection.name, action, _at(envelope, failure),
            exc_info=trace_of(failure.__cause__ or failure), extra=self._details(action, envelope),
        )  # fmt: skip

    def _details(self, action: str, envelope: EventEnvelope) -> dict[str, object]:
        return {
            "action": action,
            "projection": self._projection.name,
            "source_id": envelope.source_id,
            "seq_nr": envelope.seq_nr,
        }

    def _report(self, envelope: EventEnvelope, failure: HandlerFailed, attempt: int) -> None:
        log.warning(
            "%s: attempt %d failed: %s", self._projection.name, attempt, _at(envelope, failure),
            exc_info=trace_of(failure.__cause__ or failure) if attempt == 1 else None,
            extra={"action": "handler_failed", "projection": self._projection.name, "attempt": attempt},
        )  # fmt: skip
        self._observer.error(self._projection.name, envelope, failure.__cause__ or failure, attempt)


async def nothing() -> None:
    """No effects: only progress is stored."""


def too_large(envelope: EventEnvelope, error: MemoryError) -> HandlerFailed:
    """An event that alone needs more memory than there is is left to recovery."""
    failure = HandlerFailed(f"{describe(envelope)}: {said(error)}")
    failure.__cause__ = error
    return failure


def _at(envelope: EventEnvelope, failure: Exception) -> str:
    """A failure with its event, which most failures name."""
    where, text = describe(envelope), said(failure)
    return text if where in text else f"{where}: {text}"


def _around(batch: list[EventEnvelope], index: int | None) -> list[list[EventEnvelope]]:
    """The parts before, at and after the event that failed; halves, when only the whole is known to fail."""
    if index is None:
        middle = len(batch) // 2
        return [batch[:middle], batch[middle:]]
    return [part for part in (batch[:index], [batch[index]], batch[index + 1 :]) if part]
