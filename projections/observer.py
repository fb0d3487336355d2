"""Hooks into what running projections do; they are called in the event loop and should return at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from journal import EventEnvelope, SliceRange


class StatusObserver:
    """Does nothing; override what you want to see. An exception raised here is logged and otherwise ignored."""

    def started(self, name: str, slices: SliceRange) -> None:
        """A range has been claimed and begins."""

    def taken_over(self, name: str, slices: SliceRange, owner: str) -> None:
        """A range has been claimed from a worker whose lease had ended; it begins next."""

    def stopped(self, name: str, slices: SliceRange) -> None:
        """A range has ended, by itself or after :meth:`failed`."""

    def failed(self, name: str, slices: SliceRange, error: BaseException) -> None:
        """A range has failed; it restarts after a pause."""

    def handled(self, name: str, slices: SliceRange, envelopes: Sequence[EventEnvelope]) -> None:
        """Events have been handled and committed."""

    def error(self, name: str, envelope: EventEnvelope, error: BaseException, attempt: int) -> None:
        """An attempt at an event has failed; 1 is the first."""

    def skipped(self, name: str, envelope: EventEnvelope, error: BaseException) -> None:
        """An event was given up and passed over."""

    def parked(self, name: str, envelope: EventEnvelope, error: BaseException) -> None:
        """A source was set aside at this event."""

    def progressed(self, name: str, slices: SliceRange, horizon: datetime) -> None:
        """The settled horizon was stored: everything before it is handled."""
