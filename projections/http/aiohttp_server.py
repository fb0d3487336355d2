"""A server of aiohttp whose connections are held to limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

from projections.extras import from_extra
from projections.http.connection_limits import FULL, ConnectionLimits, OpenConnections, peer_of

with from_extra("webhooks"):
    from aiohttp import web

__all__ = ["LimitedServer"]


class LimitedServer(web.Server):
    """
    Has each request answered, if it arrives in time.

    Args:
        answer: Makes an answer, of a request whose body is here.
        limits: What a connection may cost.
        facts: Of aiohttp.
    """

    def __init__(
        self,
        answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        limits: ConnectionLimits,
        **facts: Any,
    ) -> None:
        super().__init__(self._answered, access_log=None, **facts)
        self._answer = answer
        self._limits = limits
        self._all = OpenConnections(limits)

    def __call__(self) -> web.RequestHandler:
        """Make what handles a connection."""
        return _Limited(self._all, self, loop=asyncio.get_running_loop(), access_log=None)

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, _Limited)  # noqa: S101 - made above
        try:
            connection.wait("body", self._limits.body)
            await request.read()  # which the request keeps
            connection.wait("")
            return await self._answer(request)
        finally:
            connection.wait("head", self._limits.head)


class _Limited(web.RequestHandler):
    """A connection that ends when its client leaves something undone for too long."""

    def __init__(self, open_connections: OpenConnections, *arguments: Any, **facts: Any) -> None:
        super().__init__(*arguments, **facts)
        self.peer = ""
        self.waited_for_since = 0.0
        self.is_answering = False  # answers are a few bytes
        self._all = open_connections
        self._phase = ""
        self._timer: asyncio.TimerHandle | None = None
        self._its: asyncio.Transport | None = None

    @property
    def is_worked_for(self) -> bool:
        return self._phase == ""

    def abort(self) -> None:
        if self._its is not None:
            self._its.abort()

    def wait(self, phase: str, time: timedelta | None = None) -> None:
        """Give the client a time for a part of a request; with neither, what it waits for is ours to do."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._phase, self.waited_for_since = phase, loop.time()
        self._timer = (
            None if time is None or self._its is None else loop.call_later(time.total_seconds(), self.abort)
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        its = cast("asyncio.Transport", transport)  # that of uvloop is no subclass
        self.peer = peer_of(its.get_extra_info("peername"))
        self._phase = "head"
        if not self._all.add(self):
            its.write(FULL)
            its.close()
            return
        self._its = its
        super().connection_made(transport)
        self.wait("head", self._all.limits.head)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._its is None:
            return
        self._its = None
        self._all.remove(self)
        self.wait("")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._its is not None:
            super().data_received(data)
