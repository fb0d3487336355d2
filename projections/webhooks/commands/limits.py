"""``projections webhooks limits``: what endpoints may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, get_args

import click

from journal import Session
from projections.durations import Duration
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import Arg, Opt, derived
from projections.terminal.output import Answer, Columns, listing
from projections.webhooks.endpoint_bounds import BoundName, bounds, change_bound

_TIMES = {"timeout", "pause", "breaker_pause"}
_Least = Annotated[
    str | None, Opt("The smallest value; none: what the library allows.", metavar="DURATION|N|none")
]
_Most = Annotated[
    str | None, Opt("The largest value; none: what the library allows.", metavar="DURATION|N|none")
]
_NAMES = click.Choice(get_args(BoundName))
_COLUMNS: Columns = {
    "limit": "name", "least": lambda one: "" if one.least is None else f"{one.least:g}",
    "most": lambda one: "" if one.most is None else f"{one.most:g}",
}  # fmt: skip


def _check(options: Mapping[str, Any]) -> None:
    if options["least"] is None and options["most"] is None:
        raise click.UsageError("nothing to change: pass --least or --most")
    for limit in ("least", "most"):
        try:
            _number(options["name"], options[limit])
        except click.BadParameter as error:
            error.param_hint = f"'--{limit}'"
            raise


@click.group(cls=ListGroup)
def limits() -> None:
    """
    List and change what endpoints may ask for. It applies to all tenants and processes, from the next claim on.

    NAME is max_in_flight, timeout, pause (each of a retry schedule), attempts (of a delivery), breaker_failures or
    breaker_pause; times are in seconds.

    \b
      projections webhooks limits
      projections webhooks limits change timeout --most 10s
      projections webhooks limits change pause --least 5s
      projections webhooks limits change attempts --most none

    Without a command, `list` is run.
    """  # noqa: D301 - click reads the escape


@limits.command(name="list")
@derived
async def list_(session: Session, /) -> Answer:
    """List what endpoints may ask for."""
    return await _listed(session)


@limits.command()
@derived(check=_check)
async def change(
    session: Session,
    /,
    name: Annotated[Any, Arg("NAME", type=_NAMES)],
    *,
    least: _Least = None,
    most: _Most = None,
) -> Answer:
    """
    Change the limit NAME; a bound that is left out stays as it is.

    A new or changed endpoint that asks for what is not allowed is refused; one that is stored with it is held to the
    limit when it is sent to. Connect as the role that owns the schema.
    """
    await change_bound(session, name, least=_number(name, least), most=_number(name, most))
    return await _listed(session, name)


async def _listed(session: Session, name: str | None = None) -> Answer:
    found = [one for one in await bounds(session) if name in {None, one.name}]
    return listing("limits", found, _COLUMNS, nothing="there are no limits", numbers={"least", "most"})


def _number(name: str | None, limit: str | None) -> Any:
    """A time in seconds, or a count."""
    if limit in {None, "none"}:
        return limit
    read: Any = Duration(word="none") if name in _TIMES else click.FLOAT
    found = read.convert(limit, None, None)
    return found.total_seconds() if isinstance(found, timedelta) else found
