"""
What a process that delivers webhooks counts by itself, for Prometheus.

Invariant: labels are classes of codes and verdicts, never endpoints, tenants or URLs: their number is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from projections.extras import from_extra
from projections.monitoring import Durations, Measure, single
from projections.monitoring.metrics import families
from projections.webhooks.claims import Claimed
from projections.webhooks.delivery_observer import DeliveryObserver
from projections.webhooks.failure_codes import FAILURES
from projections.webhooks.outgoing import Outgoing
from projections.webhooks.response_reading import Reply
from projections.webhooks.sender import Sender

with from_extra("monitor"):
    from prometheus_client import Metric

_ATTEMPT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0)
_DELIVERED_SECONDS = (
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0, 86400.0,
)  # fmt: skip
_WORDS = frozenset({*FAILURES, "event_gone", "unsendable"})
_OTHER = "other"


class WebhookMetrics(DeliveryObserver):
    """
    Counts what a process that delivers does: ``deliver(observer=...)``, or ``run_webhooks(delivery_observer=...)``.

    With :meth:`watching` around the sender, it also knows how many requests are on their way.
    """

    def __init__(self) -> None:
        self._ready: bool | None = None
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._lost = 0
        self._in_flight = 0
        self._took = Durations(_ATTEMPT_SECONDS)
        self._delivered = Durations(_DELIVERED_SECONDS)

    @property
    def fault(self) -> str | None:
        """Why the process does not deliver; None when it does."""
        if self._ready is None:
            return "no delivery has been asked for yet"
        return None if self._ready else "deliveries cannot be claimed"

    def watching(self, sender: Sender) -> Sender:
        """Count the requests of a sender that are on their way; closing what is returned closes the sender."""
        return _WatchedSender(sender, self)

    def moved(self, number: int) -> None:
        """Count requests that have begun, or ended where the number is negative."""
        self._in_flight += number

    def ready(self, *, ready: bool) -> None:
        """Keep the newest."""
        self._ready = ready

    def attempted(self, claimed: Claimed, reply: Reply, verdict: str) -> None:
        """Count an attempt, and how long its event took when it has arrived."""
        self._attempts[_class_of(reply.code), verdict] += 1
        self._took.observe(reply.took.total_seconds())
        if verdict == "done":
            # By the database's clock: that of this process may be wrong.
            age = claimed.claimed_at + reply.took - claimed.event_time
            self._delivered.observe(max(age, timedelta(0)).total_seconds())

    def lost(self, claimed: Claimed) -> None:  # noqa: ARG002 - which one it was would be a label of any number of values
        """Count an outcome that was not stored."""
        self._lost += 1

    def collect(self) -> list[Metric]:
        """What has been counted, as of now."""
        return families(self._measures())

    def _measures(self) -> Iterator[Measure]:
        yield Measure(
            "webhook_attempts", "Requests that this process has made, by the class of their code and what follows.",
            sorted(self._attempts.items()), ["code", "verdict"], "counter",
        )  # fmt: skip
        yield single(
            "webhook_outcomes_lost",
            "Attempts whose outcome was not stored: their lease was over, or their endpoint gone.",
            self._lost,
            "counter",
        )
        yield single("webhook_requests_in_flight", "Requests on their way.", self._in_flight)
        yield single(
            "webhook_deliverer_ready",
            "Whether this process gets deliveries from the database, 1 or 0.",
            bool(self._ready),
        )
        yield single(
            "webhook_attempt_duration_seconds",
            "Time from the beginning of a request to its code.",
            self._took,
            "histogram",
        )
        yield single(
            "webhook_delivered_after_seconds",
            "Time from an event to its delivery, with what it waited for and all attempts.",
            self._delivered,
            "histogram",
        )


class _WatchedSender:
    def __init__(self, sender: Sender, metrics: WebhookMetrics) -> None:
        self._sender = sender
        self._metrics = metrics

    async def send(self, outgoing: Outgoing) -> Reply:
        self._metrics.moved(1)
        try:
            return await self._sender.send(outgoing)
        finally:
            self._metrics.moved(-1)

    async def aclose(self) -> None:
        await self._sender.aclose()


def _class_of(code: str) -> str:
    """``2xx`` to ``5xx``, or the word for why there is no status; a sender of somebody else may have others."""
    if code.isdecimal():
        return f"{code[0]}xx" if code[0] in "2345" else _OTHER
    return code if code in _WORDS else _OTHER
