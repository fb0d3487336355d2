"""Serving an ASGI application in the running event loop, within limits, to those who may ask."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, cast

from journal import ProjectionsError
from journal.tasks import running
from projections.extras import from_extra
from projections.http.addresses import Address
from projections.http.asgi import ASGIApp
from projections.http.authentication import Authentication
from projections.http.connection_limits import ConnectionLimits, LimitedProtocol, OpenConnections

with from_extra("monitor"):
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

PROBES = frozenset({"/livez", "/readyz"})
"""What probes ask without a token: they get whether, and without it nothing more."""

_GRACE = 1  # seconds that open answers have when the server ends
_ACCEPTED_AT_ONCE = 64  # connections, before those beyond the limit have made room
_ACCEPTED_WITHOUT_LIMITS = 1024


class AddressInUse(ProjectionsError, OSError):
    """Nothing can listen at an address; the message says why."""


@asynccontextmanager
async def serving(
    address: Address,
    app: ASGIApp,
    token: str | None = None,
    *,
    open_paths: Collection[str] = PROBES,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 - frozen
) -> AsyncIterator[Address]:
    """
    Serve an application in the running event loop for the length of the block; its value is where it listens.

    Signals are left alone. Port 0 takes any that is free; requests that may not be answered do not reach the
    application; ``open_paths`` need no token. Raises TokenMissing for an address that others reach, without a token,
    and AddressInUse where nothing can listen there.
    """
    async with listening(address, Authentication(app, address, token, open_paths), limits) as place:
        yield place


@asynccontextmanager
async def listening(
    address: Address, app: ASGIApp, limits: ConnectionLimits | None
) -> AsyncIterator[Address]:
    """Serve to everybody, as :func:`serving` does to those who may ask; without limits, whatever they do."""
    listener = await _listen(address)
    protocol: Any = H11Protocol if limits is None else partial(LimitedProtocol, OpenConnections(limits))
    idle = (limits or ConnectionLimits()).idle.total_seconds()
    server = _Server(
        uvicorn.Config(
            app, interface="asgi3", loop="none", http=protocol, ws="none", lifespan="on", log_config=None,
            log_level="warning", access_log=False, server_header=False, proxy_headers=False,
            timeout_graceful_shutdown=_GRACE, timeout_keep_alive=cast("int", idle),
            backlog=_ACCEPTED_AT_ONCE if limits else _ACCEPTED_WITHOUT_LIMITS,
        )
    )  # fmt: skip
    task = asyncio.create_task(server.serve([listener]))
    try:
        await server.listening(task)
        yield Address(address.host, listener.getsockname()[1])
    finally:
        server.should_exit = True
        try:
            await task
        finally:
            listener.close()  # which a server that did not start leaves open


class _Server(uvicorn.Server):
    """A server among other work of a process."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._listening = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """What a signal means is the process's business."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, or raise: the exit that uvicorn asks for would end the process."""
        with suppress(SystemExit):
            await super().startup(sockets)
        if not self.started:
            raise RuntimeError("the application did not start; the log says why")
        self._listening.set()

    async def listening(self, task: asyncio.Task[None]) -> None:
        """Wait until requests are answered, or the server's task has failed."""
        async with running(self._listening.wait()) as waiting:
            await asyncio.wait([*waiting, task], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()


async def _listen(address: Address) -> socket.socket:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # Of a name with both, the older one: every client tries it.
        family, *_, place = min(found, key=lambda one: one[0] is not socket.AF_INET)
        return socket.create_server(place[:2], family=family)
    except OSError as error:
        raise AddressInUse(f"nothing can listen at {address}: {error.strerror or error}") from error
