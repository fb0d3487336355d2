"""``projections webhooks deliver``: a process that delivers, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, NamedTuple

import click

from journal import ConnectionSettings, Database
from journal.database import connect
from journal.embedded import database_dsn
from journal.partitions import maintaining
from journal.schema import check_version
from projections.durations import Duration
from projections.http.addresses import Address
from projections.running import Observers, RunSettings, StatusObserver, loop_runner
from projections.terminal.commands import Arg, Dsn, Opt, derived
from projections.terminal.logs import LogFormat, configure_logs
from projections.terminal.long_running import (
    Driver,
    FirstRanges,
    HttpAddress,
    LogLevel,
    MaintainEvery,
    Pgbouncer,
    TokenFile,
    ending,
    served_at,
)
from projections.terminal.signals import stopped_by_signals
from projections.terminal.targets import load_projections
from projections.webhooks.addresses import AddressRules
from projections.webhooks.commands.options import Addresses
from projections.webhooks.deliverer import deliver as deliver_webhooks
from projections.webhooks.delivery_observer import AttemptLog, CombinedDeliveryObserver, DeliveryObserver
from projections.webhooks.egress import proxy_from_environment
from projections.webhooks.encryption import cipher_from_environment
from projections.webhooks.errors import InvalidMessage
from projections.webhooks.expiry import Expiry
from projections.webhooks.run import run_webhooks
from projections.webhooks.sender import HOST_LIMIT, HttpSender, Sender
from projections.webhooks.settings import DeliverySettings

log = logging.getLogger("projections")

_ALSO = 8
"""Connections alongside those that ranges hold."""
_MARGIN = timedelta(seconds=10)
"""For all else that a stop does."""


def _expiries(
    context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> list[tuple[str, timedelta]]:
    expiries = []
    for value in values:
        topic, _, time = value.rpartition("=")
        expiries.append((topic or "**", Duration().convert(time, parameter, context)))
    try:
        Expiry(dict(expiries))
    except InvalidMessage as error:
        raise click.BadParameter(str(error)) from None
    return expiries


@dataclass(frozen=True, slots=True)
class _Options:
    """What is said of a process that delivers."""

    only_send: Annotated[bool, Opt("Only send what is due: others make deliveries of events.")] = False
    concurrency: Annotated[
        int, Opt("Requests on their way at a time, in this process.", type=click.IntRange(1, 10_000))
    ] = 200
    tenant_share: Annotated[
        float,
        Opt(
            "The share of these that one tenant may take of what the others leave; all, while there is no other.",
            type=click.FloatRange(0, 1, min_open=True),
        ),
    ] = 0.5
    host_limit: Annotated[
        int,
        Opt(
            "Requests to one host on their way at a time, and begun in any second, from this process.",
            type=click.IntRange(1),
        ),
    ] = HOST_LIMIT
    verified_only: Annotated[
        bool, Opt("Send nothing to URLs that have not shown that they want it; see `endpoints verify`.")
    ] = False
    ranges: FirstRanges = 1
    expire_after: Annotated[
        tuple[tuple[str, timedelta], ...],
        Opt(
            "How long messages of send are good for that do not say it, by topic or pattern; the first that matches "
            "counts; may be repeated. Default: forever.",
            callback=_expiries, metavar="[TOPIC=]DURATION",
        ),
    ] = ()  # fmt: skip
    grace: Annotated[
        timedelta,
        Opt(
            "How long requests on their way may take when the process is stopped; others send the rest again."
        ),
    ] = timedelta(seconds=20)
    driver: Driver = "asyncpg"
    max_connections: Annotated[
        int,
        Opt(f"Size of the pool: the ranges that it holds, and {_ALSO} more.", type=click.IntRange(_ALSO + 1)),
    ] = 12
    pgbouncer: Pgbouncer = None
    maintain_every: MaintainEvery = timedelta(minutes=10)
    http: HttpAddress = None
    token_file: TokenFile = None
    traces: Annotated[bool, Opt("Make an OpenTelemetry span of each batch and of each request.")] = False

    @property
    def connections(self) -> ConnectionSettings:
        return ConnectionSettings(
            driver=self.driver, max_connections=self.max_connections, pgbouncer=self.pgbouncer
        )

    @property
    def settings(self) -> DeliverySettings:
        return DeliverySettings(
            max_in_flight=self.concurrency,
            tenant_share=self.tenant_share,
            verified_only=self.verified_only,
            grace=self.grace,
        )


class _Process(NamedTuple):
    """What runs: the options, read."""

    options: _Options
    definitions: Sequence[Any]
    rules: AddressRules
    address: Address | None
    token: str | None


@click.command()
@click.pass_context
@derived
def deliver(
    context: click.Context,
    /,
    targets: Annotated[tuple[str, ...], Arg("[MODULE:OBJECT...]")],
    *,
    options: _Options,
    addresses: Addresses,
    log_format: LogFormat = "text",
    log_level: Annotated[
        LogLevel, Opt("info has a line for each attempt that failed, debug for all.")
    ] = "info",
    dsn: Dsn = None,
) -> None:
    """
    Deliver webhooks in this process, together with all others that do on the same database.

    It makes deliveries of the messages of `projections webhooks send` (and of webhooks.send), sends what is due,
    signed, tries again what failed, sends what is scheduled, and cleans up. MODULE:OBJECT is a FanOut of yours, for
    events of another entity type; the current directory is searched first. Run as many processes as you like.

    \b
      projections webhooks deliver
      projections webhooks deliver app:flights --ranges 4 --http 127.0.0.1:9187
      projections webhooks deliver --only-send --concurrency 500
      projections webhooks deliver --allow-address 127.0.0.0/8      to a receiver on this machine

    Only public addresses are reached, whatever endpoints say, and those of --allow-address. Secrets are read with
    the key in PROJECTIONS_WEBHOOK_KEYS, where there is one. Where PROJECTIONS_WEBHOOK_PROXY names a proxy,
    http://USER:PASSWORD@HOST:PORT, all requests go through it (CONNECT). Logs go to stderr.

    SIGINT or SIGTERM stops: requests on their way are waited for, and what takes longer is given back. A second one
    ends the process at once; what it had on its way is sent again when its lease is over, with the same `webhook-id`.

    When the database goes away, the process waits for it.

    \b
    Exit codes
      0    stopped by SIGTERM
      1    could not start; the reason is on stderr
      2    the command line itself is wrong
      130  stopped by SIGINT (Ctrl-C)
    """  # noqa: D301 - click reads the escape
    if options.only_send and (targets or options.expire_after):
        raise click.UsageError(
            "--only-send makes no deliveries of events: pass it without MODULE:OBJECT and --expire-after"
        )
    configure_logs(log_format, log_level)
    served = served_at(options.http, options.token_file)
    with ending(context, logged=log_format == "json"):
        process = _Process(options, load_projections(targets), addresses.rules, *served)
        with database_dsn(dsn) as database:
            code = loop_runner().run(_run(database, process))
    context.exit(code)


async def _run(dsn: str, process: _Process) -> int:
    stop, cipher, options = asyncio.Event(), cipher_from_environment(), process.options
    settings = options.settings
    http = HttpSender(process.rules, host_limit=options.host_limit, proxy=proxy_from_environment())
    async with connect(dsn, options.connections) as database, http as sender:
        async with database.session() as session:
            await check_version(session)
        with stopped_by_signals(
            stop, _grace(settings), doing="stopping after the requests on their way"
        ) as received:
            async with (
                _observed(database, sender, process) as (observer, attempts, counted),
                maintaining(database, options.maintain_every or None),
            ):
                if options.only_send:
                    await deliver_webhooks(
                        database, counted, cipher=cipher, settings=settings, observer=attempts, stop=stop
                    )  # fmt: skip
                else:
                    await run_webhooks(
                        database, counted, *process.definitions, ranges=options.ranges, cipher=cipher,
                        expires_after=dict(options.expire_after),
                        settings=settings, run_settings=RunSettings(listen=settings.listen),
                        delivery_observer=attempts, observer=observer, stop=stop,
                    )  # fmt: skip
    return received.exit_code


def _grace(settings: DeliverySettings) -> timedelta:
    """How long a stop may take: requests on their way have their time, and so has storing their outcomes."""
    return 2 * settings.grace + _MARGIN


@asynccontextmanager
async def _observed(
    database: Database, sender: Sender, process: _Process
) -> AsyncIterator[tuple[Observers, DeliveryObserver, Sender]]:
    """Who is to be told, and through what to send, serving what is counted for the length of the block."""
    observers: list[StatusObserver] = []
    if process.options.traces:
        from projections.monitoring import Tracing  # noqa: PLC0415 - of an extra
        from projections.webhooks.tracing import TracedSender  # noqa: PLC0415 - likewise

        observers, sender = [Tracing()], TracedSender(sender)
    if process.address is None:
        yield observers, AttemptLog(), sender
        return
    from projections.monitoring import WorkerMetrics, serve_metrics  # noqa: PLC0415 - of an extra
    from projections.webhooks.delivery_metrics import WebhookMetrics  # noqa: PLC0415 - likewise

    metrics, counted = WorkerMetrics(), WebhookMetrics()
    workers = None if process.options.only_send else metrics
    async with serve_metrics(
        database, process.address, workers=workers, webhooks=counted, token=process.token
    ):
        delivery_observer = CombinedDeliveryObserver([AttemptLog(), counted])
        yield [metrics, *observers], delivery_observer, counted.watching(sender)
