"""Deciding about many deliveries at once, with how far it has come."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from journal import Database
from projections.cli.options import echo_json
from projections.cli.webhooks.delivery_options import filter_of
from projections.cli.webhooks.visiting import visit_database
from projections.webhooks.deliveries import Deliveries, DeliveryState

__all__ = ["retry_many", "tell_progress"]


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
            tell_progress(f"{retried:,} so far")
        return retried

    retried = visit_database(dsn, work)
    tell_progress("")
    if as_json:
        echo_json(retried=retried)
    else:
        click.echo(f"deliveries that are tried again: {retried:,}")


def tell_progress(text: str) -> None:
    """Write over the line on the terminal; says nothing where there is none."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)
