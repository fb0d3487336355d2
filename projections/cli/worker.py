"""``projections worker``: projections in one process, or in several under a supervisor, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from journal import NUMBER_OF_SLICES, ConnectionSettings, Database
from journal.database import connect
from journal.embedded import database_dsn
from journal.partitions import maintaining
from journal.schema import check_version
from projections.cli.supervisor import StopAsked, heard_from_supervisor, supervise, tagged_logs
from projections.durations import duration_text
from projections.http.addresses import Address
from projections.running.event_loop import loop_runner
from projections.running.observer import CombinedObserver, StatusObserver
from projections.running.runner import run as run_projections
from projections.running.settings import ABORT_AFTER, OTHER_CONNECTIONS, WORKER_CONNECTIONS, RunSettings
from projections.subscriptions import Matching
from projections.terminal.durations import Duration
from projections.terminal.logs import LogFormat, configure_logs
from projections.terminal.options import dsn_option
from projections.terminal.running import (
    driver_option,
    ending,
    log_format_option,
    pgbouncer_option,
    served_at,
    token_file_option,
)
from projections.terminal.signals import ReceivedSignal, stopped_by_signals
from projections.terminal.targets import load_projections

__all__ = ["worker"]

log = logging.getLogger("projections")

_SIGNAL_BASE = 128
_ORPHANED = timedelta(seconds=10)  # to finish the batch at hand when the supervisor is gone
_NOT_HANDED_DOWN = frozenset({"processes", "dsn", "take_over", "http"})


@dataclass(frozen=True, slots=True)
class _Options:
    ranges: int
    driver: Literal["asyncpg", "psycopg"]
    max_connections: int
    pgbouncer: bool | None
    until_caught_up: bool
    take_over: bool
    grace: timedelta
    processes: int
    supervised: bool
    traces: bool
    subscriptions: bool
    address: Address | None
    token: str | None
    settings: RunSettings
    maintain_every: timedelta | None

    @property
    def connections(self) -> ConnectionSettings:
        return ConnectionSettings(
            driver=self.driver, max_connections=self.max_connections, pgbouncer=self.pgbouncer
        )


@click.command()
@click.argument("targets", nargs=-1, metavar="[MODULE[:OBJECT]...]")
@dsn_option
@click.option(
    "--ranges",
    type=click.IntRange(1, NUMBER_OF_SLICES),
    default=8,
    show_default=True,
    help="Cut the slices of a projection that has never run into so many ranges; `projections rescale` cuts others.",
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Start so many processes, and start again those that die: one for each core that it may use.",
)
@click.option(
    "--subscriptions",
    is_flag=True,
    help="Match events with the subscriptions of groups, too; needs no MODULE.",
)
@click.option("--supervised", is_flag=True, hidden=True)  # one of --processes
@click.option(
    "--until-caught-up", is_flag=True, help="End when all that was appended before the start is handled."
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Begin with what other workers hold, without waiting for their leases to end.",
)
@click.option(
    "--lease",
    type=Duration(least="1s", most="1h", seconds=True),
    default="10s",
    show_default=True,
    help="Others take over the ranges of a worker that has died, or that the network has cut off, after so long.",
)
@click.option(
    "--handler-timeout",
    type=Duration(least="1ms", most="1d", seconds=True),
    default="60s",
    show_default=True,
    help="A call of a handler that takes longer is cancelled, and has failed.",
)
@click.option(
    "--alike-failures",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="So many sources may be parked or skipped that fail alike, one after the other; the next one stops its range.",
)
@click.option(
    "--grace",
    type=Duration(least="100ms", most="1d", seconds=True),
    default="80s",
    show_default=True,
    help="How long the batches at hand may take when the worker is stopped; then it is ended, whatever it is doing. A "
    "little less than what the service manager allows.",
)
@click.option(
    "--backtracking",
    type=click.Choice(["writer-lock", "interval"]),
    default="writer-lock",
    show_default=True,
    help="How late commits are caught: writer-lock loses none and needs the primary.",
)
@driver_option
@click.option(
    "--max-connections",
    type=click.IntRange(OTHER_CONNECTIONS + 1),
    default=WORKER_CONNECTIONS,
    show_default=True,
    help="Size of the pool. With fewer than ranges + 3, ranges take turns.",
)
@pgbouncer_option
@click.option(
    "--maintain-every",
    type=Duration(most="1d", seconds=True),
    default="10m",
    show_default=True,
    help="One of all workers makes and drops time partitions, as `projections maintain` does; 0: not this one.",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve /metrics, /livez, /readyz and /lagz; of several --processes each at the next port. What other machines "
    "reach needs a token, save for the probes /livez and /readyz.",
)
@token_file_option
@click.option("--traces", is_flag=True, help="Make an OpenTelemetry span of each batch.")
@log_format_option
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.pass_context
def worker(  # noqa: PLR0917 - click passes all by name
    context: click.Context,
    /,
    targets: tuple[str, ...],
    dsn: str | None,
    backtracking: Literal["writer-lock", "interval"],
    lease: timedelta,
    handler_timeout: timedelta,
    alike_failures: int,
    maintain_every: timedelta,
    log_format: LogFormat,
    log_level: str,
    http: str | None,
    token_file: Path | None,
    **options: Any,
) -> None:
    """
    Run projections in this process, together with all other workers on the same database.

    The slice ranges of each projection spread over the workers by themselves, and move when one comes, goes or dies.

    MODULE:OBJECT is a class decorated with @projection; MODULE alone, all of them in it. The current directory
    is searched first. Logs go to stderr.

    SIGINT or SIGTERM stops: the batches at hand are finished and the ranges given back. A second one ends the
    process at once; nothing is lost, and the ranges are free when their lease ends. So it ends, too, when it has not
    --grace after the first, whatever it is waiting for.

    A database that goes away is waited for.

    One process uses one core. With --processes, this one starts the others, starts again those that die, and stops
    them when it is stopped or dies itself; each has a pool of --max-connections of its own.

    \b
    Exit codes
      0    caught up (--until-caught-up), or stopped by SIGTERM
      1    could not start, or a fault that starting again does not heal; the reason is on stderr
      2    the command line itself is wrong
      70   a handler has held the event loop for 5 minutes, or the process had not ended --grace after it was stopped;
           --processes starts such a process again
      130  stopped by SIGINT (Ctrl-C)
      143  stopped by SIGTERM before --until-caught-up was reached
    """  # noqa: D301 - click reads the escape
    if not (targets or options["subscriptions"]):
        raise click.UsageError("nothing to run: name a MODULE with projections, or give --subscriptions")
    configure_logs(log_format, log_level)
    settings = RunSettings(
        backtracking=backtracking,
        lease=lease,
        handler_timeout=handler_timeout,
        alike_failures=alike_failures,
        abort_after=ABORT_AFTER,
    )
    address, token = served_at(http, token_file)
    chosen = _Options(
        **options, address=address, token=token, settings=settings, maintain_every=maintain_every or None
    )
    if chosen.supervised or chosen.processes > 1:
        tagged_logs(log_format)
    with ending(context, logged=log_format == "json" or chosen.supervised):
        definitions = load_projections(targets)
        with database_dsn(dsn) as database:
            if chosen.processes > 1:
                code = asyncio.run(_supervise(database, context, chosen))
            else:
                code = loop_runner().run(_run(database, definitions, chosen))
    context.exit(code)


def _handed_down(context: click.Context, address: Address | None, number: int) -> list[str]:
    """What was given on the command line, for each process; not the DSN, which may hold a password."""
    handed = ["worker", "--supervised"]
    if address is not None:
        handed.append(f"--http={address._replace(port=address.port + number - 1 if address.port else 0)}")
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if not given or name in _NOT_HANDED_DOWN or not isinstance(parameter, click.Option):
            continue
        value = context.params[name]
        text = duration_text(value) if isinstance(value, timedelta) else value
        handed.append(parameter.opts[0] if parameter.is_flag else f"{parameter.opts[0]}={text}")
    return [*handed, "--", *context.params["targets"]]


async def _supervise(dsn: str, context: click.Context, options: _Options) -> int:
    # What no process could start with is told once, and not by each.
    async with connect(dsn, options.connections) as database, database.session() as session:
        await check_version(session)
    outcome = await supervise(
        partial(_handed_down, context, options.address),
        options.processes,
        dsn,
        forever=not options.until_caught_up,
        grace=options.grace,
        once=["--take-over"] if options.take_over else [],
    )
    return outcome.code or _exit_code(outcome.signal, options)


async def _run(dsn: str, definitions: Sequence[Any], options: _Options) -> int:
    stop = asyncio.Event()
    async with connect(dsn, options.connections) as database:
        with (
            stopped_by_signals(stop, options.grace) as received,
            _supervisor(stop, received, options) as asked,
        ):
            async with (
                _observed(database, options) as observer,
                maintaining(database, options.maintain_every),
            ):
                await run_projections(
                    database,
                    *definitions,
                    ranges=options.ranges,
                    settings=options.settings,
                    observer=observer,
                    stop=stop,
                    until_caught_up=options.until_caught_up,
                    take_over=options.take_over,
                    discovery=Matching(options.ranges) if options.subscriptions else None,
                )
    return 0 if asked.yes else _exit_code(received.number, options)


@asynccontextmanager
async def _observed(database: Database, options: _Options) -> AsyncIterator[StatusObserver]:
    """Who is to be told, serving what it is told for the length of the block."""
    observers: list[StatusObserver] = []
    if options.traces:
        from projections.monitoring.tracing import Tracing  # noqa: PLC0415 - of an extra

        observers.append(Tracing())
    if options.address is None:
        yield CombinedObserver(observers)
        return
    from projections.http.serving import serving  # noqa: PLC0415 - of an extra
    from projections.monitoring.probes import worker_app  # noqa: PLC0415 - of an extra
    from projections.monitoring.worker_metrics import WorkerMetrics  # noqa: PLC0415 - likewise

    metrics = WorkerMetrics()
    async with serving(options.address, worker_app(metrics, database), options.token) as address:
        log.info(
            "metrics are at http://%s/metrics", address, extra={"action": "serving", "address": str(address)}
        )
        yield CombinedObserver([metrics, *observers])


def _supervisor(
    stop: asyncio.Event, received: ReceivedSignal, options: _Options
) -> AbstractContextManager[StopAsked]:
    if not options.supervised:
        return nullcontext(StopAsked())
    return heard_from_supervisor(stop, received.resort, min(_ORPHANED, options.grace))


def _exit_code(received: signal.Signals | None, options: _Options) -> int:
    if received is None:
        log.info("caught up", extra={"action": "caught_up"})
        return 0
    graceful = received is signal.SIGTERM and not options.until_caught_up
    return 0 if graceful else _SIGNAL_BASE + received
