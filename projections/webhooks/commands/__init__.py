"""``projections webhooks``: endpoints, messages, deliveries, and the processes that send and receive."""

from __future__ import annotations

import click

from projections.terminal.command_group import CommandGroup, LazyCommand

__all__ = ["COMMANDS", "webhooks"]

_HERE = "projections.webhooks.commands"
_COMMANDS = {
    "endpoints": LazyCommand(
        f"{_HERE}.endpoints:endpoints", "List, add, change, pause, test and remove where webhooks go."
    ),
    "send": LazyCommand(f"{_HERE}.sending:send", "Send a message to the endpoints of a tenant."),
    "erase": LazyCommand(
        f"{_HERE}.erasing:erase", "Erase what messages say; that they were sent stays on record."
    ),
    "deliver": LazyCommand(f"{_HERE}.delivering:deliver", "Deliver, together with all processes that do."),
    "deliveries": LazyCommand(f"{_HERE}.deliveries:deliveries", "List, show, retry and drop deliveries."),
    "dead": LazyCommand(f"{_HERE}.deliveries:dead", "List, show, retry and drop dead letters."),
    "events": LazyCommand(f"{_HERE}.log:events", "Page through the log of events that were for endpoints."),
    "attempts": LazyCommand(f"{_HERE}.log:attempts", "Page through the log of attempts to deliver."),
    "stats": LazyCommand(
        f"{_HERE}.metrics:stats", "Show the state of endpoints: what waits, fails and is slow."
    ),
    "metrics": LazyCommand(f"{_HERE}.metrics:metrics", "Count attempts or events by endpoint, code, hour."),
    "schedules": LazyCommand(
        f"{_HERE}.schedules:schedules", "List, add and run messages that are sent by a cron line."
    ),
    "limits": LazyCommand(f"{_HERE}.limits:limits", "List and change what endpoints may ask for."),
    "listen": LazyCommand(f"{_HERE}.listening:listen", "Receive webhooks on this machine, to try them out."),
    "serve": LazyCommand(f"{_HERE}.serving:serve", "Serve the HTTP API of webhooks."),
    "page": LazyCommand(
        f"{_HERE}.tenant_page:page", "Serve the page on which tenants look after their webhooks."
    ),
    "link": LazyCommand(f"{_HERE}.tenant_page:link", "Make a link that opens the page of a tenant, once."),
}
COMMANDS = {
    "webhooks": LazyCommand(
        "projections.webhooks.commands:webhooks", "Deliver events over HTTP to the endpoints of tenants."
    ),
}


@click.group(cls=CommandGroup, lazy=_COMMANDS)
def webhooks() -> None:
    """
    Send events over HTTP to the endpoints of tenants: signed, tried again until they arrive, and kept on record.

    \b
    Try it out, with three terminals and a receiver that fails every third time:
      projections webhooks endpoints add acme http://127.0.0.1:9000/ --topic 'flight.*' \\
          --retry 1s,2s,5s --allow-http --allow-address 127.0.0.0/8      prints a secret
      projections webhooks listen --secret whsec_... --fail-rate 0.3     the receiver
      projections webhooks deliver --allow-address 127.0.0.0/8           the sender
      projections webhooks send acme flight.delayed '{"minutes": 12}'

    \b
    Then look
      projections webhooks stats                       each endpoint on a line
      projections webhooks deliveries --tenant acme    the outcome of each event
      projections webhooks attempts --status failed    what was tried, and what came back
      projections webhooks dead retry --since 2h       try again what was given up

    Only public addresses are reached unless --allow-address says otherwise. Secrets of endpoints are stored as they
    are unless PROJECTIONS_WEBHOOK_KEYS has a key to encrypt them with; it must be the same for all processes.

    Times are in UTC. Where a time is asked for, 2h means two hours ago, and 2026-01-31T12:00:00Z is that moment.
    """  # noqa: D301 - click reads the escape
