"""Who is told of deliveries as they are made: for logs, metrics and tests."""

from __future__ import annotations

import logging
from collections.abc import Callable

from projections.webhooks.claims import Claimed
from projections.webhooks.sender import Reply

__all__ = ["DeliveryObserver", "tell"]

log = logging.getLogger("projections")


class DeliveryObserver:
    """Does nothing; override what you want to see. An exception raised here is logged and otherwise ignored."""

    def ready(self, *, ready: bool) -> None:
        """The database answers, or does no longer."""

    def attempted(self, claimed: Claimed, reply: Reply, verdict: str) -> None:
        """An attempt has been made: ``done``, ``retry`` or ``dead``."""

    def lost(self, claimed: Claimed) -> None:
        """The outcome of an attempt was not stored: its lease was over, or its endpoint is gone."""


def tell(told: Callable[..., None], *args: object, **options: object) -> None:
    """Call a method of an observer; what goes wrong in it is logged, and harms no delivery."""
    try:
        told(*args, **options)
    except Exception:
        log.exception("an observer of deliveries failed", extra={"action": "observer_failed"})
