"""``projections webhooks limits``: what endpoints may ask for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import click

from journal import Database
from projections.terminal.durations import Duration
from projections.terminal.options import dsn_option, echo_json, json_option
from projections.webhooks.commands.printing import echo_table
from projections.webhooks.commands.visiting import visit_database
from projections.webhooks.limits import Bound, BoundName, bounds, change_bound

__all__ = ["limits"]

_LIMIT = Duration(seconds=True, word="none")
"""A count is read as seconds, too: the table has one column for both."""


@click.command(short_help="Show or change what endpoints may ask for.")
@click.argument("name", required=False, type=click.Choice(get_args(BoundName)), metavar="[NAME]")
@click.option("--least", type=_LIMIT, metavar="1s|N|none", help="The least; none: what the library allows.")
@click.option("--most", type=_LIMIT, metavar="30s|N|none", help="The most, likewise.")
@dsn_option
@json_option
def limits(name: BoundName | None, least: Any, most: Any, dsn: str | None, as_json: bool) -> None:
    """
    Show what endpoints may ask for, or change it. It holds for all tenants and processes, from the next claim on.

    NAME is max_in_flight, timeout, pause (each of a retry schedule), attempts (of a delivery), breaker_failures or
    breaker_pause; times are in seconds. A new or changed endpoint that asks for what is not allowed is refused; one
    that is stored with it is held to the bound when it is sent to. To change, the role must own the schema.

    \b
      projections webhooks limits
      projections webhooks limits timeout --most 10s
      projections webhooks limits pause --least 5s
      projections webhooks limits attempts --most none
    """  # noqa: D301 - click reads the escape
    change = least is not None or most is not None
    if change and name is None:
        raise click.UsageError("say which one: projections webhooks limits timeout --most 10s")

    async def work(database: Database) -> list[Bound]:
        async with database.session() as session:
            if change and name is not None:
                await change_bound(session, name, least=_number(least), most=_number(most))
            return [one for one in await bounds(session) if name in {None, one.name}]

    found = visit_database(dsn, work)
    if as_json:
        echo_json(limits=[one._asdict() for one in found])
        return
    rows = (
        (one.name, *("" if bound is None else f"{bound:g}" for bound in (one.least, one.most)))
        for one in found
    )
    echo_table(("limit", "least", "most"), rows, {"least", "most"}, set())


def _number(limit: Any) -> Any:
    return limit.total_seconds() if isinstance(limit, timedelta) else limit
