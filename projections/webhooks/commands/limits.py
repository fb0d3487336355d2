"""``projections webhooks limits``: what endpoints may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, get_args

import click

from journal import Session
from projections.durations import Duration
from projections.terminal.commands import Arg, Opt, derived
from projections.terminal.output import Answer, Columns, listing
from projections.webhooks.endpoint_bounds import BoundName, bounds, change_bound

__all__ = ["limits"]

_TIMES = {"timeout", "pause", "breaker_pause"}
_Least = Annotated[str | None, Opt("The least; none: what the library allows.", metavar="1s|N|none")]
_Most = Annotated[str | None, Opt("The most, likewise.", metavar="30s|N|none")]
_Name = Annotated[Any, Arg("[NAME]", type=click.Choice(get_args(BoundName)))]
_COLUMNS: Columns = {
    "limit": "name", "least": lambda one: "" if one.least is None else f"{one.least:g}",
    "most": lambda one: "" if one.most is None else f"{one.most:g}",
}  # fmt: skip


def _check(options: Mapping[str, Any]) -> None:
    if options["name"] is None and (options["least"] is not None or options["most"] is not None):
        raise click.UsageError("say which one: projections webhooks limits timeout --most 10s")
    for limit in ("least", "most"):
        _number(options["name"], options[limit])


@click.command(short_help="Show or change what endpoints may ask for.")
@derived(check=_check)
async def limits(
    session: Session, /, name: _Name = None, *, least: _Least = None, most: _Most = None
) -> Answer:
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
    if least is not None or most is not None:
        await change_bound(session, name, least=_number(name, least), most=_number(name, most))
    found = [one for one in await bounds(session) if name in {None, one.name}]
    return listing("limits", found, _COLUMNS, numbers={"least", "most"})


def _number(name: str | None, limit: str | None) -> Any:
    """A time in seconds, or a count."""
    if limit in {None, "none"}:
        return limit
    read: Any = Duration(word="none") if name in _TIMES else click.FLOAT
    found = read.convert(limit, None, None)
    return found.total_seconds() if isinstance(found, timedelta) else found
