"""``projections run``: projections in one process, until they are stopped."""

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
from journal.schema import check_version
from projections.cli.logs import LogFormat, configure_logs
from projections.cli.options import dsn_option
from projections.cli.signals import stopped_by_signals
from projections.cli.targets import load_projections
from projections.handlers import AtLeastOnce, Projection, projection_of
from projections.process import SPARE_CONNECTIONS
from projections.runner import run as run_projections
from projections.settings import RunSettings

__all__ = ["run"]

log = logging.getLogger("projections")

_INTERRUPTED = 130  # what a shell shows for a command that Ctrl-C ended
_SIGNAL_BASE = 128
_RANGES = """
SELECT p.name, count(*) AS ranges FROM projections.projections AS p
JOIN projections.projection_ranges AS r ON p.projection_id = r.projection_id
WHERE p.name = ANY($1) GROUP BY p.name
"""


@dataclass(frozen=True, slots=True)
class _Options:
    ranges: int | None
    driver: Literal["asyncpg", "psycopg"]
    max_connections: int | None
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
    help="Cut the slices of each projection into so many ranges. Default: as before.",
)
@click.option(
    "--until-caught-up", is_flag=True, help="End when all that was appended before the start is handled."
)
@click.option(
    "--take-over", is_flag=True, help="Take ranges that another process holds, without waiting for its lease."
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
    "--max-connections", type=click.IntRange(1), help="Size of the pool. Default: what the ranges need."
)
@click.option(
    "--pgbouncer", is_flag=True, help="Behind PgBouncer in transaction mode: poll only, nothing prepared."
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.pass_context
def run(  # noqa: PLR0917 - click passes all by name
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
    Run projections in this process.

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
    size = options.max_connections or await _connections_needed(dsn, definitions, options)
    settings = ConnectionSettings(driver=options.driver, max_connections=size, pgbouncer=options.pgbouncer)
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


async def _connections_needed(dsn: str, definitions: Sequence[Any], options: _Options) -> int:
    """What the ranges hold, and some for heartbeats, polls and claims, which must not wait for a range to end."""
    projections = [projection_of(definition) for definition in definitions]
    settings = ConnectionSettings(driver=options.driver, max_connections=1, pgbouncer=options.pgbouncer)
    async with connect(dsn, settings) as database, database.session() as session:
        await check_version(session)
        rows = await session.fetch(_RANGES, [projection.name for projection in projections])
    before = {row["name"]: int(row["ranges"]) for row in rows}
    held = sum((options.ranges or before.get(p.name, 1)) * _held_by_range(p) for p in projections)
    return held + 2 * len(projections) + 2 + SPARE_CONNECTIONS


def _held_by_range(projection: Projection) -> int:
    delivery = projection.delivery
    return 1 + delivery.concurrency if isinstance(delivery, AtLeastOnce) else 1
