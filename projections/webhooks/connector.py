"""
How the sender connects: every address is judged when its socket is made.

The guard sits where a socket is made for one concrete address. Nothing reaches the network past it: neither an address
written in the URL, which no resolver sees, nor a name that means something else at its second lookup.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from projections.extras import from_extra
from projections.webhooks.addresses import AddressRules
from projections.webhooks.response_reading import BoundedHandler

with from_extra("webhooks"):
    from aiohttp import TCPConnector
    from aiohttp.abc import AbstractResolver, ResolveResult

if TYPE_CHECKING:
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

    def __init__(self, most: int, **options: Any) -> None:
        super().__init__(**options)
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


def guarded_sockets(rules: AddressRules) -> Callable[[AddressInfo], socket.socket]:
    """
    Give what makes a socket for an address, and refuses where the rules do.

    A refused address is never tried, so what listens there makes no difference in code or in time.
    """

    def make(info: AddressInfo) -> socket.socket:
        family, kind, protocol, _, (address, port, *_) = info
        dial = _DIAL.get()
        host = dial.host if dial else None
        if not rules.allows_port(port) or not rules.allows(address, host=host):
            if dial:
                dial.refused = True
            raise OSError(errno.EACCES, "the address is not allowed")
        if dial:
            dial.tried = True
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
