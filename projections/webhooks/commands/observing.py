"""What a process that delivers tells of attempts: in its log, and whoever else is to be told."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from projections.webhooks.claims import Claimed
from projections.webhooks.delivery_observer import DeliveryObserver
from projections.webhooks.sender import Reply

__all__ = ["AttemptLog", "Several"]

log = logging.getLogger("projections")

_FOLLOWS = {"done": "it has arrived", "retry": "it is tried again", "dead": "it is a dead letter"}


class AttemptLog(DeliveryObserver):
    """
    Writes a line for each attempt that failed, and with ``debug`` for each that did not.

    No URL, header, payload or answer is in it: they may hold what is secret.
    """

    def __init__(self) -> None:
        self._ready: bool | None = None

    def ready(self, *, ready: bool) -> None:
        """Say when it begins, and when it goes on."""
        if ready and not self._ready:
            log.info("delivering webhooks", extra={"action": "delivering"})
        self._ready = ready

    def attempted(self, claimed: Claimed, reply: Reply, verdict: str) -> None:
        """Say what became of an attempt."""
        level = {"done": logging.DEBUG, "retry": logging.INFO}.get(verdict, logging.WARNING)
        log.log(
            level, "attempt %d at event %s to endpoint %s: %s in %d ms, %s", claimed.attempt, claimed.event_id,
            claimed.endpoint_id, reply.code, reply.took.total_seconds() * 1000, _FOLLOWS.get(verdict, verdict),
            extra={
                "action": "webhook_attempt", "event_id": claimed.event_id, "endpoint": claimed.endpoint_id,
                "tenant": claimed.tenant, "topic": claimed.topic, "attempt": claimed.attempt, "manual": claimed.manual,
                "code": reply.code, "took_seconds": reply.took.total_seconds(), "verdict": verdict,
            },
        )  # fmt: skip

    def lost(self, claimed: Claimed) -> None:
        """Say that an attempt has come to nothing."""
        log.warning(
            "attempt %d at event %s to endpoint %s took longer than its lease: it comes again, unless others have it",
            claimed.attempt, claimed.event_id, claimed.endpoint_id,
            extra={"action": "webhook_lost", "event_id": claimed.event_id, "endpoint": claimed.endpoint_id},
        )  # fmt: skip


class Several(DeliveryObserver):
    """
    Tells several observers, in their order.

    Args:
        observers: Those to notify, in this order.
    """

    def __init__(self, observers: Sequence[DeliveryObserver]) -> None:
        self._observers = observers

    def ready(self, *, ready: bool) -> None:
        """Pass it on."""
        for one in self._observers:
            one.ready(ready=ready)

    def attempted(self, claimed: Claimed, reply: Reply, verdict: str) -> None:
        """Pass it on."""
        for one in self._observers:
            one.attempted(claimed, reply, verdict)

    def lost(self, claimed: Claimed) -> None:
        """Pass it on."""
        for one in self._observers:
            one.lost(claimed)
