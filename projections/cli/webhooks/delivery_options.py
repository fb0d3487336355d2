"""Which deliveries: the options that say so, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from projections.cli.webhooks.options import past, tenant_option, together
from projections.cli.webhooks.printing import at, echo_table
from projections.webhooks.deliveries import Delivery, DeliveryFilter, DeliveryState

__all__ = ["echo_deliveries", "filter_of", "filter_options", "page_options", "values_of"]

filter_options = together(
    tenant_option,
    click.option("--endpoint", "endpoint_id", metavar="ENDPOINT", help="Only to this one."),
    click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only of this; may be repeated."),
    click.option(
        "--since", callback=past, metavar="2h|TIME", help="Of events from then on: 2h ago, or that moment."
    ),
    click.option("--until", callback=past, metavar="2h|TIME", help="Of events before then."),
)
page_options = together(
    click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True),
    click.option(
        "--before", type=int, metavar="NUMBER", help="Go on before this one: what a page said at its end."
    ),
)


def filter_of(options: Mapping[str, Any], states: Sequence[DeliveryState] | None) -> DeliveryFilter:
    """The filter that options give."""
    return DeliveryFilter(
        tenant=options["tenant"], endpoint_id=options["endpoint_id"], states=states or None,
        topics=options["topics"] or None, since=options["since"], until=options["until"],
    )  # fmt: skip


def echo_deliveries(found: Iterable[Delivery], *, dead: bool = False) -> None:
    """Print a table, a line for each."""
    columns = (
        "event",
        "endpoint",
        "tenant",
        "topic",
        "state",
        "attempts",
        "last code",
        "event at",
        "next at",
    )
    rows = (
        (
            one.event_id, one.endpoint_id, one.tenant, one.topic, one.state, one.attempts, one.last_code,
            at(one.event_time), at(one.finished_at) if dead else _next(one),
        )
        for one in found
    )  # fmt: skip
    echo_table((*columns[:-1], "dead since") if dead else columns, rows, {"attempts"})


def values_of(one: Delivery) -> dict[str, object]:
    """A delivery as JSON has it."""
    times = ("event_time", "next_at", "created_at", "finished_at")
    values = asdict(one)
    return values | {name: values[name] and values[name].isoformat() for name in times}


def _next(one: Delivery) -> str | None:
    return at(one.next_at) if one.state == "pending" else None
