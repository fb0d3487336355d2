"""``projections webhooks serve``: the HTTP API, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Annotated, NamedTuple

import click

from journal import ConnectionSettings, Database
from journal.database import connect
from journal.embedded import database_dsn
from journal.schema import check_version
from projections.http.addresses import Address, parse_address
from projections.http.authentication import read_token, require_token
from projections.terminal.commands import Dsn, Opt, derived
from projections.terminal.logs import LogFormat, configure_logs
from projections.terminal.long_running import Pgbouncer, TokenFile
from projections.terminal.signals import stopped_by_signals
from projections.webhooks.addresses import AddressRules
from projections.webhooks.commands.options import Addresses
from projections.webhooks.encryption import cipher_from_environment

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["serve"]

log = logging.getLogger("projections")

_OPEN_PATHS = frozenset({"/", "/openapi.json"})
"""What tells no more than what the API can do."""


class _Options(NamedTuple):
    address: Address
    token: str | None
    rules: AddressRules
    allow_http: bool
    connections: ConnectionSettings


@click.command()
@derived
def serve(
    *,
    http: Annotated[
        str, Opt("Where to serve. What other machines reach needs a token.", metavar="HOST:PORT")
    ] = "127.0.0.1:8760",
    token_file: TokenFile = None,
    allow_http: Annotated[bool, Opt("Let endpoints be made whose URL is without TLS, too.")] = False,
    addresses: Addresses,
    max_connections: Annotated[int, Opt("Size of the pool.", type=click.IntRange(1))] = 10,
    pgbouncer: Pgbouncer = None,
    log_format: LogFormat = "text",
    dsn: Dsn = None,
) -> None:
    """
    Serve the HTTP API of webhooks to administrators: endpoints, messages, schedules, deliveries, the log, metrics.

    \b
      projections webhooks serve
      curl http://127.0.0.1:8760/openapi.json        what it can do
      curl 'http://127.0.0.1:8760/v1/endpoints?tenant=acme'

    Who asks sees all tenants. For an API that tenants use themselves, mount webhooks_app of projections.webhooks.api
    in an application that knows them.

    On a loopback address everybody on this machine may use it, unless there is a token; a POST has `content-type:
    application/json` then, with a body or without one, which no page of another site can send. Anywhere else it needs
    a token, sent as `Authorization: Bearer TOKEN`, of 16 characters or more. It does not encrypt: put a proxy with TLS
    before it. It sends challenges to URLs that are to be verified; all else is sent by `projections webhooks deliver`,
    with the same addresses allowed, and the same key in PROJECTIONS_WEBHOOK_KEYS.

    \b
    Exit codes
      0    stopped by SIGTERM
      1    could not start; the reason is on stderr
      2    the command line itself is wrong
      130  stopped by SIGINT (Ctrl-C)
    """  # noqa: D301 - click reads the escape
    configure_logs(log_format, "info")
    connections = ConnectionSettings(
        max_connections=max_connections, pgbouncer=pgbouncer, application_name="slice-projections webhooks"
    )
    token = read_token(file=token_file)
    options = _Options(parse_address(http), token, addresses.rules, allow_http, connections)
    require_token(options.address, options.token)
    with database_dsn(dsn) as database:
        code = asyncio.run(_run(database, options))
    raise click.exceptions.Exit(code)


async def _run(dsn: str, options: _Options) -> int:
    from projections.http.serving import serving  # noqa: PLC0415 - its extra may be missing; the help is not

    stop = asyncio.Event()
    async with connect(dsn, options.connections) as database:
        async with database.session() as session:
            await check_version(session)
        app = _app(database, options)
        # Without a token of its own the server lets none but this machine's users in.
        token = None if options.address.loopback else options.token
        with stopped_by_signals(stop) as received:
            async with serving(options.address, app, token, open_paths=_OPEN_PATHS) as address:
                log.info(
                    "the API is at http://%s", address, extra={"action": "serving", "address": str(address)}
                )
                await stop.wait()
    return received.exit_code


def _app(database: Database, options: _Options) -> Starlette:
    from projections.webhooks.api import Caller, TokenAuth, webhooks_app  # noqa: PLC0415 - likewise

    async def everybody(_: object) -> Caller:
        return Caller(None)

    return webhooks_app(
        database,
        everybody if options.token is None else TokenAuth(admin_token=options.token),
        cipher=cipher_from_environment(),
        rules=options.rules,
        allow_http=options.allow_http,
    )
