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
from typing import Annotated, Any, Literal, NamedTuple

import click

from journal import ConnectionSettings, Database, Log, LogToOpen
from journal.partitions import maintaining
from journal.schema import check_version
from projections.cli.supervisor import StopAsked, heard_from_supervisor, supervise, tagged_logs
from projections.defining import Discovery
from projections.durations import Duration, duration_text
from projections.extras import registered
from projections.failing import ALIKE
from projections.http.addresses import Address
from projections.running import (
    ABORT_AFTER,
    OTHER_CONNECTIONS,
    WORKER_CONNECTIONS,
    Observers,
    RunSettings,
    StatusObserver,
    loop_runner,
)
from projections.running import run as run_projections
from projections.terminal.commands import Arg, Dsn, Journal, JournalPrimary, Opt, ReadSide, derived
from projections.terminal.connection import (
    Sides,
    connected_journal,
    connected_read_side,
    journals_to_open,
    sides,
)
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
from projections.terminal.signals import ReceivedSignal, stopped_by_signals
from projections.terminal.targets import load_projections

log = logging.getLogger("projections")

_SIGNAL_BASE = 128
_ORPHANED = timedelta(seconds=10)  # to finish the current batch when the supervisor is gone
_NOT_HANDED_DOWN = frozenset(
    {"processes", "dsn", "read_side", "journal", "journal_primary", "take_over", "http"}
)


_LEASE = (
    "Others take over the ranges of a worker that has died, or that the network has cut off, after this long."
)
_ALIKE = "How many sources in a row may be parked or skipped that fail alike; the next one stops its range."
_GRACE = (
    "How long the current batches may take when the worker is stopped; then it is ended, whatever it is doing. A "
    "little less than what the service manager allows."
)


@dataclass(frozen=True, slots=True)
class _Options:
    """What is said of a worker."""

    ranges: FirstRanges = 8
    processes: Annotated[
        int,
        Opt(
            "Start this many processes, and start again those that die: one for each core that it may use. Each serves "
            "--http at the next port.",
            type=click.IntRange(1),
        ),
    ] = 1
    subscriptions: Annotated[
        bool,
        Opt(
            "Match events with the subscriptions of groups, too. Name the MODULE with the event types of which the "
            "journal has older versions; else it needs none."
        ),
    ] = False
    supervised: Annotated[bool, Opt(hidden=True)] = False
    """One of --processes."""
    until_caught_up: Annotated[bool, Opt("End when all that was appended before the start is handled.")] = (
        False
    )
    take_over: Annotated[
        bool, Opt("Begin with what other workers hold, without waiting for their leases to end.")
    ] = False
    lease: Annotated[timedelta, Opt(_LEASE, type=Duration(least="1s", most="1h"))] = timedelta(seconds=10)
    handler_timeout: Annotated[
        timedelta,
        Opt(
            "A call of a handler that takes longer is cancelled, and has failed.",
            type=Duration(least="1ms", most="1d"),
        ),
    ] = timedelta(seconds=60)
    alike_failures: Annotated[int, Opt(_ALIKE, type=click.IntRange(1))] = ALIKE
    grace: Annotated[timedelta, Opt(_GRACE, type=Duration(least="100ms", most="1d"))] = timedelta(seconds=80)
    backtracking: Annotated[
        Literal["writer-lock", "interval"],
        Opt("How late commits are caught: writer-lock loses none and needs the primary."),
    ] = "writer-lock"
    driver: Driver = "asyncpg"
    max_connections: Annotated[
        int,
        Opt(
            "Size of the pool. With fewer than ranges + 3, ranges take turns.",
            type=click.IntRange(OTHER_CONNECTIONS + 1),
        ),
    ] = WORKER_CONNECTIONS
    pgbouncer: Pgbouncer = None
    maintain_every: MaintainEvery = timedelta(minutes=10)
    http: HttpAddress = None
    token_file: TokenFile = None
    traces: Annotated[bool, Opt("Make an OpenTelemetry span of each batch.")] = False

    @property
    def connections(self) -> ConnectionSettings:
        return ConnectionSettings(
            driver=self.driver, max_connections=self.max_connections, pgbouncer=self.pgbouncer
        )

    @property
    def settings(self) -> RunSettings:
        return RunSettings(
            backtracking=self.backtracking,
            lease=self.lease,
            handler_timeout=self.handler_timeout,
            alike_failures=self.alike_failures,
            abort_after=ABORT_AFTER,
        )


class _Served(NamedTuple):
    """Where it serves its metrics, if it does."""

    address: Address | None
    token: str | None


