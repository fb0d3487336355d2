"""
What a worker counts by itself, for Prometheus.

Invariant: labels are projections and their ranges, never sources, and a range that has gone takes its series with it.
"""

# ruff: noqa: ARG002 - hooks get more than is counted
from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto

from journal import EventEnvelope, SliceRange
from projections.extras import from_extra
from projections.monitoring.lag import RangeLag
from projections.monitoring.measures import RANGE_LABELS, Durations, Measure, MetricTable, measures, single
from projections.monitoring.metrics import build_info, families
from projections.monitoring.snapshot import Snapshot
from projections.running import Pulse, StatusObserver

with from_extra("monitor"):
    from prometheus_client import Metric, ProcessCollector


class _Phase(Enum):
    CLAIMED = auto()
    RUNNING = auto()
    RESTARTING = auto()
    ENDED = auto()


@dataclass(slots=True)
class _Counts:
    """What one range has come to in this process."""

    phase: _Phase = _Phase.CLAIMED
    events: int = 0
    batches: int = 0
    failures: int = 0
    skipped: int = 0
    passed_over: int = 0
    parked: int = 0
    restarts: int = 0


@dataclass(slots=True)
class _Projection:
    """What one projection has come to in this process."""

    take_overs: int = 0
    durations: Durations = field(default_factory=Durations)
    ranges: defaultdict[SliceRange, _Counts] = field(default_factory=lambda: defaultdict(_Counts))


_COUNTERS: MetricTable = {
    "worker_events_handled": ("Events that this worker has handled and committed.", "events"),
    "worker_batches": ("Batches that this worker has committed.", "batches"),
    "worker_handler_failures": ("Attempts at an event that have failed.", "failures"),
    "worker_events_skipped": ("Events that were given up and passed over.", "skipped"),
    "worker_events_passed_over": (
        "Events read that nobody handles, for their number is below the first one.", "passed_over",
    ),
    "worker_sources_parked": ("Times that a source was set aside.", "parked"),
    "worker_range_restarts": ("Failures after which the range starts again.", "restarts"),
}  # fmt: skip


