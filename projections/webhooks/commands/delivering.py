"""``projections webhooks deliver``: a process that delivers, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import click

from journal import NUMBER_OF_SLICES, ConnectionSettings, Database
from journal.database import connect
from journal.embedded import database_dsn
from journal.partitions import maintaining
from journal.schema import check_version
from projections.http.addresses import Address
from projections.running.event_loop import loop_runner
from projections.running.observer import CombinedObserver, StatusObserver
from projections.running.settings import RunSettings
from projections.terminal.durations import Duration
from projections.terminal.logs import LogFormat, configure_logs
from projections.terminal.options import dsn_option
from projections.terminal.running import (
    INTERRUPTED,
    driver_option,
    ending,
    log_format_option,
    pgbouncer_option,
    served_at,
    token_file_option,
)
from projections.terminal.signals import stopped_by_signals
from projections.terminal.targets import load_projections
from projections.webhooks.addresses import AddressRules
from projections.webhooks.ciphers import cipher_from_environment
from projections.webhooks.commands.observing import AttemptLog, Several
from projections.webhooks.commands.options import address_options, rules_of
from projections.webhooks.deliverer import deliver as deliver_webhooks
from projections.webhooks.delivery_observer import DeliveryObserver
from projections.webhooks.running import run_webhooks
from projections.webhooks.sender import HOST_LIMIT, HttpSender, Sender
from projections.webhooks.settings import DeliverySettings

__all__ = ["deliver"]

log = logging.getLogger("projections")

_ALSO = 8
"""Connections beside those that ranges hold."""
_MARGIN = timedelta(seconds=10)
"""For all else that a stop does."""


@dataclass(frozen=True, slots=True)
class _Options:
    definitions: Sequence[Any]
    only_send: bool
    ranges: int
    rules: AddressRules
    connections: ConnectionSettings
    settings: DeliverySettings
    host_limit: int
    maintain_every: timedelta | None
    address: Address | None
    token: str | None
    traces: bool


@click.command()
@click.argument("targets", nargs=-1, metavar="[MODULE:OBJECT...]")
@dsn_option
@click.option("--only-send", is_flag=True, help="Only send what is due: others make deliveries of events.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=200,
    show_default=True,
    help="Requests on their way at a time, in this process.",
)
@click.option(
    "--tenant-share",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.5,
    show_default=True,
    help="Of these, what one tenant may have of those that the others leave; while there is no other: all.",
)
@click.option(
    "--host-limit",
    type=click.IntRange(1),
    default=HOST_LIMIT,
    show_default=True,
    help="Requests to one host on their way at a time, and begun in any second, from this process.",
)
@click.option(
    "--verified-only",
    is_flag=True,
    help="Send nothing to URLs that have not shown that they want it; see `endpoints verify`.",
)
@address_options
@click.option(
    "--ranges",
    type=click.IntRange(1, NUMBER_OF_SLICES),
    default=1,
    show_default=True,
    help="Cut the slices of a fan-out that has never run into so many ranges, for as many processes.",
)
@click.option(
    "--stop-timeout",
    type=Duration(),
    default="20s",
    show_default=True,
    metavar="20s",
    help="How long a stop waits for requests on their way; the others are sent again.",
)
@driver_option
@click.option(
    "--max-connections",
    type=click.IntRange(_ALSO + 1),
    default=12,
    show_default=True,
    help=f"Size of the pool: the ranges that it holds, and {_ALSO} more.",
)
@pgbouncer_option
@click.option(
    "--maintain-every",
    type=Duration(seconds=True),
    default="10m",
    show_default=True,
    metavar="10m|1h",
    help="One of all workers makes and drops time partitions, as `projections maintain` does; 0: not this one.",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve /metrics, /livez, /readyz and /lagz. What other machines reach needs a token, save for the probes "
    "/livez and /readyz.",
)
@token_file_option
@click.option("--traces", is_flag=True, help="Make an OpenTelemetry span of each batch and of each request.")
@log_format_option
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="info has a line for each attempt that failed, debug for all.",
)
@click.pass_context
def deliver(  # noqa: PLR0917 - click passes all by name
    context: click.Context,
    /,
    targets: tuple[str, ...],
    dsn: str | None,
    only_send: bool,
    concurrency: int,
    tenant_share: float,
    host_limit: int,
    verified_only: bool,
    ranges: int,
    stop_timeout: timedelta,
    driver: Literal["asyncpg", "psycopg"],
    max_connections: int,
    pgbouncer: bool | None,
    maintain_every: timedelta,
    http: str | None,
    token_file: Path | None,
    traces: bool,
    log_format: LogFormat,
    log_level: str,
    **addresses: Any,
) -> None:
    """
    Deliver webhooks in this process, together with all that do on the same database.

    It makes deliveries of the messages of `projections webhooks send` (and of webhooks.send), sends what is due,
    signed, tries again what failed, sends what is scheduled, and cleans up. MODULE:OBJECT is a FanOut of yours, for
    events of another entity type; the current directory is searched first. Run as many processes as you like.

    \b
      projections webhooks deliver
      projections webhooks deliver app:flights --ranges 4 --http 127.0.0.1:9187
      projections webhooks deliver --only-send --concurrency 500
      projections webhooks deliver --allow-address 127.0.0.0/8      to a receiver on this machine

    Only public addresses are reached, whatever endpoints say, beside those of --allow-address. Secrets are read with
    the key in PROJECTIONS_WEBHOOK_KEYS, where there is one. Logs go to stderr.

    SIGINT or SIGTERM stops: requests on their way are waited for, and what takes longer is given back. A second one
    ends the process at once; what it had on its way is sent again when its lease is over, with the same `webhook-id`.

    A database that goes away is waited for.

    \b
    Exit codes
      0    stopped by SIGTERM
      1    could not start; the reason is on stderr
      2    the command line itself is wrong
      130  stopped by SIGINT (Ctrl-C)
    """  # noqa: D301 - click reads the escape
    if only_send and targets:
        raise click.UsageError("--only-send makes no deliveries of events: pass it without MODULE:OBJECT")
    configure_logs(log_format, log_level)
    address, token = served_at(http, token_file)
    with ending(context, logged=log_format == "json"):
        options = _Options(
            load_projections(targets),
            only_send,
            ranges,
            rules_of(**addresses),
            ConnectionSettings(driver=driver, max_connections=max_connections, pgbouncer=pgbouncer),
            DeliverySettings(
                max_in_flight=concurrency,
                tenant_share=tenant_share,
                verified_only=verified_only,
                stop_timeout=stop_timeout,
            ),
            host_limit,
            maintain_every or None,
            address,
            token,
            traces,
        )
        with database_dsn(dsn) as database:
            code = loop_runner().run(_run(database, options))
    context.exit(code)


async def _run(dsn: str, options: _Options) -> int:
    stop, cipher = asyncio.Event(), cipher_from_environment()
    http = HttpSender(options.rules, host_limit=options.host_limit)
    async with connect(dsn, options.connections) as database, http as sender:
        async with database.session() as session:
            await check_version(session)
        with stopped_by_signals(stop, _grace(options.settings)) as received:
            async with (
                _observed(database, sender, options) as (observer, attempts, counted),
                maintaining(database, options.maintain_every),
            ):
                if options.only_send:
                    await deliver_webhooks(
                        database, counted, cipher=cipher, settings=options.settings, observer=attempts, stop=stop
                    )  # fmt: skip
                else:
                    await run_webhooks(
                        database, counted, *options.definitions, ranges=options.ranges, cipher=cipher,
                        settings=options.settings, run_settings=RunSettings(listen=options.settings.listen),
                        delivery_observer=attempts, observer=observer, stop=stop,
                    )  # fmt: skip
    return INTERRUPTED if received.number is signal.SIGINT else 0


def _grace(settings: DeliverySettings) -> timedelta:
    """How long a stop may take: requests on their way have their time, and so has storing what came of them."""
    return 2 * settings.stop_timeout + _MARGIN


@asynccontextmanager
async def _observed(
    database: Database, sender: Sender, options: _Options
) -> AsyncIterator[tuple[StatusObserver | None, DeliveryObserver, Sender]]:
    """Who is to be told, and through what to send, serving what is counted for the length of the block."""
    observers: list[StatusObserver] = []
    if options.traces:
        from projections.monitoring.tracing import Tracing  # noqa: PLC0415 - of an extra
        from projections.webhooks.tracing import TracedSender  # noqa: PLC0415 - likewise

        observers, sender = [Tracing()], TracedSender(sender)
    if options.address is None:
        yield CombinedObserver(observers), AttemptLog(), sender
        return
    from projections.http.serving import serving  # noqa: PLC0415 - of an extra
    from projections.monitoring.probes import delivering_app, worker_app  # noqa: PLC0415 - of an extra
    from projections.monitoring.worker_metrics import WorkerMetrics  # noqa: PLC0415 - likewise
    from projections.webhooks.delivery_metrics import WebhookMetrics  # noqa: PLC0415 - likewise

    metrics, counted = WorkerMetrics(), WebhookMetrics()
    app = delivering_app(counted, database) if options.only_send else worker_app(metrics, database, counted)
    async with serving(options.address, app, options.token) as address:
        log.info(
            "metrics are at http://%s/metrics", address, extra={"action": "serving", "address": str(address)}
        )
        yield (
            CombinedObserver([metrics, *observers]),
            Several([AttemptLog(), counted]),
            counted.watching(sender),
        )
