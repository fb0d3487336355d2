"""Reports of a range on its events, to the log and to the observer."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from journal import EventEnvelope, SliceRange
from journal.database import Fault
from projections.errors import HandlerFailed, describe, said
from projections.running.blame import lacks_memory
from projections.running.observer import StatusObserver
from projections.running.tracebacks import shown_trace

log = logging.getLogger("projections")


class Reporting:
    """Tells of batches, and of events that fail."""

    def __init__(self, name: str, slices: SliceRange, observer: StatusObserver) -> None:
        self._name = name
        self._slices = slices
        self._observer = observer
        self._told_of_numbers = False

    @contextmanager
    def batch(self, envelopes: Sequence[EventEnvelope]) -> Iterator[None]:
        """Tell when a batch begins, and how it ends."""
        self._observer.batch_started(self._name, self._slices, envelopes)
        try:
            yield
        except BaseException as error:
            self._observer.batch_ended(self._name, self._slices, error)
            raise
        self._observer.batch_ended(self._name, self._slices, None)

    def handled(self, envelopes: Sequence[EventEnvelope]) -> None:
        """Events have been handled and committed."""
        self._observer.handled(self._name, self._slices, envelopes)

    def handled_page(self, events: int, newest: datetime, seconds: float) -> None:
        """A number of events, up to a time, have been handled and committed inside the database."""
        self._observer.handled_page(self._name, self._slices, events, newest, seconds)

    def attempt_failed(self, envelope: EventEnvelope, failure: HandlerFailed, attempt: int) -> None:
        """An attempt at an event has failed; 1 is the first."""
        log.warning(
            "%s: attempt %d failed: %s", self._name, attempt, failure_of(envelope, failure),
            exc_info=shown_trace(failure.__cause__ or failure) if attempt == 1 else None,
            extra={"action": "handler_failed", "projection": self._name, "attempt": attempt},
        )  # fmt: skip
        self._observer.error(self._name, envelope, failure.__cause__ or failure, attempt)

    def skipped(self, envelope: EventEnvelope, failure: HandlerFailed) -> None:
        """An event was given up and passed over."""
        self._given_up("skipped", envelope, failure)
        self._observer.skipped(self._name, envelope, failure)

    def passed_over(self, envelope: EventEnvelope) -> None:
        """An event's number is below the first one; the log has the first of the range."""
        if not self._told_of_numbers:
            self._told_of_numbers = True
            log.warning(
                "%s: slices %s: %s is passed over, and so is each event with a number below the first one",
                self._name, self._slices, describe(envelope),
                extra={"action": "events_passed_over", "projection": self._name, "slices": str(self._slices)},
            )  # fmt: skip
        self._observer.passed_over(self._name, envelope)

    def parked(self, envelope: EventEnvelope, failure: HandlerFailed) -> None:
        """A source was set aside at this event."""
        self._given_up("parked", envelope, failure)
        self._observer.parked(self._name, envelope, failure)

    def unparked(self, source_id: str) -> None:
        """A source that was parked goes on."""
        log.info(
            "%s: source %r is parked no more: it goes on", self._name, source_id,
            extra={"action": "unparked", "projection": self._name, "source_id": source_id},
        )  # fmt: skip

    def _given_up(self, action: str, envelope: EventEnvelope, failure: HandlerFailed) -> None:
        log.error(
            "%s: %s %s", self._name, action, failure_of(envelope, failure),
            exc_info=shown_trace(failure.__cause__ or failure),
            extra={
                "action": action, "projection": self._name, "source_id": envelope.source_id, "seq_nr": envelope.seq_nr,
            },
        )  # fmt: skip


def failure_of(envelope: EventEnvelope, failure: Exception) -> str:
    """A failure with its event, which most failures name."""
    where, text = describe(envelope), said(failure)
    return text if where in text else f"{where}: {text}"


def failed_alone(envelope: EventEnvelope, error: Exception) -> HandlerFailed:
    """
    An event alone fails with what less of it might have passed.

    One that needs more memory than there is, its recovery decides about. All else, such as a time-out, may pass later.
    """
    fault = Fault.EVENT if lacks_memory(error) else Fault.BATCH
    failure = HandlerFailed(f"{describe(envelope)}: {said(error)}", fault=fault)
    failure.__cause__ = error
    return failure
