"""Parts of several commands of webhooks: ids of which the beginning is enough, addresses, servers, secrets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Annotated, Any

import click

import offsets
from journal import ConnectionSettings, Database
from projections.http.addresses import Address
from projections.terminal.commands import Arg, Dsn, Opt
from projections.terminal.http_server import serve_until_stopped
from projections.terminal.logs import LogFormat, configure_logs
from projections.terminal.long_running import Pgbouncer
from projections.terminal.options import text_of
from projections.terminal.output import Answer, left_to
from projections.webhooks.addresses import AddressRules
from projections.webhooks.claims import delivers
from projections.webhooks.endpoints import Endpoints
from projections.webhooks.errors import InvalidQuery
from projections.webhooks.fan_out import FAN_OUT
from projections.webhooks.messages import MESSAGE
from projections.webhooks.tenant_rows import TenantRows

EndpointId = Annotated[str, Arg("ENDPOINT")]
OneEndpoint = Annotated[str | None, Opt("For this one alone.", "--endpoint", metavar="ENDPOINT")]


@dataclass(frozen=True, slots=True)
class Addresses:
    """Which addresses are reached."""

    allow_addresses: Annotated[
        tuple[str, ...],
        Opt(
            "Connect to these addresses, too, such as 127.0.0.0/8 for development; may be repeated.",
            "--allow-address", metavar="CIDR|NAME",
        ),
    ] = ()  # fmt: skip
    deny_addresses: Annotated[
        tuple[str, ...],
        Opt(
            "Never connect to these, whatever is allowed; may be repeated.",
            "--deny-address",
            metavar="CIDR|NAME",
        ),
    ] = ()
    only_ports: Annotated[
        tuple[int, ...],
        Opt(
            "Connect to this port only. Default: all but those of mail, databases and the like; may be repeated.",
            "--only-port", type=click.IntRange(1, 65_535), metavar="PORT",
        ),
    ] = ()  # fmt: skip

    @property
    def rules(self) -> AddressRules:
        """The rules that they make; InvalidValue: an entry is neither a network nor a name."""
        return AddressRules(self.allow_addresses, self.deny_addresses, self.only_ports or None)


@dataclass(frozen=True, slots=True)
class Server(Addresses):
    """How a command serves endpoints over HTTP: which URLs it accepts, and how it reaches the database."""

    allow_http: Annotated[bool, Opt("Let endpoints be made whose URL is without TLS, too.")] = False
    max_connections: Annotated[int, Opt("Size of the pool.", type=click.IntRange(1))] = 10
    pgbouncer: Pgbouncer = None
    log_format: LogFormat = "text"
    dsn: Dsn = None

    def run(self, what: str, serving: Callable[[Database], AbstractAsyncContextManager[Address]]) -> None:
        """
        Serve until a signal comes, and end the command.

        Args:
            what: What the log calls the server, and, behind the name of the library, ``pg_stat_activity``.
            serving: Serves for the length of the block, and gives its address.
        """
        configure_logs(self.log_format, "info")
        connections = ConnectionSettings(
            max_connections=self.max_connections,
            pgbouncer=self.pgbouncer,
            application_name=f"slice-projections {what}",
        )
        serve_until_stopped(self.dsn, connections, f"the {what}", serving)


async def whole_id(rows: TenantRows[Any], kind: str, given: str) -> str:
    """
    The id of an endpoint or a schedule, of which the beginning is enough if no other begins so (InvalidValue).

    What no id begins with is returned as it is.
    """
    # Ids that it begins come next after it in the order of lists.
    following = [str(getattr(one, f"{kind}_id")) for one in await rows.list(None, next=given, limit=2)]
    found = [one for one in following if one.startswith(given)]
    if len(found) > 1:
        raise InvalidQuery(f"{given!r} begins several ids: write more of it")
    return found[0] if found else given


async def whole_endpoint_id(database: Database, given: str) -> str:
    """The id of an endpoint, of which the beginning is enough, as for :func:`whole_id`."""
    return await whole_id(Endpoints(database), "endpoint", given)


def secret_of(file: str | None) -> str | None:
    """The secret that a file has, or stdin for ``-``; None without one. It is never taken from the command line."""
    return None if file is None else text_of(file if file == "-" else f"@{file}")


async def left_to_deliverers(database: Database, answer: Answer, *, message: bool = False) -> Answer:
    """An answer, and whether anybody delivers; of a message, also whether anybody makes deliveries of it."""
    async with database.session() as session:
        runs = await delivers(session) and (not message or await offsets.runs(session, f"{FAN_OUT}{MESSAGE}"))
    return left_to(answer, "process that delivers webhooks", runs=runs)
