"""``projections webhooks deliveries``: what became of each event for each endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from journal import Database
from projections.terminal.connection import confirm
from projections.terminal.failed import yes_option
from projections.terminal.group import ListGroup
from projections.terminal.options import dsn_option, echo_json, json_option
from projections.webhooks.commands import deciding
from projections.webhooks.commands.deciding import Place, place_of, show_one
from projections.webhooks.commands.delivery_options import (
    filter_options,
    list_deliveries,
    page_options,
    values_of,
)
from projections.webhooks.commands.log_view import attempt_values, echo_attempts
from projections.webhooks.commands.printing import at, echo_facts
from projections.webhooks.commands.visiting import visit_database
from projections.webhooks.deliveries import Delivery, DeliveryState
from projections.webhooks.log import AttemptsRequest, LoggedAttempt, PostgresLog

__all__ = ["deliveries", "echo_delivery", "one_endpoint", "one_event", "some_endpoint", "some_event"]

_STATES = ("waiting", "pending", "leased", "done", "dead", "dropped")
_AGAIN = ("dead", "done", "dropped")
one_endpoint = click.argument("endpoint", metavar="ENDPOINT")
one_event = click.argument("event", metavar="EVENT")
some_endpoint = click.argument("endpoint", metavar="[ENDPOINT]", required=False)
some_event = click.argument("event", metavar="[EVENT]", required=False)


@click.group(cls=ListGroup)
def deliveries() -> None:
    """
    List, show, retry and drop deliveries: what became of each event for each endpoint.

    \b
      projections webhooks deliveries list --tenant acme --state pending
      projections webhooks deliveries show ENDPOINT EVENT        with its attempts and payload
      projections webhooks deliveries retry ENDPOINT EVENT       now, whatever became of it
      projections webhooks deliveries retry --state done --endpoint ENDPOINT --since 1d
      projections webhooks deliveries drop ENDPOINT EVENT

    A delivery is pending, until it is due; leased, while it is on its way; waiting, for those before it in an order;
    done; dead, when its attempts are used up; or dropped, by somebody. Without the name of a command it is `list`.
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
@one_endpoint
@one_event
@dsn_option
@json_option
def show(endpoint: str, event: str, dsn: str | None, as_json: bool) -> None:
    """Show a delivery with its payload, and every attempt at it with what came back."""
    echo_delivery(dsn, Place(endpoint, event), as_json=as_json)


@deliveries.command(short_help="Try one again now, or all that fit.")
@some_endpoint
@some_event
@filter_options
@click.option(
    "--state", "states", multiple=True, type=click.Choice(_AGAIN),
    help="All that are so, and fit the other options; may be repeated.",
)  # fmt: skip
@yes_option
@dsn_option
@json_option
def retry(  # noqa: PLR0917 - click passes all by name
    endpoint: str | None,
    event: str | None,
    states: Sequence[DeliveryState],
    yes: bool,
    dsn: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """
    Try a delivery again now, whatever became of it, or all that fit, such as what a receiver has lost since then.

    \b
      projections webhooks deliveries retry --endpoint ENDPOINT --state done --since 2026-01-31T12:00:00Z

    Each goes with the `webhook-id` that it had, by which a receiver can tell. One that is named is tried instead of
    when it was due, and an endpoint that is held back is asked at once. Of many, those are passed over whose endpoint
    is disabled, or whose payload the log no longer has; ended early, the rest stays as it is.
    """  # noqa: D301 - click reads the escape
    place = place_of(endpoint, event, {**options, "states": states})
    if place is None:
        if not states:
            raise click.UsageError("say which: pass --state")
        confirm(f"Try all deliveries again that are {' or '.join(states)}, and fit?", yes=yes)
    deciding.retry(dsn, place, options, states, as_json=as_json)


@deliveries.command(short_help="Drop one.")
@one_endpoint
@one_event
@yes_option
@dsn_option
@json_option
def drop(endpoint: str, event: str, yes: bool, dsn: str | None, as_json: bool) -> None:
    """Drop a delivery: it is not tried again, and what waits for it in an order goes on."""
    deciding.drop(dsn, Place(endpoint, event), {}, [], yes=yes, as_json=as_json)


def echo_delivery(
    dsn: str | None, place: Place, states: Sequence[DeliveryState] = (), *, as_json: bool
) -> None:
    """Print a delivery with its payload and its attempts; arguments are those of :func:`show_one`."""
    one, data = show_one(dsn, place, states)

    async def logged(database: Database) -> list[LoggedAttempt]:
        request = AttemptsRequest(
            event_ids=[one.event_id], endpoint_ids=[one.endpoint_id], order="asc", limit=1000
        )
        return [found.attempt for found in (await PostgresLog(database).list_attempts(request)).data]

    attempts = visit_database(dsn, logged)
    if as_json:
        echo_json(**values_of(one), data=data, attempts_made=[attempt_values(each) for each in attempts])
        return
    _echo(one, data)
    if attempts:
        echo_attempts(attempts, {"event", "endpoint", "tenant", "topic"})


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
