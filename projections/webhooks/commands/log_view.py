"""How attempts and events of the log are shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict

from projections.webhooks.commands.printing import at, echo_table, seconds, short_id, shortened
from projections.webhooks.log import LoggedAttempt, LoggedEvent

__all__ = ["attempt_values", "echo_attempts", "echo_events", "event_values"]


def echo_attempts(found: Iterable[LoggedAttempt], without: Collection[str]) -> None:
    """
    Print a table, a line for each.

    Args:
        found: Attempts.
        without: Columns that are left out.
    """
    columns = ("at", "id", "event", "endpoint", "tenant", "topic", "number", "code", "took", "answer")
    rows = (
        (
            at(one.time), one.attempt_id, one.event_id, short_id(one.endpoint_id), one.tenant, one.topic,
            f"{one.attempt_number}{' by hand' if one.manual else ''}", one.code, _took(one),
            shortened(one.response) or None,
        )
        for one in found
    )  # fmt: skip
    echo_table(columns, rows, {"took"}, without)


def echo_events(found: Iterable[LoggedEvent]) -> None:
    """Print a table, a line for each."""
    rows = (
        (at(one.time), one.event_id, one.tenant, one.topic, len(one.endpoint_ids), shortened(one.data))
        for one in found
    )
    echo_table(("at", "event", "tenant", "topic", "endpoints", "payload"), rows, {"endpoints"})


def attempt_values(one: LoggedAttempt) -> dict[str, object]:
    """An attempt as JSON has it."""
    took = None if one.took is None else one.took.total_seconds()
    values = asdict(one)
    del values["took"]
    return values | {
        "time": one.time.isoformat(),
        "event_time": one.event_time.isoformat(),
        "took_seconds": took,
    }


def event_values(one: LoggedEvent) -> dict[str, object]:
    """An event as JSON has it; its data is a text, as it was written."""
    return asdict(one) | {"time": one.time.isoformat(), "metadata": dict(one.metadata)}


def _took(one: LoggedAttempt) -> str:
    return seconds(None if one.took is None else one.took.total_seconds())
