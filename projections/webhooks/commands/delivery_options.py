"""Which deliveries: the options that say so, and how they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from journal import Database
from projections.terminal.ages import age
from projections.terminal.failed import limit_option
from projections.terminal.options import echo_json, together
from projections.webhooks.commands.options import past, tenant_option
from projections.webhooks.commands.printing import at, echo_table, short_id
from projections.webhooks.commands.visiting import visit_database, whole_endpoint_id
from projections.webhooks.deliveries import Deliveries, Delivery, DeliveryFilter, DeliveryState

__all__ = ["filter_of", "filter_options", "list_deliveries", "page_options", "values_of"]

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
    limit_option,
    click.option(
        "--before", type=int, metavar="NUMBER", help="Go on before this one: what a page said at its end."
    ),
)


async def filter_of(
    database: Database, options: Mapping[str, Any], states: Sequence[DeliveryState]
) -> DeliveryFilter:
    """The filter that options give."""
    given = options["endpoint_id"]
    return DeliveryFilter(
        tenant=options["tenant"],
        endpoint_id=None if given is None else await whole_endpoint_id(database, given),
        states=states or None, topics=options["topics"] or None, since=options["since"], until=options["until"],
    )  # fmt: skip


def list_deliveries(
    dsn: str | None, options: Mapping[str, Any], states: Sequence[DeliveryState], name: str, *, as_json: bool
) -> None:
    """
    Print a page of deliveries, as a table or as JSON.

    Args:
        dsn: The database that was named, or None.
        options: Those of the filter and the page.
        states: Only in these; empty: in any.
        name: What they are called.
        as_json: One object.
    """

    async def work(database: Database) -> list[Delivery]:
        which = await filter_of(database, options, states)
        return await Deliveries(database).list(which, before=options["before"], limit=options["limit"])

    found = visit_database(dsn, work)
    more = found[-1].delivery_id if len(found) == options["limit"] else None
    if as_json:
        echo_json(**{name: [values_of(one) for one in found], "before": more})
    elif found:
        _echo(found, options)
        if more is not None:
            click.echo(f"there may be more: --before {more}")
    else:
        click.echo("there are no such deliveries")


def values_of(one: Delivery) -> dict[str, object]:
    """A delivery as JSON has it."""
    times = ("event_time", "next_at", "created_at", "finished_at")
    values = asdict(one)
    return values | {name: values[name] and values[name].isoformat() for name in times}


def _echo(found: Sequence[Delivery], options: Mapping[str, Any]) -> None:
    columns = ("event", "event at", "endpoint", "tenant", "topic", "state", "tries", "code", "next")
    rows = (
        (
            one.event_id, at(one.event_time), short_id(one.endpoint_id), one.tenant, one.topic, one.state,
            one.attempts, one.last_code, _next(one),
        )
        for one in found
    )  # fmt: skip
    # What all of them have says nothing.
    same = [name for name, given in (("endpoint", "endpoint_id"), ("tenant", "tenant")) if options[given]]
    pending = any(one.state == "pending" for one in found)
    echo_table(columns, rows, {"tries"}, {*same, *(() if pending else ("next",))})


def _next(one: Delivery) -> str | None:
    if one.state != "pending":
        return None
    wait = (one.next_at - datetime.now(UTC)).total_seconds()
    return f"in {age(wait)}" if wait > 0 else "now"
