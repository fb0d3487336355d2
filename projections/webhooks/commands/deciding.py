"""Trying deliveries again and dropping them: one, or all that fit, with how far it has come."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from journal import Database
from projections.terminal.connection import confirm
from projections.terminal.failed import echo_decided
from projections.terminal.output import printable
from projections.webhooks.commands.delivery_options import filter_of
from projections.webhooks.commands.visiting import visit_database, visit_endpoint
from projections.webhooks.deliveries import Deliveries, Delivery, DeliveryState
from projections.webhooks.errors import UnknownDelivery

__all__ = ["Place", "drop_many", "drop_one", "place_of", "retry_many", "retry_one", "show_one"]

_MOST = 1000
"""Dead letters are counted up to so many, before somebody is asked about them."""


class Place(NamedTuple):
    """Which delivery, as it was named: the beginning of an endpoint's id is enough."""

    endpoint_id: str
    event_id: str


def place_of(
    endpoint: str | None, event: str | None, options: Mapping[str, Any], *, every: bool = False
) -> Place | None:
    """
    The delivery that the command line names; None where it names many.

    Args:
        endpoint: ENDPOINT, or None.
        event: EVENT, or None.
        options: Those of the filter; all are empty where one delivery is named.
        every: Whether ``--all`` was passed.

    Raises:
        click.UsageError: It names neither one nor many, or both.
    """
    filtered = any(options.values())
    if (endpoint is not None) + filtered + every != 1 or (endpoint is None) != (event is None):
        raise click.UsageError("say which: pass ENDPOINT and EVENT, or options that choose, or --all")
    return None if endpoint is None or event is None else Place(endpoint, event)


def show_one(
    dsn: str | None, place: Place, states: Sequence[DeliveryState] = ()
) -> tuple[Delivery, str | None]:
    """
    A delivery and its payload.

    Args:
        dsn: The database that was named, or None.
        place: Endpoint and event of the delivery.
        states: Only in one of these; empty: in any.

    Raises:
        UnknownDelivery: There is none, or it is in another state.
    """

    async def work(database: Database, whole: str) -> tuple[Delivery, str | None]:
        one, data = await Deliveries(database).show(None, whole, place.event_id)
        if states and one.state not in states:
            what = f"event {place.event_id!r:.80} to endpoint {whole!r:.80}"
            raise UnknownDelivery(f"the delivery of {what} is {one.state}, not {' or '.join(states)}")
        return one, data

    return visit_endpoint(dsn, place.endpoint_id, work)


def retry_one(dsn: str | None, place: Place, states: Sequence[DeliveryState] = (), *, as_json: bool) -> None:
    """Try a delivery again, and say so; arguments are those of :func:`show_one`."""
    one, _ = show_one(dsn, place, states)
    visit_database(dsn, lambda db: Deliveries(db).retry(None, one.endpoint_id, one.event_id))
    echo_decided("retried", "deliveries", 1, as_json=as_json)


def drop_one(
    dsn: str | None, place: Place, states: Sequence[DeliveryState] = (), *, yes: bool, as_json: bool
) -> None:
    """Drop a delivery once somebody agrees, and say so; arguments are those of :func:`show_one`."""
    one, _ = show_one(dsn, place, states)
    what = (
        f"event {one.event_id} ({printable(one.topic)}) to endpoint {one.endpoint_id}, which is {one.state}"
    )
    confirm(f"Drop the delivery of {what}?", yes=yes)
    visit_database(dsn, lambda db: Deliveries(db).drop(None, one.endpoint_id, one.event_id))
    echo_decided("dropped", "deliveries", 1, as_json=as_json)


def retry_many(
    dsn: str | None, options: Mapping[str, Any], states: Sequence[DeliveryState], *, as_json: bool
) -> None:
    """
    Try all again that fit, and print how many they were.

    Args:
        dsn: The database that was named, or None.
        options: Those of the filter.
        states: What they are.
        as_json: One object.
    """

    async def work(database: Database) -> int:
        which, retried = await filter_of(database, options, states), 0
        async for retried in Deliveries(database).retry_many(which):
            _tell_progress(f"{retried:,} so far")
        return retried

    retried = visit_database(dsn, work)
    _tell_progress("")
    echo_decided("retried", "deliveries", retried, as_json=as_json)


def drop_many(dsn: str | None, options: Mapping[str, Any], *, yes: bool, as_json: bool) -> None:
    """Drop all dead letters that fit once somebody agrees, and print how many they were; see :func:`retry_many`."""
    which = visit_database(dsn, lambda db: filter_of(db, options, ["dead"]))
    count = len(visit_database(dsn, lambda db: Deliveries(db).list(which, limit=_MOST)))

    async def work(database: Database) -> int:
        dropped = 0
        async for dropped in Deliveries(database).drop_many(which):
            _tell_progress(f"{dropped:,} so far")
        return dropped

    dropped = 0
    if count:
        about = f"{count:,} or more" if count == _MOST else f"{count:,}"
        confirm(f"Drop {about} dead letters?", yes=yes)
        dropped = visit_database(dsn, work)
        _tell_progress("")
    echo_decided("dropped", "deliveries", dropped, as_json=as_json)


def _tell_progress(text: str) -> None:
    """Write over the line on the terminal; says nothing where there is none."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)
