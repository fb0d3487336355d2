"""``projections monitor``: a web page of every slice's lag, until it is stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

import click

from journal import ConnectionSettings, Database
from projections.durations import Duration
from projections.http.addresses import Address, parse_address
from projections.http.authentication import read_token, require_token
from projections.terminal.commands import Dsn, Journal, JournalPrimary, Opt, ReadSide, derived
from projections.terminal.connection import connected_journals, sides
from projections.terminal.http_server import serve_until_stopped
from projections.terminal.logs import LogFormat, configure_logs
from projections.terminal.long_running import TokenFile

_CONNECTIONS = ConnectionSettings(max_connections=5, application_name="slice-projections monitor")


_Origin = Opt(
    "Where a proxy shows the page, such as https://monitor.example.com: its buttons work from there, too.",
    "--origin", metavar="URL",
)  # fmt: skip


@click.command()
@derived
def monitor(
    *,
    http: Annotated[
        str, Opt("Where to serve. What other machines reach needs a token.", metavar="HOST:PORT")
    ] = "127.0.0.1:8750",
    every: Annotated[
        timedelta, Opt("How often to look: 500ms, 1s, 5s.", type=Duration(least="100ms"))
    ] = timedelta(seconds=1),
    token_file: TokenFile = None,
    origins: Annotated[tuple[str, ...], _Origin] = (),
    log_format: LogFormat = "text",
    dsn: Dsn = None,
    read_side: ReadSide = None,
    journal: Journal = None,
    journal_primary: JournalPrimary = None,
) -> None:
    """
    Serve a page that shows the lag of every slice, live, and lets you act.

    It lists all projections, those with trouble first, and has a page for each: its 1,024 slices by lag, what holds it
    back, the ranges and who holds them, throughput, and parked events with their errors. It shows workers, and
    what holds the horizon back; of groups of consumers how far they are, their dead letters, and
    conditions that were stopped; of endpoints of webhooks their success rate, latency and dead letters. Its buttons
    pause, resume and rescale projections, retry or drop parked events, rescale groups, retry or drop dead letters,
    release conditions, and pause, resume or enable endpoints. It asks the database alone:
    workers need not run, and need not be reached.

    Reading needs the role projections_reader, the buttons projections_worker. Many may watch: the database is asked
    once for all of them, and every 10 seconds while nobody does.

    \b
    Also served, for machines
      /metrics   for Prometheus
      /livez     200 while the monitor works
      /readyz    200 while the database answers
      /lagz      503 when a range lags, of projections or groups: /lagz?above=30s&for=5m

    On a loopback address everybody on this machine may use it. Anywhere else it asks for a token, which browsers ask
    their user for as a password (with any user name) and others send as `Authorization: Bearer TOKEN`. It does not
    encrypt: put a proxy with TLS before it, or reach it through a tunnel:

    \b
      ssh -L 8750:127.0.0.1:8750 the-machine

    \b
    Exit codes
      0    stopped by SIGTERM
      1    could not start; the reason is on stderr
      2    the command line itself is wrong
      130  stopped by SIGINT (Ctrl-C)
    """  # noqa: D301 - click reads the escape
    configure_logs(log_format, "info")
    address, token, origins = parse_address(http), read_token(file=token_file), _checked(origins)
    require_token(address, token)

    @asynccontextmanager
    async def served(database: Database) -> AsyncIterator[Address]:
        from projections.http.serving import serving  # noqa: PLC0415 - its extra may be missing; the help is not
        from projections.monitoring.web.app import monitor_app  # noqa: PLC0415 - likewise
        from projections.monitoring.web.feed import Feed  # noqa: PLC0415 - likewise

        async with connected_journals(found) as read:
            feed = Feed(database, every, journal=read)
            app = monitor_app(database, feed, origins=origins, journal=read)
            async with serving(address, app, token) as where:
                yield where
                feed.close()  # streams end, instead of being waited for

    with sides(dsn, journal, read_side, journal_primary) as found:
        serve_until_stopped(found.read_side, _CONNECTIONS, "the monitor", served)


def _checked(origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path.strip("/"):
            raise click.BadParameter(
                f"{origin!r} is not an origin: write https://monitor.example.com, without a path",
                param_hint="--origin",
            )
    return origins