@click.command()
@click.pass_context
@derived
def worker(
    context: click.Context,
    /,
    targets: Annotated[tuple[str, ...], Arg("[MODULE[:OBJECT]...]")],
    *,
    options: _Options,
    log_format: LogFormat = "text",
    log_level: Annotated[LogLevel, Opt("The lowest level that is logged.")] = "info",
    dsn: Dsn = None,
    read_side: ReadSide = None,
    journal: Journal = None,
    journal_primary: JournalPrimary = None,
) -> None:
    """
    Run projections in this process, together with all other workers on the same database.

    The slice ranges of each projection spread over the workers by themselves, and move when one comes, goes or dies.

    MODULE:OBJECT is a class decorated with @projection; MODULE alone, all of them in it. The current directory
    is searched first. Logs go to stderr.

    SIGINT or SIGTERM stops: the current batches are finished and the ranges given back. A second one ends the
    process at once; nothing is lost, and the ranges are free when their lease ends. The process also ends by
    itself when --grace is over after the first signal, whatever it is waiting for.

    When the database goes away, the worker waits for it.

    Read models may be in another database than the journal: --journal and --read-side. Effects and offsets commit
    together there, as ever, where the schema is installed, too; the journal is only read. It may be read from a hot
    standby, too: --journal names that, and --journal-primary its primary. With --journal several times, each projection
    reads all of them; one that cannot be reached does not keep the others waiting.

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
    if not (targets or options.subscriptions):
        raise click.UsageError("nothing to run: name a MODULE with projections, or give --subscriptions")
    configure_logs(log_format, log_level)
    served = _Served(*served_at(options.http, options.token_file))
    if options.supervised or options.processes > 1:
        tagged_logs(log_format)
    with ending(context, logged=log_format == "json" or options.supervised):
        definitions = load_projections(targets, event_types=options.subscriptions)
        discovery = _matching(options)
        with sides(dsn, journal, read_side, journal_primary) as where:
            if where.journals and options.subscriptions:
                raise click.UsageError(
                    "--subscriptions match the journal of their own database: run them there"
                )
            if options.processes > 1:
                code = asyncio.run(_supervise(where, context, options, served.address))
            else:
                code = loop_runner().run(_run(where, definitions, discovery, options, served))
    context.exit(code)


def _matching(options: _Options) -> Discovery | None:
    """What matches events with subscriptions, as that package registers it."""
    if not options.subscriptions:
        return None
    (found,) = registered("projections.discoveries", "subscriptions")
    discovery: Discovery = found(options.ranges)
    return discovery


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


async def _supervise(where: Sides, context: click.Context, options: _Options, address: Address | None) -> int:
    # What no process could start with is reported once, and not by each.
    async with connected_read_side(where, options.connections) as database:
        async with database.session() as session:
            await check_version(session)
        if len(where.journals) == 1:  # of several, one may be away
            async with connected_journal(where, options.connections):
                pass
    outcome = await supervise(
        partial(_handed_down, context, address),
        options.processes,
        where,
        forever=not options.until_caught_up,
        grace=options.grace,
        once=["--take-over"] if options.take_over else [],
    )
    return outcome.code or _exit_code(outcome.signal, options)


async def _run(
    where: Sides,
    definitions: Sequence[Any],
    discovery: Discovery | None,
    options: _Options,
    served: _Served,
) -> int:
    stop = asyncio.Event()
    opened: list[Log] = []
    async with connected_read_side(where, options.connections) as database:
        journals = journals_to_open(where, database, options.connections)
        with (
            stopped_by_signals(stop, options.grace, doing="stopping after the current batch") as received,
            _supervisor(stop, received, options) as asked,
        ):
            async with (
                _observed(database, opened, options, served) as observer,
                maintaining(database, options.maintain_every or None),
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
                    discovery=discovery,
                    journal=[_noted(one, opened) for one in journals] or None,
                )
    return 0 if asked.yes else _exit_code(received.number, options)


@asynccontextmanager
async def _observed(
    database: Database, journals: Sequence[Log], options: _Options, served: _Served
) -> AsyncIterator[Observers]:
    """The observer, serving what it observes for the length of the block."""
    observers: list[StatusObserver] = []
    if options.traces:
        from projections.monitoring import Tracing  # noqa: PLC0415 - of an extra

        observers.append(Tracing())
    if served.address is None:
        yield observers
        return
    from projections.monitoring import WorkerMetrics, serve_metrics  # noqa: PLC0415 - of an extra

    metrics = WorkerMetrics()
    async with serve_metrics(database, served.address, workers=metrics, token=served.token, journal=journals):
        yield [metrics, *observers]


def _noted(journal: Database | LogToOpen, opened: list[Log]) -> Database | LogToOpen:
    """The same, which is among those that are opened while it is."""
    if not isinstance(journal, LogToOpen):
        return journal

    @asynccontextmanager
    async def noted() -> AsyncIterator[Log]:
        async with journal.open() as log:
            opened.append(log)
            try:
                yield log
            finally:
                opened.remove(log)

    return LogToOpen(journal.name, noted)


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
