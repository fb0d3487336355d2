"""``projections worker``: projections in one process, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import click

from journal import NUMBER_OF_SLICES, ConnectionSettings, ProjectionsError
from journal.drivers import connect, hide_password
from journal.embedded import database_dsn
from projections.cli.logs import LogFormat, configure_logs
from projections.cli.options import dsn_option
from projections.cli.signals import stopped_by_signals
from projections.cli.targets import load_projections
from projections.process import OTHER_CONNECTIONS
from projections.runner import run as run_projections
from projections.settings import RunSettings

__all__ = ["worker"]

log = logging.getLogger("projections")

_INTERRUPTED = 130  # what a shell shows for a command that Ctrl-C ended
_SIGNAL_BASE = 128


@dataclass(frozen=True, slots=True)
class _Options:
    ranges: int
    driver: Literal["asyncpg", "psycopg"]
    max_connections: int
    pgbouncer: bool
    until_caught_up: bool
    take_over: bool
    settings: RunSettings


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="MODULE[:OBJECT]...")
@dsn_option
@click.option(
    "--ranges",
    type=click.IntRange(1, NUMBER_OF_SLICES),
    default=8,
    show_default=True,
    help="Cut the slices of a projection that has never run into so many ranges; `projections rescale` cuts others.",
)
@click.option(
    "--until-caught-up", is_flag=True, help="End when all that was appended before the start is handled."
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Begin with what other workers hold, without waiting for their leases to end.",
)
@click.option(
    "--backtracking",
    type=click.Choice(["writer-lock", "interval"]),
    default="writer-lock",
    show_default=True,
    help="How late commits are caught: writer-lock loses none and needs the primary.",
)
@click.option("--driver", type=click.Choice(["asyncpg", "psycopg"]), default="asyncpg", show_default=True)
@click.option(
    "--max-connections",
    type=click.IntRange(OTHER_CONNECTIONS + 1),
    default=20,
    show_default=True,
    help="Size of the pool. With fewer than ranges + 3, ranges take turns.",
)
@click.option(
    "--pgbouncer", is_flag=True, help="Behind PgBouncer in transaction mode: poll only, nothing prepared."
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
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
    log_format: LogFormat,
    log_level: str,
    pgbouncer: bool,
    **options: Any,
) -> None:
    """
    Run projections in this process, together with all other workers on the same database.

    The slice ranges of each projection spread over the workers by themselves, and move when one comes, goes or dies.

    MODULE:OBJECT is a class decorated with @projection; MODULE alone, all of them in it. The current directory
    is searched first. Logs go to stderr.

    SIGINT or SIGTERM stops: the batches at hand are finished and the ranges given back. A second one ends the
    process at once; nothing is lost, and the ranges are free when their lease ends.

    A database that goes away is waited for.

    \b
    Exit codes
      0    caught up (--until-caught-up), or stopped by SIGTERM
      1    could not start, or a fault that starting again does not heal; the reason is on stderr
      2    the command line itself is wrong
      130  stopped by SIGINT (Ctrl-C)
      143  stopped by SIGTERM before --until-caught-up was reached
    """  # noqa: D301 - click reads the escape
    configure_logs(log_format, log_level)
    settings = RunSettings(backtracking=backtracking, listen=not pgbouncer)
    try:
        definitions = load_projections(targets)
        with database_dsn(dsn) as database:
            chosen = _Options(**options, pgbouncer=pgbouncer, settings=settings)
            code = _runner().run(_run(database, definitions, chosen))
    except KeyboardInterrupt:  # before the projections have started
        code = _INTERRUPTED
    except ProjectionsError as error:
        if log_format == "text":
            raise
        # Whoever reads the log as JSON finds the reason there.
        log.critical(
            "%s", hide_password(str(error)), extra={"action": "ended", "error": type(error).__name__}
        )
        code = 1
    context.exit(code)


def _runner() -> asyncio.Runner:
    """With the faster event loop, where it is installed."""
    with suppress(ModuleNotFoundError):
        return asyncio.Runner(loop_factory=import_module("uvloop").new_event_loop)
    return asyncio.Runner()


async def _run(dsn: str, definitions: Sequence[Any], options: _Options) -> int:
    stop = asyncio.Event()
    settings = ConnectionSettings(
        driver=options.driver, max_connections=options.max_connections, pgbouncer=options.pgbouncer
    )
    async with connect(dsn, settings) as database:
        with stopped_by_signals(stop) as received:
            await run_projections(
                database,
                *definitions,
                ranges=options.ranges,
                settings=options.settings,
                stop=stop,
                until_caught_up=options.until_caught_up,
                take_over=options.take_over,
            )
    if received.number is None:
        log.info("caught up", extra={"action": "caught_up"})
        return 0
    graceful = received.number.name == "SIGTERM" and not options.until_caught_up
    return 0 if graceful else _SIGNAL_BASE + received.number
