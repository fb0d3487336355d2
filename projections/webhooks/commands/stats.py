"""``projections webhooks stats``: how endpoints fare."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import click

from journal import OwnedSession
from projections.durations import duration_text
from projections.terminal.ages import age
from projections.terminal.answers import Answer, listing, picked
from projections.terminal.commands import Opt, derived
from projections.terminal.options import Tenant
from projections.terminal.output import Columns, seconds, short_id
from projections.webhooks.stats import EndpointStats, endpoint_stats

__all__ = ["stats"]

_Window = Annotated[timedelta, Opt("The time before now whose attempts are counted.", metavar="10m|1h|1d")]


@click.command()
@derived(watched=True)
async def stats(
    session: OwnedSession, /, *, tenant: Tenant = None, window: _Window = timedelta(hours=1)
) -> Answer:
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
    found = await endpoint_stats(session, tenant, window=window)
    return listing(
        "endpoints", found, _COLUMNS, *([f"attempts of the last {duration_text(window)}"] if found else []),
        nothing="there is no endpoint: `projections webhooks endpoints add TENANT URL` makes one",
        values=_values, numbers={"lag", "success", "median", "p99"}, window_seconds=window,
    )  # fmt: skip


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


_COLUMNS: Columns = {
    "endpoint": lambda one: short_id(one.endpoint_id), "tenant": "tenant", "host": "host", "state": _state,
    "to send": lambda one: one.pending + one.waiting + one.in_flight, "dead": "dead", "lag": lambda one: age(one.lag),
    "attempts": "attempts", "success": lambda one: None if one.success is None else f"{one.success:.1%}",
    "median": lambda one: seconds(one.median), "p99": lambda one: seconds(one.slowest_percent), "failing": _failing,
}  # fmt: skip


def _values(one: EndpointStats) -> dict[str, Any]:
    return picked(
        one, "endpoint_id", "tenant", "url", "verified", "state", "reason", "pending", "waiting", "in_flight", "dead",
        "failures", "failing_since", "blocked_until", "held", "succeeded", "failed",
        lag_seconds="lag", success_rate="success", median_seconds="median", p99_seconds="slowest_percent",
    )  # fmt: skip
