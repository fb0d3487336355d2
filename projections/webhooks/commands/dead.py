"""``projections webhooks dead``: deliveries whose attempts are used up."""

from __future__ import annotations

from typing import Any

import click

from projections.terminal.failed import all_option, yes_option
from projections.terminal.group import ListGroup
from projections.terminal.options import dsn_option, json_option
from projections.webhooks.commands import deciding
from projections.webhooks.commands.deciding import Place, place_of
from projections.webhooks.commands.deliveries import (
    echo_delivery,
    one_endpoint,
    one_event,
    some_endpoint,
    some_event,
)
from projections.webhooks.commands.delivery_options import filter_options, list_deliveries, page_options

__all__ = ["dead"]


@click.group(cls=ListGroup)
def dead() -> None:
    """
    List, show, retry and drop dead letters: deliveries whose attempts are used up.

    They are kept with their payload until somebody decides, however long.

    \b
      projections webhooks dead list --tenant acme
      projections webhooks dead show ENDPOINT EVENT        one, with its attempts and payload
      projections webhooks dead retry ENDPOINT EVENT       try one again
      projections webhooks dead retry --endpoint ENDPOINT --since 2h
      projections webhooks dead drop --topic flight.delayed

    Without the name of a command it is `list`.
    """  # noqa: D301 - click reads the escape


@dead.command(name="list")
@filter_options
@page_options
@dsn_option
@json_option
def list_(dsn: str | None, as_json: bool, **options: Any) -> None:
    """List dead letters, the newest first."""
    list_deliveries(dsn, options, ["dead"], "dead", as_json=as_json)


@dead.command()
@one_endpoint
@one_event
@dsn_option
@json_option
def show(endpoint: str, event: str, dsn: str | None, as_json: bool) -> None:
    """Show a dead letter with its payload, and every attempt at it with what came back."""
    echo_delivery(dsn, Place(endpoint, event), ["dead"], as_json=as_json)


@dead.command()
@some_endpoint
@some_event
@filter_options
@all_option
@dsn_option
@json_option
def retry(
    endpoint: str | None, event: str | None, every: bool, dsn: str | None, as_json: bool, **options: Any
) -> None:
    """
    Try a dead letter again, now, or all that fit, in their order.

    Each gets one attempt, and those that its schedule still has. Of many, those whose endpoint is disabled are passed
    over. Ended early, the rest stays dead.
    """
    place = place_of(endpoint, event, options, every=every)
    deciding.retry(dsn, place, options, ["dead"], as_json=as_json)


@dead.command()
@some_endpoint
@some_event
@filter_options
@all_option
@yes_option
@dsn_option
@json_option
def drop(  # noqa: PLR0917 - click passes all by name
    endpoint: str | None,
    event: str | None,
    every: bool,
    yes: bool,
    dsn: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """
    Drop a dead letter, or all that fit: they are not tried again, and what waits for them in an order goes on.

    They are forgotten in time; what was tried stays in the log.
    """
    place = place_of(endpoint, event, options, every=every)
    deciding.drop(dsn, place, options, ["dead"], yes=yes, as_json=as_json)
