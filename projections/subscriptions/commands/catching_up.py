"""How commands show how far subscriptions are that catch up with the past."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from projections.subscriptions.catching_up import HistoryProgress
from projections.terminal.ages import age
from projections.terminal.output import at, printable, values_of


def history_notes(progress: Sequence[HistoryProgress]) -> Iterator[str]:
    """A line for each."""
    for one in progress:
        left = "" if one.remaining is None else f", about {age(one.remaining.total_seconds())} left"
        yield (
            f"subscription {one.subscription_id} of group {printable(one.group)!r} catches up with the past: "
            f"{one.events:,} events, up to {at(one.reached, 'the beginning')}{left}"
        )


def history_values(progress: Sequence[HistoryProgress]) -> list[dict[str, Any]]:
    """As --json has them."""
    return [values_of(one, durations={"remaining"}) for one in progress]
