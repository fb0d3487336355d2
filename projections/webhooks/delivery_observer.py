"""Observers of deliveries as they are made: logs, metrics and tests."""

from __future__ import annotations

import logging

from projections.running import Combined
from projections.webhooks.claims import Claimed
from projections.webhooks.response_reading import Reply

log = logging.getLogger("projections")


class DeliveryObserver:
    """Does nothing; override what you want to see. An exception raised here is logged and otherwise ignored."""

    def ready(self, *, ready: bool) -> None:
        """The database answers, or does no longer."""

    def attempted(self, claimed: Claimed, reply: Reply, verdict: str) -> None:
        """An attempt has been made: ``done``, ``retry`` or ``dead``."""

    def lost(self, claimed: Claimed) -> None:
        """The outcome of an attempt was not stored: its lease was over, or its endpoint is gone."""


class CombinedDeliveryObserver(Combined, DeliveryObserver):
    """Observers of deliveries as one."""


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
        """Say what the outcome of an attempt is."""
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
