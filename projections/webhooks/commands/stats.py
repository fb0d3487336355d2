"""``projections webhooks stats``: how endpoints fare."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import click
from rich.table import Table

from journal import Database
from projections.durations import duration_text
from projections.terminal.ages import age
from projections.terminal.durations import Duration
from projections.terminal.options import dsn_option, echo_json, json_option
from projections.terminal.output import print_table
from projections.terminal.watching import watch
from projections.webhooks.commands.options import tenant_option
from projections.webhooks.commands.printing import seconds, short_id, table_of
from projections.webhooks.commands.visiting import visit_database
from projections.webhooks.stats import EndpointStats, endpoint_stats

__all__ = ["stats"]

_NUMBERS = {"to send", "dead", "lag", "attempts", "success", "median", "p99"}


@click.command()
@tenant_option
@click.option(
    "--window", type=Duration(), default="1h", show_default=True, metavar="10m|1h|1d",
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

    async def look(database: Database) -> list[EndpointStats]:
        async with database.session() as session:
            return await endpoint_stats(session, tenant, window=window)

    def echo(found: list[EndpointStats]) -> None:
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


def _table(found: list[EndpointStats], window: timedelta) -> Table:
    columns = (
        "endpoint", "tenant", "host", "state", "to send", "dead", "lag", "attempts", "success", "median", "p99",
        "failing",
    )  # fmt: skip
    rows = (
        (
            short_id(one.endpoint_id), one.tenant, one.host, _state(one),
            one.pending + one.waiting + one.in_flight, one.dead, age(one.lag),
            one.attempts, None if one.success is None else f"{one.success:.1%}",
            seconds(one.median), seconds(one.slowest_percent), _failing(one),
        )
        for one in found
    )  # fmt: skip
    table = table_of(columns, rows, _NUMBERS)
    table.caption = f"attempts of the last {duration_text(window)}"
    table.caption_justify = "left"
    return table


def _state(one: EndpointStats) -> str:
    if one.state != "active":
        return f"{one.state}: {one.reason}" if one.reason else str(one.state)
    if one.held:
        return f"held until {one.blocked_until:%H:%M:%S}"
    return "failing" if one.failures else "active"


def _failing(one: EndpointStats) -> str | None:
    if one.failing_since is None:
        return None
    return f"{age((one.at - one.failing_since).total_seconds())}, {one.failures:,}"


def _values(one: EndpointStats) -> dict[str, Any]:
    same = (
        "endpoint_id",
        "tenant",
        "url",
        "verified",
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
        **{name: getattr(one, name) for name in same},
        **{name: None if (time := getattr(one, name)) is None else time.isoformat() for name in times},
        "held": one.held,
        "lag_seconds": one.lag,
        "succeeded": one.succeeded,
        "failed": one.failed,
        "success_rate": one.success,
        "median_seconds": one.median,
        "p99_seconds": one.slowest_percent,
    }
