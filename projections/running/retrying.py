"""Trying an event again that could not be handled, and giving it up: as the recovery of its projection says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from journal import EventEnvelope, OwnedSession
from journal.database import Fault
from projections.defining import Projection
from projections.errors import HandlerFailed, ProjectionFailed
from projections.failing import GiveUp, Streak
from projections.running.parking import Parking
from projections.running.reporting import Reporting, failure_of
from projections.running.tracebacks import kind_of


class Retrying:
    """
    Follows the recovery of a projection.

    Args:
        projection: The projection whose recovery says what to do.
        streak: Notices that sources fail alike.
        parking: Sets sources aside.
        reporting: Gets what happens to events, for the log and the observer.
        wait: Waits between attempts, for a number of seconds; raises when the range is to stop.
    """

    def __init__(
        self,
        projection: Projection,
        streak: Streak,
        parking: Parking,
        reporting: Reporting,
        wait: Callable[[float], Awaitable[None]],
    ) -> None:
        self._name = projection.name
        self._recovery = projection.recovery
        self._streak = streak
        self._parking = parking
        self._reporting = reporting
        self._wait = wait

    @property
    def limit(self) -> int:
        """How many sources may fail alike."""
        return self._streak.limit

    async def attempts(
        self,
        envelope: EventEnvelope,
        handle: Callable[[], Awaitable[None]],
        failure: HandlerFailed | None = None,
    ) -> HandlerFailed | None:
        """
        Handle an event, or several together, until that succeeds or no attempt is left.

        Args:
            envelope: The event, or the first of several, for messages.
            handle: Makes an attempt.
            failure: What the first attempt failed with, where it was made already.

        Returns:
            The last failure when no attempt is left; None when they are handled.
        """
        attempt = 1
        try:
            while True:
                if failure is None:
                    try:
                        await handle()
                    except HandlerFailed as error:
                        failure = error
                    else:
                        return None
                if failure.fault is Fault.BATCH:
                    return failure  # it may take as long again; parked, it is tried again by itself
                self._reporting.attempt_failed(envelope, failure, attempt)
                if (delay := self._recovery.retries.delay(attempt)) is None:
                    return failure
                await self._wait(delay.total_seconds())
                failure, attempt = None, attempt + 1
        finally:
            # Its traceback leads back here: together they would keep the event until the garbage collector looks.
            failure = None

    async def give_up(
        self,
        session: OwnedSession,
        envelope: EventEnvelope,
        failure: HandlerFailed,
        skip: Callable[[], Awaitable[None]],
        *,
        alone: bool,
    ) -> bool:
        """
        Give up an event that failed; returns whether its source goes on.

        Args:
            session: Outside a transaction.
            envelope: The event.
            failure: What the last attempt failed with.
            skip: Counts it as handled.
            alone: Whether no event of its type was handled in its page. What may be the fault of all is parked
                then, and not skipped; so is what may pass later by itself, such as a time-out.

        Raises:
            ProjectionFailed: Recovery says to stop, or more sources fail alike than may.
        """
        give_up = self._recovery.give_up
        if failure.fault is not Fault.EVENT:
            if not alone:
                self.handled_types([envelope.event_type])
            if give_up is GiveUp.SKIP and (alone or failure.fault is Fault.BATCH):
                give_up = GiveUp.PARK
        self._check_streak(envelope, failure)
        match give_up:
            case GiveUp.FAIL:
                raise ProjectionFailed(
                    f"projection {self._name!r}: {failure_of(envelope, failure)}"
                ) from failure
            case GiveUp.SKIP:
                await skip()
                self._reporting.skipped(envelope, failure)
                return True
            case GiveUp.PARK:
                await self._parking.park(session, envelope, failure, self._recovery.retries.attempts)
                return False

    def handled(self, envelopes: Sequence[EventEnvelope]) -> None:
        """Events were handled: their types do not fail alike."""
        self.handled_types(envelope.event_type for envelope in envelopes)

    def handled_types(self, event_types: Iterable[str]) -> None:
        """Events of these types were handled."""
        self._streak.handled(event_types)

    def _check_streak(self, envelope: EventEnvelope, failure: HandlerFailed) -> None:
        """Stop rather than give up one source after the other for a fault of the handler, or of what it uses."""
        give_up = self._recovery.give_up
        if give_up is GiveUp.FAIL:
            return
        kind = kind_of(failure.__cause__ or failure)
        if not self._streak.failed(envelope.event_type, kind, envelope.source_id):
            return
        name, done = self._name, "skipped" if give_up is GiveUp.SKIP else "parked"
        again = f", and `projections parked retry {name} --all` handles those" if done == "parked" else ""
        if failure.fault is not Fault.EVENT:
            done, again = "parked", ", and tries those again"
        raise ProjectionFailed(
            f"projection {name!r}: more than {self._streak.limit} sources failed alike, one after the other "
            f"({kind}): the handler is at fault, or what it uses, and no more of them are {done}. Fix it: the range "
            f"goes on by itself{again}. If the events are at fault, raise alike_failures (--alike-failures). "
            f"The last: {failure_of(envelope, failure)}"
        ) from failure
