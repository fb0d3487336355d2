"""
How the sender connects: names looked up in threads of its own, every address judged when its socket is made.

The guard sits where a socket is made for one concrete address. Nothing reaches the network past it: neither an address
written in the URL, which no resolver sees, nor a name that means something else at its second lookup.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from cachetools import TTLCache

from projections.extras import from_extra
from projections.webhooks.addresses import AddressRules
from projections.webhooks.incoming import BoundedHandler

with from_extra("webhooks"):
    from aiohttp import TCPConnector
    from aiohttp.abc import AbstractResolver, ResolveResult

if TYPE_CHECKING:
    from aiohttp.connector import Connection

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Look a name up: its addresses, the preferred ones first. Raises OSError where there are none."""

AddressInfo = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]

_LOOKUPS = 64
_SLOW_LOOKUPS = 16
_SLOW = timedelta(seconds=1)
_REMEMBERED = timedelta(minutes=10)
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
    """

    host: str
    refused: bool = False
    tried: bool = False
    reused: bool = False


# What makes the socket is told the address alone; it runs in the context of the attempt that waits for it.
_DIAL: ContextVar[Dial | None] = ContextVar("projections.webhooks.dial", default=None)


@contextmanager
def dialling(host: str) -> Iterator[Dial]:
    """For the length of the block, whatever is dialled is dialled for this host."""
    dial = Dial(host)
    token = _DIAL.set(dial)
    try:
        yield dial
    finally:
        _DIAL.reset(token)


def current_dial() -> Dial | None:
    """Give the attempt that dials in this context."""
    return _DIAL.get()


class Connector(TCPConnector):
    """
    Keeps connections, and takes none on which something came while nothing was asked.

    Servers say 408 before they close an idle connection: it would be taken for the answer to the next request.

    Args:
        most: So many bytes of an answer are read after its headers.
        options: Of aiohttp.
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
        return _open_socket(family, kind, protocol)

    return make


def _open_socket(family: int, kind: int, protocol: int) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # A closed connection waits for its unsent bytes: for ever, where the other side reads nothing.
        unheard = int(_UNHEARD / timedelta(milliseconds=1))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unheard)
    return made


class SystemLookup:
    """
    The system's resolver, in threads of its own: a name whose servers are silent holds a thread for half a minute.

    So a name that was slow is looked up in a few threads apart, for some minutes: it holds up others of its kind alone.

    Args:
        threads: How many lookups run at once.
        slow_threads: How many of names that were slow.
        slow: What takes longer is slow.
    """

    def __init__(
        self, threads: int = _LOOKUPS, slow_threads: int = _SLOW_LOOKUPS, slow: timedelta = _SLOW
    ) -> None:
        self._slow = slow.total_seconds()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="webhook-lookup")
        self._apart = ThreadPoolExecutor(slow_threads, thread_name_prefix="webhook-slow-lookup")
        self._were_slow: TTLCache[str, bool] = TTLCache(10_000, _REMEMBERED.total_seconds())
        self._lock = Lock()

    async def __call__(self, host: str) -> Sequence[str]:
        """Give the addresses of a host."""
        with self._lock:
            threads = self._apart if host in self._were_slow else self._threads
        return await asyncio.get_running_loop().run_in_executor(threads, self._look_up, host)

    def _look_up(self, host: str) -> Sequence[str]:
        began = time.monotonic()
        try:
            return _addresses(host)
        finally:
            if time.monotonic() - began > self._slow:
                with self._lock:
                    self._were_slow[host] = True

    def close(self) -> None:
        """Let go of the threads; what runs is not waited for."""
        for threads in (self._threads, self._apart):
            threads.shutdown(wait=False, cancel_futures=True)


def _addresses(host: str) -> Sequence[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except UnicodeError as error:  # a label too long for IDNA
        raise OSError(errno.EINVAL, "the name can not be looked up") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Lookup(AbstractResolver):
    """
    A resolver as aiohttp wants it.

    Args:
        resolve: Looks a name up.
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002
    ) -> list[ResolveResult]:
        """Look a host up; the family is left to what its addresses are."""
        addresses = await self._resolve(host)
        if not addresses:
            raise OSError(errno.EADDRNOTAVAIL, "the name has no address")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""
