"""Trying deliveries again and dropping them: one, or all that fit, with how far it has come."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import click

from journal import Database
from projections.terminal.connection import confirm
from projections.terminal.failed import echo_decided
from projections.terminal.output import printable
from projections.webhooks.commands.delivery_options import filter_of
from projections.webhooks.commands.visiting import visit_database, visit_endpoint
from projections.webhooks.deliveries import Deliveries, Delivery, DeliveryFilter, DeliveryState
from projections.webhooks.errors import UnknownDelivery

__all__ = ["Place", "drop", "place_of", "retry", "show_one"]

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
    The delivery that the command line names; None where its options choose many, or ``every`` says all.

    Raises:
        click.UsageError: It names neither one nor many, or both.
    """
    if (endpoint is not None) + any(options.values()) + every != 1 or (endpoint is None) != (event is None):
        raise click.UsageError("say which: pass ENDPOINT and EVENT, or options that choose, or --all")
    return None if endpoint is None or event is None else Place(endpoint, event)


def show_one(
    dsn: str | None, place: Place, states: Sequence[DeliveryState] = ()
) -> tuple[Delivery, str | None]:
    """
    A delivery and its payload.

    Raises:
        UnknownDelivery: There is none, or it is in none of the states that are given.
    """

    async def work(database: Database, whole: str) -> tuple[Delivery, str | None]:
        one, data = await Deliveries(database).show(None, whole, place.event_id)
        if states and one.state not in states:
            what = f"event {place.event_id!r:.80} to endpoint {whole!r:.80}"
            raise UnknownDelivery(f"the delivery of {what} is {one.state}, not {' or '.join(states)}")
        return one, data

    return visit_endpoint(dsn, place.endpoint_id, work)


def retry(
    dsn: str | None,
    place: Place | None,
    options: Mapping[str, Any],
    states: Sequence[DeliveryState],
    *,
    as_json: bool,
) -> None:
    """Try one delivery again, or all that are in these states and fit the options; print how many they were."""
    if place is None:
        retried = _many(dsn, options, states, Deliveries.retry_many)
    else:
        one, _ = show_one(dsn, place, states)
        visit_database(dsn, lambda db: Deliveries(db).retry(None, one.endpoint_id, one.event_id))
        retried = 1
    echo_decided("retried", "deliveries", retried, as_json=as_json)


def drop(
    dsn: str | None,
    place: Place | None,
    options: Mapping[str, Any],
    states: Sequence[DeliveryState],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Drop one delivery, or all dead letters that fit the options, once somebody agrees; print how many they were."""
    if place is None:
        which = visit_database(dsn, lambda db: filter_of(db, options, ["dead"]))
        dropped = len(visit_database(dsn, lambda db: Deliveries(db).list(which, limit=_MOST)))
        if dropped:
            about = f"{dropped:,} or more" if dropped == _MOST else f"{dropped:,}"
            confirm(f"Drop {about} dead letters?", yes=yes)
            dropped = _many(dsn, options, ["dead"], Deliveries.drop_many)
    else:
        one, _ = show_one(dsn, place, states)
        what = f"event {one.event_id} ({printable(one.topic)}) to endpoint {one.endpoint_id}"
        confirm(f"Drop the delivery of {what}, which is {one.state}?", yes=yes)
        visit_database(dsn, lambda db: Deliveries(db).drop(None, one.endpoint_id, one.event_id))
        dropped = 1
    echo_decided("dropped", "deliveries", dropped, as_json=as_json)


def _many(
    dsn: str | None,
    options: Mapping[str, Any],
    states: Sequence[DeliveryState],
    decide: Callable[[Deliveries, DeliveryFilter], AsyncIterator[int]],
) -> int:
    async def work(database: Database) -> int:
        which, decided = await filter_of(database, options, states), 0
        async for decided in decide(Deliveries(database), which):
            _tell_progress(f"{decided:,} so far")
        _tell_progress("")
        return decided

    return visit_database(dsn, work)


def _tell_progress(text: str) -> None:
    """Write over the line on the terminal; says nothing where there is none."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)
