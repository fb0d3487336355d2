"""
What a process that delivers counts by itself, for Prometheus.

Invariant: labels are the verdicts of attempts, never endpoints, tenants or URLs: their number has no bound.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from projections.extras import from_extra
from projections.monitoring.worker_metrics import WorkerMetrics
from projections.webhooks.claims import Claimed
from projections.webhooks.deliverer import DeliveryObserver
from projections.webhooks.sender import Reply

with from_extra("monitor"):
    from prometheus_client import Metric
    from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

__all__ = ["DeliveryMetrics", "ProcessMetrics"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_VERDICTS = ("done", "retry", "dead")


class DeliveryMetrics(DeliveryObserver):
    """Counts attempts, and how long they took."""

    def __init__(self) -> None:
        self.answers = False
        """Whether the database does."""
        self._verdicts: Counter[str] = Counter()
        self._lost = 0
        self._seconds = 0.0
        self._buckets = [0] * (len(_SECONDS) + 1)

    def ready(self, *, ready: bool) -> None:
        """Keep the newest."""
        self.answers = ready

    def attempted(self, claimed: Claimed, reply: Reply, verdict: str) -> None:  # noqa: ARG002 - more is told
        """Count an attempt."""
        took = reply.took.total_seconds()
        self._verdicts[verdict] += 1
        self._seconds += took
        self._buckets[bisect_left(_SECONDS, took)] += 1

    def lost(self, claimed: Claimed) -> None:  # noqa: ARG002 - likewise
        """Count an attempt that has come to nothing."""
        self._lost += 1

    def collect(self) -> Iterator[Metric]:
        """What has been counted, as of now."""
        attempts = CounterMetricFamily(
            "projections_webhook_attempts",
            "Attempts to deliver that this process has made, by what followed: done, retry, dead.",
            labels=["verdict"],
        )
        for verdict in _VERDICTS:
            attempts.add_metric([verdict], self._verdicts[verdict])
        yield attempts
        yield CounterMetricFamily(
            "projections_webhook_outcomes_lost",
            "Attempts whose outcome was not stored: their lease was over.",
            self._lost,
        )
        yield HistogramMetricFamily(
            "projections_webhook_attempt_duration_seconds",
            "Time from the beginning of a request to the end of its answer.",
            buckets=list(self._cumulated()),
            sum_value=self._seconds,
        )

    def _cumulated(self) -> Iterator[tuple[str, float]]:
        count = 0
        for bound, number in zip((*map(str, _SECONDS), "+Inf"), self._buckets, strict=True):
            count += number
            yield bound, count


class ProcessMetrics(WorkerMetrics):
    """
    Those of a worker, and those of what it delivers.

    Args:
        deliveries: What counts attempts.
        only_sends: It runs no projections: it never joins the workers.
    """

    def __init__(self, deliveries: DeliveryMetrics, *, only_sends: bool) -> None:
        super().__init__()
        self._deliveries = deliveries
        self._only_sends = only_sends

    @property
    def fault(self) -> str | None:
        """Why the process is not ready; None when it is."""
        if not self._deliveries.answers:
            return "nothing can be claimed: the database does not answer"
        return None if self._only_sends else super().fault

    def collect(self) -> list[Metric]:
        """What has been counted, as of now."""
        return [*super().collect(), *self._deliveries.collect()]
