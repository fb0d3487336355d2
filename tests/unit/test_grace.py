"""How long a process may take to end is longer than what it waits for in order."""

from __future__ import annotations

from datetime import timedelta

from projections.terminal.forced_exit import GRACE
from projections.webhooks import DeliverySettings
from projections.webhooks.commands.delivering import _grace


def test_requests_that_are_waited_for_are_not_cut_off_by_the_grace() -> None:
    settings = DeliverySettings(grace=timedelta(minutes=2))

    assert _grace(settings) > 2 * settings.grace  # for the requests, and for storing what came of them
    assert _grace(DeliverySettings()) == GRACE
