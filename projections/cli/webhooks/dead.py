"""``projections webhooks dead``: deliveries whose attempts are used up."""

from __future__ import annotations

from typing import Any

import click

from journal import Database
from projections.cli.connection import confirm
from projections.cli.group import ListGroup
from projections.cli.options import dsn_option, echo_json, json_option
from projections.cli.webhooks.delivery_options import (
    filter_of,
    filter_options,
    list_deliveries,
    page_options,
)
from projections.cli.webhooks.many import retry_many, tell_progress
from projections.cli.webhooks.visiting import visit_database
from projections.webhooks.deliveries import Deliveries, DeliveryFilter
from projections.webhooks.errors import UnknownDelivery

__all__ = ["dead"]

_MOST = 1000
_all_option = click.option("--all", "every", is_flag=True, help="All there are; instead of a filter.")


@click.group(cls=ListGroup)
def dead() -> None:
    """
    Decide about dead letters: deliveries whose attempts are used up.

    \b
      projections webhooks dead --tenant acme
      projections webhooks dead retry --endpoint ENDPOINT --since 2h
      projections webhooks dead discard --topic flight.delayed

    They are kept with their payload until somebody decides, however long. One by one: `projections webhooks
    deliveries show`, `retry` and `discard`. Without the name of a command it is `list`.
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
@filter_options
@_all_option
@dsn_option
@json_option
def retry(every: bool, dsn: str | None, as_json: bool, **options: Any) -> None:
    """
    Try all dead letters again that fit, now, in their order.

    Each gets one attempt, and those that its schedule still has. Passed over are those whose endpoint is disabled.
    Ended early, the rest stays dead.
    """
    _check(options, every=every)
    retry_many(dsn, options, ["dead"], as_json=as_json)


@dead.command()
@filter_options
@_all_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@dsn_option
@json_option
def discard(every: bool, yes: bool, dsn: str | None, as_json: bool, **options: Any) -> None:
    """Give up all dead letters that fit. They are forgotten in time; what was tried stays in the log."""
    _check(options, every=every)
    which = visit_database(dsn, lambda db: filter_of(db, options, ["dead"]))
    count = len(visit_database(dsn, lambda db: Deliveries(db).list(which, limit=_MOST)))
    if count:
        about = f"{count:,} or more" if count == _MOST else f"{count:,}"
        confirm(f"Give up {about} dead letters?", yes=yes)
    discarded = visit_database(dsn, lambda db: _discard(db, which)) if count else 0
    if as_json:
        echo_json(discarded=discarded)
    else:
        click.echo(f"dead letters that are given up: {discarded:,}")


def _check(options: dict[str, Any], *, every: bool) -> None:
    if any(value for value in options.values()) == every:
        raise click.UsageError("say which: pass --tenant, --endpoint, --topic, --since or --until; or --all")


async def _discard(database: Database, which: DeliveryFilter) -> int:
    service, discarded, before = Deliveries(database), 0, None
    while found := await service.list(which, before=before, limit=_MOST):
        for one in found:
            try:
                await service.discard(None, one.endpoint_id, one.event_id)
            except UnknownDelivery:  # its endpoint was removed meanwhile
                continue
            discarded += 1
        before = found[-1].delivery_id
        tell_progress(f"{discarded:,} so far")
    tell_progress("")
    return discarded