class WorkerMetrics(StatusObserver):
    """
    Counts what a process that runs projections does; give it to ``run(observer=...)``.

    Args:
        clock: Seconds, for the length of batches.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._projections: defaultdict[str, _Projection] = defaultdict(_Projection)
        self._begun: dict[tuple[str, SliceRange], float] = {}
        self._system = ProcessCollector(registry=None)
        self._pulse: Pulse | None = None

    @property
    def projections(self) -> list[str]:
        """Names of what has run here."""
        return sorted(self._projections)

    @property
    def fault(self) -> str | None:
        """Why the worker is not ready; None when it has joined, and its lease runs."""
        if self._pulse is None:
            return "the worker has not joined yet"
        if _age(self._pulse) > self._pulse.lease.total_seconds():
            return "the worker's lease has ended"
        return None

    def owns(self, part: RangeLag) -> bool:
        """Whether a range is this worker's, as the database has it."""
        return self._pulse is not None and part.owner == self._pulse.owner

    def heartbeat(self, pulse: Pulse) -> None:
        """Keep the newest."""
        self._pulse = pulse

    def started(self, name: str, slices: SliceRange) -> None:
        """Count the range as held."""
        self._range(name, slices).phase = _Phase.RUNNING

    def taken_over(self, name: str, slices: SliceRange, owner: str) -> None:
        """Count a take-over; its series is the projection's, because the range's would begin at 1, unseen."""
        self._range(name, slices)
        self._projections[name].take_overs += 1

    def stopped(self, name: str, slices: SliceRange) -> None:
        """The range is gone, unless :meth:`failed` follows."""
        self._range(name, slices).phase = _Phase.ENDED

    def failed(self, name: str, slices: SliceRange, error: BaseException) -> None:
        """Count a restart."""
        counts = self._range(name, slices)
        counts.phase = _Phase.RESTARTING
        counts.restarts += 1

    def batch_started(self, name: str, slices: SliceRange, envelopes: Sequence[EventEnvelope]) -> None:
        """Note when."""
        self._begun[name, slices] = self._clock()

    def batch_ended(self, name: str, slices: SliceRange, error: BaseException | None) -> None:
        """Count how long the batch took, whether it has failed or not."""
        self._range(name, slices)
        begun = self._begun.pop((name, slices))
        self._projections[name].durations.observe(self._clock() - begun)

    def handled(self, name: str, slices: SliceRange, envelopes: Sequence[EventEnvelope]) -> None:
        """Count the batch and its events."""
        counts = self._range(name, slices)
        counts.events += len(envelopes)
        counts.batches += 1

    def handled_page(
        self, name: str, slices: SliceRange, events: int, newest: datetime, seconds: float
    ) -> None:
        """Count a page as a batch."""
        counts = self._range(name, slices)
        counts.events += events
        counts.batches += 1
        self._projections[name].durations.observe(seconds)

    def error(self, name: str, envelope: EventEnvelope, error: BaseException, attempt: int) -> None:
        """Count a failed attempt."""
        for counts in self._around(name, envelope):
            counts.failures += 1

    def skipped(self, name: str, envelope: EventEnvelope, error: BaseException) -> None:
        """Count an event that was passed over."""
        for counts in self._around(name, envelope):
            counts.skipped += 1

    def passed_over(self, name: str, envelope: EventEnvelope) -> None:
        """Count an event that nobody handles."""
        for counts in self._around(name, envelope):
            counts.passed_over += 1

    def parked(self, name: str, envelope: EventEnvelope, error: BaseException) -> None:
        """Count a source that was set aside."""
        for counts in self._around(name, envelope):
            counts.parked += 1

    def forget(self, snapshot: Snapshot) -> None:
        """Drop ranges that wait for a restart and are not this worker's any more: others tell of them."""
        if self._pulse is None:
            return
        ours = {
            (one.name, part.slices) for one in snapshot.projections for part in one.ranges if self.owns(part)
        }
        for name, projection in self._projections.items():
            if name in snapshot.unreached:
                continue
            for slices, counts in projection.ranges.items():
                if counts.phase is _Phase.RESTARTING and (name, slices) not in ours:
                    counts.phase = _Phase.ENDED

    def collect(self) -> list[Metric]:
        """What has been counted, as of now."""
        for projection in self._projections.values():
            for slices in [one for one, counts in projection.ranges.items() if counts.phase is _Phase.ENDED]:
                del projection.ranges[slices]
        own = [*self._of_process(), *self._of_projections(), *self._of_ranges()]
        return [build_info(), *families(own), *self._system.collect()]

    def _of_process(self) -> Iterator[Measure]:
        if self._pulse is None:
            return
        yield single(
            "worker_heartbeat_age_seconds",
            "Time since the last heartbeat that the database answered.",
            _age(self._pulse),
        )
        yield single(
            "worker_lease_seconds",
            "How long this worker keeps its ranges without a heartbeat.",
            self._pulse.lease.total_seconds(),
        )
        yield single(
            "worker_event_loop_blocks",
            "Times that a handler has held the event loop for too long, as of the last heartbeat.",
            self._pulse.blocked,
            "counter",
        )

    def _of_projections(self) -> Iterator[Measure]:
        found, labels = [([name], one) for name, one in sorted(self._projections.items())], ["projection"]
        held = [(names, len(one.ranges)) for names, one in found]
        yield Measure("worker_ranges", "Ranges that this worker holds.", held, labels)
        take_overs = [(names, one.take_overs) for names, one in found]
        what = "Ranges taken over from workers that died."
        yield Measure("worker_take_overs", what, take_overs, labels, "counter")
        durations = [(names, one.durations) for names, one in found]
        what = "Time from calling the handlers of a batch to its commit, or to its failure."
        yield Measure("worker_batch_duration_seconds", what, durations, labels, "histogram")

    def _of_ranges(self) -> Iterator[Measure]:
        ranges = [
            ([name, str(slices)], counts)
            for name, projection in sorted(self._projections.items())
            for slices, counts in sorted(projection.ranges.items())
        ]
        return measures(_COUNTERS, ranges, RANGE_LABELS, "counter")

    def _range(self, name: str, slices: SliceRange) -> _Counts:
        return self._projections[name].ranges[slices]

    def _around(self, name: str, envelope: EventEnvelope) -> Iterator[_Counts]:
        """The range that runs an event: the one that has ended may still be there, with other bounds."""
        for slices, counts in self._projections[name].ranges.items():
            if envelope.slice in slices and counts.phase is not _Phase.ENDED:
                yield counts
                return


def _age(pulse: Pulse) -> float:
    return max(asyncio.get_running_loop().time() - pulse.sent_at, 0.0)
