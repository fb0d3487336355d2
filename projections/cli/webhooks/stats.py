"""``projections webhooks stats``: how endpoints fare."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import click
from rich.table import Table

from journal import Database, Row
from projections.cli.durations import duration
from projections.cli.lag import age
from projections.cli.options import dsn_option, echo_json, json_option
from projections.cli.output import print_table
from projections.cli.watching import watch
from projections.cli.webhooks.options import tenant_option
from projections.cli.webhooks.printing import length, seconds, short_id, table_of
from projections.cli.webhooks.visiting import visit_database

__all__ = ["stats"]

_STATS = "SELECT s.*, clock_timestamp() AS at FROM projections.endpoint_stats_v1($1, $2) AS s"
_NUMBERS = {"to send", "dead", "lag", "attempts", "success", "median", "p99"}


@click.command()
@tenant_option
@click.option(
    "--window", callback=duration, default="1h", show_default=True, metavar="10m|1h|1d",
    help="The time before now whose attempts are counted.",
)  # fmt: skip
@click.option("--watch", "watches", is_flag=True, help="Look again about every second, until Ctrl-C.")
@dsn_option
@json_option
def stats(tenant: str | None, window: timedelta, watches: bool, dsn: str | None, as_json: bool) -> None:
    """
    Show how endpoints fare, a line for each.

    \b
      to send    now, at their next attempt, or once those before them in an order have arrived
      dead       attempts used up: `projections webhooks dead`
      lag        age of the oldest that has not arrived and is not dead
      attempts   within --window; success: the share of them that was answered 2xx; median and p99: how long they took
      failing    for how long, and how many failures in a row

    An endpoint is active, paused or disabled; held, where it has asked for a pause, or its circuit is open; failing,
    where its last attempts have failed.
    """  # noqa: D301 - click reads the escape

    async def look(database: Database) -> list[Row]:
        async with database.session() as session:
            return list(await session.fetch(_STATS, tenant, window))

    def echo(found: list[Row]) -> None:
        if as_json:
            echo_json(window_seconds=window.total_seconds(), endpoints=[_values(one) for one in found])
        elif found:
            print_table(_table(found, window))
        else:
            click.echo("there is no endpoint: `projections webhooks endpoints add TENANT URL` makes one")

    if not watches:
        echo(visit_database(dsn, look))
        return
    shown = None if as_json else lambda found: _table(found, window)
    with suppress(KeyboardInterrupt):
        visit_database(dsn, lambda db: watch(lambda: look(db), echo, shown))


def _table(found: list[Row], window: timedelta) -> Table:
    columns = (
        "endpoint", "tenant", "host", "state", "to send", "dead", "lag", "attempts", "success", "median", "p99",
        "failing",
    )  # fmt: skip
    rows = (
        (
            short_id(one["endpoint_id"]), one["tenant"], urlsplit(one["url"]).netloc, _state(one),
            one["pending"] + one["waiting"] + one["in_flight"], one["dead"], age(one["lag"]),
            one["succeeded"] + one["failed"], _rate(one), seconds(one["median"]), seconds(one["slowest_percent"]),
            _failing(one),
        )
        for one in found
    )  # fmt: skip
    table = table_of(columns, rows, _NUMBERS)
    table.caption = f"attempts of the last {length(window)}"
    table.caption_justify = "left"
    return table


def _state(one: Row) -> str:
    if one["state"] != "active":
        return f"{one['state']}: {one['reason']}" if one["reason"] else str(one["state"])
    if _held(one):
        return f"held until {one['blocked_until']:%H:%M:%S}"
    return "failing" if one["failures"] else "active"


def _held(one: Row) -> bool:
    until: datetime | None = one["blocked_until"]
    return until is not None and until > one["at"]


def _failing(one: Row) -> str | None:
    if one["failing_since"] is None:
        return None
    return f"{age((one['at'] - one['failing_since']).total_seconds())}, {one['failures']:,}"


def _rate(one: Row) -> str | None:
    attempts = one["succeeded"] + one["failed"]
    return f"{one['succeeded'] / attempts:.1%}" if attempts else None


def _values(one: Row) -> dict[str, Any]:
    attempts = one["succeeded"] + one["failed"]
    same = (
        "endpoint_id",
        "tenant",
        "url",
        "state",
        "reason",
        "pending",
        "waiting",
        "in_flight",
        "dead",
        "failures",
    )
    times = ("failing_since", "blocked_until")
    return {
        **{name: one[name] for name in same},
        **{name: one[name] and one[name].isoformat() for name in times},
        "held": _held(one),
        "lag_seconds": one["lag"],
        "succeeded": one["succeeded"],
        "failed": one["failed"],
        "success_rate": one["succeeded"] / attempts if attempts else None,
        "median_seconds": one["median"],
        "p99_seconds": one["slowest_percent"],
    }
