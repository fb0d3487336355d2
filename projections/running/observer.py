"""Hooks into what running projections do; they are called in the event loop and should return at once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from journal import EventEnvelope, SliceRange

log = logging.getLogger("projections")


class Pulse(NamedTuple):
    """A worker as of a heartbeat."""

    owner: str
    """Its name among the workers."""
    sent_at: float
    """When the heartbeat was sent, by the event loop's clock."""
    lease: timedelta
    """How long, from then, it counts as alive without another."""
    blocked: int
    """How often its event loop has been blocked."""


class StatusObserver:
    """Does nothing; override what you want to see. An exception raised here is logged and otherwise ignored."""

    def heartbeat(self, pulse: Pulse) -> None:
        """A heartbeat was answered: the process is one of the workers."""

    def started(self, name: str, slices: SliceRange) -> None:
        """A range has been claimed and begins."""

    def taken_over(self, name: str, slices: SliceRange, owner: str) -> None:
        """A range has been claimed from a worker whose lease had ended; it begins next."""

    def stopped(self, name: str, slices: SliceRange) -> None:
        """A range has ended, by itself or after :meth:`failed`."""

    def failed(self, name: str, slices: SliceRange, error: BaseException) -> None:
        """A range has failed; it restarts after a pause."""

    def went_back(self, name: str, slices: SliceRange, error: BaseException) -> None:
        """The database went back in time; the range begins again with what is stored."""

    def batch_started(self, name: str, slices: SliceRange, envelopes: Sequence[EventEnvelope]) -> None:
        """Handlers are about to be called for a batch; a range has one at a time, begun and ended in one task."""

    def batch_ended(self, name: str, slices: SliceRange, error: BaseException | None) -> None:
        """A batch has committed; or an error has rolled it back, and recovery decides about its events."""

    def handled(self, name: str, slices: SliceRange, envelopes: Sequence[EventEnvelope]) -> None:
        """Events have been handled and committed."""

    def handled_page(
        self, name: str, slices: SliceRange, events: int, newest: datetime, seconds: float
    ) -> None:
        """
        A statement of a read model has handled a number of events, up to a time, and committed, in some seconds.

        Called in place of :meth:`batch_started`, :meth:`batch_ended` and :meth:`handled` while a projection of read
        models in SQL catches up: its events are in the database only.
        """

    def error(self, name: str, envelope: EventEnvelope, error: BaseException, attempt: int) -> None:
        """An attempt at an event has failed; 1 is the first."""

    def skipped(self, name: str, envelope: EventEnvelope, error: BaseException) -> None:
        """An event was given up and passed over."""

    def passed_over(self, name: str, envelope: EventEnvelope) -> None:
        """An event of another system's journal is handled by nobody: its number is below the first one."""

    def parked(self, name: str, envelope: EventEnvelope, error: BaseException) -> None:
        """A source was set aside at this event."""

    def progressed(self, name: str, slices: SliceRange, horizon: datetime) -> None:
        """The settled horizon was stored: everything before it is handled."""


Observers: TypeAlias = StatusObserver | Iterable[StatusObserver]
"""One, or several, which are called in their order."""


class Combined:
    """Tells one observer or several; the mistakes of one are logged, and the others are called all the same."""

    def __init__(self, observers: Any) -> None:
        self._observers = list(observers) if isinstance(observers, Iterable) else [observers]

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        hooks = [getattr(observer, name) for observer in self._observers]

        def call(*args: Any, **facts: Any) -> None:
            for hook in hooks:
                try:
                    hook(*args, **facts)
                except Exception:
                    log.exception("observer: %s", name, extra={"action": "observer_failed"})

        return call


class CombinedObserver(Combined, StatusObserver):
    """Observers of projections as one."""
