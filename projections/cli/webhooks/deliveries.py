"""``projections webhooks deliveries``: what became of each event for each endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from journal import Database
from projections.cli.connection import confirm
from projections.cli.group import ListGroup
from projections.cli.options import dsn_option, echo_json, json_option
from projections.cli.output import printable
from projections.cli.webhooks.delivery_options import (
    filter_options,
    list_deliveries,
    page_options,
    values_of,
)
from projections.cli.webhooks.log_view import attempt_values, echo_attempts
from projections.cli.webhooks.many import retry_many
from projections.cli.webhooks.printing import at, echo_facts
from projections.cli.webhooks.visiting import visit_database, visit_endpoint
from projections.webhooks.deliveries import Deliveries, Delivery, DeliveryState
from projections.webhooks.log import AttemptsRequest, LoggedAttempt, PostgresLog

__all__ = ["deliveries"]

_STATES = ("waiting", "pending", "leased", "done", "dead", "discarded")
_AGAIN = ("dead", "done", "discarded")
_endpoint = click.argument("endpoint_id", metavar="ENDPOINT")
_event = click.argument("event_id", metavar="EVENT")


@click.group(cls=ListGroup)
def deliveries() -> None:
    """
    Show what became of events that are for endpoints; try them again, or give them up.

    \b
      projections webhooks deliveries --tenant acme --state pending
      projections webhooks deliveries show ENDPOINT EVENT        with its attempts and payload
      projections webhooks deliveries retry ENDPOINT EVENT       now, whatever became of it
      projections webhooks deliveries replay --state done --endpoint ENDPOINT --since 1d
      projections webhooks deliveries discard ENDPOINT EVENT

    A delivery is pending, until it is due; leased, while it is on its way; waiting, for those before it in an order;
    done; dead, when its attempts are used up; or discarded, by somebody. Without the name of a command it is `list`.
    """  # noqa: D301 - click reads the escape


@deliveries.command(name="list")
@filter_options
@click.option(
    "--state", "states", multiple=True, type=click.Choice(_STATES), help="Only in this; may be repeated."
)
@page_options
@dsn_option
@json_option
def list_(states: Sequence[DeliveryState], dsn: str | None, as_json: bool, **options: Any) -> None:
    """List deliveries, the newest first."""
    list_deliveries(dsn, options, states, "deliveries", as_json=as_json)


@deliveries.command(short_help="Show one with its payload and its attempts.")
@_endpoint
@_event
@dsn_option
@json_option
def show(endpoint_id: str, event_id: str, dsn: str | None, as_json: bool) -> None:
    """Show a delivery with its payload, and every attempt at it with what came back."""

    async def work(database: Database, whole: str) -> tuple[Delivery, str | None, list[LoggedAttempt]]:
        one, data = await Deliveries(database).get(None, whole, event_id)
        request = AttemptsRequest(event_ids=[event_id], endpoint_ids=[whole], order="asc", limit=1000)
        page = await PostgresLog(database).list_attempts(request)
        return one, data, [found.attempt for found in page.data]

    one, data, attempts = visit_endpoint(dsn, endpoint_id, work)
    if as_json:
        echo_json(**values_of(one), data=data, attempts_made=[attempt_values(each) for each in attempts])
        return
    _echo(one, data)
    if attempts:
        echo_attempts(attempts, {"event", "endpoint", "tenant", "topic"})


@deliveries.command(short_help="Try one again now.")
@_endpoint
@_event
@dsn_option
def retry(endpoint_id: str, event_id: str, dsn: str | None) -> None:
    """
    Try a delivery again now, whatever became of it, instead of when it was due.

    What has arrived is sent once more, with the same `webhook-id`, by which a receiver can tell. An endpoint that is
    held back is asked at once; one that is disabled has to be enabled first.
    """
    visit_endpoint(dsn, endpoint_id, lambda db, whole: Deliveries(db).retry(None, whole, event_id))
    click.echo(f"event {event_id} is sent to endpoint {endpoint_id} again")


@deliveries.command(short_help="Send all again that fit.")
@filter_options
@click.option(
    "--state", "states", multiple=True, required=True, type=click.Choice(_AGAIN),
    help="All that are so, and fit the other options; may be repeated.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask.")
@dsn_option
@json_option
def replay(
    states: Sequence[DeliveryState], yes: bool, dsn: str | None, as_json: bool, **options: Any
) -> None:
    """
    Send all again that fit, such as what a receiver has lost since then.

    \b
      projections webhooks deliveries replay --endpoint ENDPOINT --state done --since 2026-01-31T12:00:00Z

    Each goes with the `webhook-id` that it had. Passed over is what can not be: where the endpoint is disabled, or
    the log no longer has the payload. Ended early, it leaves the rest as it is.
    """  # noqa: D301 - click reads the escape
    confirm(f"Send all deliveries again that are {' or '.join(states)}, and fit?", yes=yes)
    retry_many(dsn, options, states, as_json=as_json)


@deliveries.command(short_help="Give one up.")
@_endpoint
@_event
@click.option("--yes", is_flag=True, help="Do not ask.")
@dsn_option
def discard(endpoint_id: str, event_id: str, yes: bool, dsn: str | None) -> None:
    """Give a delivery up: it is not tried again, and what waits for it in an order goes on."""
    found = visit_endpoint(dsn, endpoint_id, lambda db, whole: Deliveries(db).get(None, whole, event_id))
    one = found.delivery
    what = f"event {event_id} ({printable(one.topic)}) to endpoint {one.endpoint_id}, which is {one.state}"
    confirm(f"Give up the delivery of {what}?", yes=yes)
    visit_database(dsn, lambda db: Deliveries(db).discard(None, one.endpoint_id, event_id))
    click.echo(f"the delivery of event {event_id} to endpoint {endpoint_id} is discarded")


def _echo(one: Delivery, data: str | None) -> None:
    pending = f", next at {at(one.next_at)}" if one.state == "pending" else ""
    echo_facts(
        {
            "event": one.event_id,
            "topic": one.topic,
            "tenant": one.tenant,
            "endpoint": one.endpoint_id,
            "order key": one.order_key,
            "state": f"{one.state}{pending}",
            "attempts": one.attempts,
            "last code": one.last_code,
            "event at": at(one.event_time),
            "ended": at(one.finished_at),
            "payload": "no longer kept" if data is None else data,
        }
    )
