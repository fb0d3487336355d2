"""``projections webhooks serve``: the HTTP API, until it is stopped."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Annotated

import click

from journal import Database
from projections.http.addresses import Address, parse_address
from projections.http.authentication import read_token, require_token
from projections.terminal.commands import Opt, derived
from projections.terminal.long_running import TokenFile
from projections.webhooks.commands.options import Server
from projections.webhooks.egress import proxy_from_environment
from projections.webhooks.encryption import cipher_from_environment

_OPEN_PATHS = frozenset({"/", "/openapi.json"})
"""What tells no more than what the API can do."""


@click.command()
@derived
def serve(
    *,
    http: Annotated[
        str, Opt("Where to serve. What other machines reach needs a token.", metavar="HOST:PORT")
    ] = "127.0.0.1:8760",
    token_file: TokenFile = None,
    server: Server,
) -> None:
    """
    Serve the HTTP API of webhooks to administrators: endpoints, messages, schedules, deliveries, the log, metrics.

    \b
      projections webhooks serve
      curl http://127.0.0.1:8760/openapi.json        what it can do
      curl 'http://127.0.0.1:8760/v1/endpoints?tenant=acme'

    Callers see all tenants. For an API that tenants use themselves, mount webhooks_app of projections.webhooks.api
    in an application that identifies them.

    On a loopback address, everybody on this machine may use it, unless there is a token; a POST must then have
    `content-type: application/json`, with or without a body, which no page of another site can send. On any other
    address it needs a token of 16 characters or more, sent as `Authorization: Bearer TOKEN`. It does not encrypt: put a
    proxy with TLS in front of it. It only sends challenges to URLs that must be verified, through the proxy in
    PROJECTIONS_WEBHOOK_PROXY if there is one; `projections webhooks deliver` sends everything else, with the same
    allowed addresses and the same key in PROJECTIONS_WEBHOOK_KEYS.

    \b
    Exit codes
      0    stopped by SIGTERM
      1    could not start; the reason is on stderr
      2    the command line itself is wrong
      130  stopped by SIGINT (Ctrl-C)
    """  # noqa: D301 - click reads the escape
    address, token = parse_address(http), read_token(file=token_file)
    require_token(address, token)

    def served(database: Database) -> AbstractAsyncContextManager[Address]:
        from projections.http.serving import serving  # noqa: PLC0415 - its extra may be missing; the help is not
        from projections.webhooks.api import Caller, TokenAuth, webhooks_app  # noqa: PLC0415 - likewise

        async def everybody(_: object) -> Caller:
            return Caller(None)

        app = webhooks_app(
            database,
            everybody if token is None else TokenAuth(admin_token=token),
            cipher=cipher_from_environment(),
            rules=server.rules,
            allow_http=server.allow_http,
            proxy=proxy_from_environment(),
        )
        # Without a token of its own the server lets none but this machine's users in.
        return serving(address, app, None if address.loopback else token, open_paths=_OPEN_PATHS)

    server.run("API of webhooks", served)
