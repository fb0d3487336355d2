"""
How the sender connects: every address is judged when its socket is made, or its tunnel asked for.

The guard sits where a socket is made for one concrete address. Nothing reaches the network past it: neither an address
written in the URL, which no resolver sees, nor a name that means something else at its second lookup.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from projections.extras import from_extra
from projections.webhooks.addresses import AddressRules
from projections.webhooks.egress import EgressProxy, TunnelRefusedError
from projections.webhooks.response_reading import BoundedHandler

with from_extra("webhooks"):
    from aiohttp import ClientConnectorSSLError, TCPConnector
    from aiohttp.abc import AbstractResolver, ResolveResult

if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientTimeout
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection

AddressInfo = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]

_UNHEARD = timedelta(seconds=60)


@dataclass(slots=True)
class Dial:
    """
    What the guard and the pool of connections saw of one attempt.

    Args:
        host: The host of its URL.
        refused: An address was not allowed.
        tried: A socket was made for one that is.
        reused: The connection had served another attempt.
        lacked: This process could not make a socket.
        addresses: What its name was looked up to.
    """

    host: str
    refused: bool = False
    tried: bool = False
    reused: bool = False
    lacked: Exception | None = None
    addresses: Sequence[str] = ()


# What makes the socket gets the address alone; it runs in the context of the attempt that waits for it.
_DIAL: ContextVar[Dial | None] = ContextVar("projections.webhooks.dial", default=None)


@contextmanager
def dialling(dial: Dial) -> Iterator[None]:
    """For the length of the block, whatever is dialled is dialled for this attempt."""
    token = _DIAL.set(dial)
    try:
        yield
    finally:
        _DIAL.reset(token)


def current_dial() -> Dial | None:
    """Give the attempt that dials in this context."""
    return _DIAL.get()


class Connector(TCPConnector):
    """
    Keeps connections, and takes none on which something came while nothing was asked.

    Servers say 408 before they close an idle connection: it would be taken for the answer to the next request.
    """

    def __init__(self, most: int, rules: AddressRules, proxy: EgressProxy | None, **options: Any) -> None:
        super().__init__(socket_factory=guarded_sockets(rules), **options)
        self._rules, self._proxy = rules, proxy
        self._factory = partial(BoundedHandler, self._loop, most)  # type: ignore[assignment]  # one of its kind

    async def connect(self, *args: Any, **options: Any) -> Connection:
        """Give a connection that is kept, or a new one."""
        while True:
            connection = await super().connect(*args, **options)
            dial, protocol = _DIAL.get(), connection.protocol
            if dial is None or not dial.reused or protocol is None or not protocol.should_close:
                return connection
            connection.close()
            dial.reused = False

    async def _wrap_create_connection(
        self,
        *args: Any,
        addr_infos: list[AddressInfo],
        timeout: ClientTimeout,  # noqa: ASYNC109 - it is aiohttp's
        req: ClientRequest,
        **options: Any,
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        """Connect to one of the addresses: through the proxy, where there is one."""
        if self._proxy is None:
            return await super()._wrap_create_connection(
                *args, addr_infos=addr_infos, timeout=timeout, req=req, **options
            )
        handed = {name: options[name] for name in ("ssl", "server_hostname") if name in options}
        try:
            async with asyncio.timeout(timeout.sock_connect):
                tunnel = await self._tunnelled(self._proxy, addr_infos, timeout.sock_connect)
                try:
                    return await self._loop.create_connection(*args, **handed, sock=tunnel)
                except BaseException:
                    tunnel.close()
                    raise
        except ssl.SSLError as error:
            raise ClientConnectorSSLError(req.connection_key, error) from error

    async def _tunnelled(
        self, proxy: EgressProxy, addr_infos: list[AddressInfo], patience: float | None
    ) -> socket.socket:
        """A tunnel to the first address that is allowed, and that there is a way to."""
        failure: OSError = OSError(errno.EACCES, "the address is not allowed")
        for _, _, _, _, (address, port, *_) in addr_infos:
            try:
                judge_address(self._rules, address, port)
                return await proxy.tunnel(address, port, _open_socket, patience)
            except TunnelRefusedError:
                if (dial := _DIAL.get()) is not None:
                    dial.refused, dial.tried = True, False
            except TimeoutError:
                raise
            except OSError as error:
                failure = error
        raise failure


def judge_address(rules: AddressRules, address: str, port: int) -> None:
    """Refuse an address that the rules do not allow (OSError), and note for the attempt that dials what was found."""
    dial = _DIAL.get()
    host = dial.host if dial else None
    if not rules.allows_port(port) or not rules.allows(address, host=host):
        if dial:
            dial.refused = True
        raise OSError(errno.EACCES, "the address is not allowed")
    if dial:
        dial.tried = True


def guarded_sockets(rules: AddressRules) -> Callable[[AddressInfo], socket.socket]:
    """
    Give what makes a socket for an address, and refuses where the rules do.

    A refused address is never tried, so what listens there makes no difference in code or in time.
    """

    def make(info: AddressInfo) -> socket.socket:
        family, kind, protocol, _, (address, port, *_) = info
        judge_address(rules, address, port)
        dial = _DIAL.get()
        try:
            return _open_socket(family, kind, protocol)
        except (OSError, MemoryError) as error:
            if dial:
                dial.lacked = error
            raise

    return make


def _open_socket(family: int, kind: int, protocol: int) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # A closed connection waits for its unsent bytes: without limit, where the other side reads nothing.
        unheard = int(_UNHEARD / timedelta(milliseconds=1))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unheard)
    return made


class LookedUp(AbstractResolver):
    """A resolver as aiohttp wants it, which gives what was looked up for the attempt that connects."""

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002
    ) -> list[ResolveResult]:
        """Give the addresses; the family is left to what they are."""
        dial = _DIAL.get()
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in (dial.addresses if dial else ())
        ]

    async def close(self) -> None:
        """Nothing is held."""
