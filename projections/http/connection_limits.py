"""
Limits of connections, for everything that this package serves over HTTP, before anybody asks who they are.

Nothing that a client leaves undone lasts: its request has a time to arrive, and an answer a time to be taken. And where
as many connections are open as there may be, a new one takes the place of one that nobody works for: who holds many
open keeps neither probes nor anybody else out.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address, ip_network
from typing import Any

from projections.extras import from_extra

with from_extra("monitor"):
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

log = logging.getLogger("projections")

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)
"""What a connection is answered for which there is no place."""

_SAID_EVERY = 60.0
_IPV6_NETWORK = 64
"""Bits of an address that tell one peer from another: the others are the peer's own to choose."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """
    What a connection may cost.

    Args:
        total: How many may be open; at most a quarter of the files that the process may open.
        per_peer: How many of one address, or of one IPv6 network of 64 bits; at most half of the total.
        head: For a request's line and headers to arrive, from the connection's beginning or their first byte.
        body: For the rest of the request, whether or not it is answered by then.
        idle: From an answer to the next request on the same connection.
        taking: For a client that is behind with its answer to take some of it.
    """

    total: int = 400
    per_peer: int = 200
    head: timedelta = timedelta(seconds=10)
    body: timedelta = timedelta(seconds=30)
    idle: timedelta = timedelta(seconds=5)
    taking: timedelta = timedelta(seconds=30)


class OpenConnections:
    """Those of a server that are open, within limits of how many there may be."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._total = min(limits.total, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        self._per_peer = min(limits.per_peer, max(self._total // 2, 1))
        self._of: dict[str, dict[LimitedProtocol, None]] = {}
        self._said_at = -_SAID_EVERY

    def add(self, one: LimitedProtocol) -> bool:
        """Whether there is a place; who takes most places makes room."""
        mine = self._of.get(one.peer, {})
        if len(mine) >= self._per_peer:
            there_is = self._make_room(mine)
        elif sum(map(len, self._of.values())) >= self._total:
            there_is = self._make_room(max(self._of.values(), key=len))
        else:
            there_is = True
        if there_is:
            self._of.setdefault(one.peer, {})[one] = None
        return there_is

    def remove(self, one: LimitedProtocol) -> None:
        """Give its place back; again is not an error."""
        mine = self._of.get(one.peer, {})
        mine.pop(one, None)
        if not mine:
            self._of.pop(one.peer, None)

    def _make_room(self, among: Collection[LimitedProtocol]) -> bool:
        """End the one that is waited for longest; if there is none, the oldest answer that is being sent."""
        idle = [one for one in among if not one.is_worked_for]
        self._say(next(iter(among)).peer, len(among))
        if not idle:
            return False
        oldest = min(idle, key=lambda one: (one.is_answering, one.waited_for_since))
        self.remove(oldest)
        oldest.abort()
        return True

    def _say(self, peer: str, many: int) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._said_at + _SAID_EVERY:
            self._said_at = now
            log.warning(
                "%d connections of %s are open, as many as there may be: the oldest make room for new ones",
                many, peer, extra={"action": "connections_full", "peer": peer},
            )  # fmt: skip


def peer_of(name: Any) -> str:
    """Who is counted together."""
    if not name:
        return ""
    address = ip_address(str(name[0]).partition("%")[0])
    if address.version == 4:  # noqa: PLR2004 - IP's version
        return str(address)
    return str(address.ipv4_mapped or ip_network((address, _IPV6_NETWORK), strict=False))


class LimitedProtocol(H11Protocol):
    """A connection that ends when its client leaves something undone for too long."""

    def __init__(self, open_connections: OpenConnections, **facts: Any) -> None:
        super().__init__(**facts)
        self.peer = ""
        self.waited_for_since = self.loop.time()
        self._all = open_connections
        self._limits = open_connections.limits
        self._refused = False
        self._behind = False
        self._phase: tuple[str, object] = ("", None)
        self._request_timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None

    @property
    def is_worked_for(self) -> bool:
        """Whether an answer is being made: its request is here, and nothing of it has been sent."""
        return self._name_of_phase() == "" and not self.is_answering and not self.transport.is_closing()

    @property
    def is_answering(self) -> bool:
        """Whether an answer has begun, and has not ended."""
        cycle = self._cycle
        return cycle is not None and cycle.response_started and not cycle.response_complete

    @property
    def _cycle(self) -> RequestResponseCycle | None:
        """The newest request; uvicorn has it as one that is always there."""
        return self.cycle

    def abort(self) -> None:
        """End it at once."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place, or say that there is none."""
        self.transport = transport
        self.peer = peer_of(transport.get_extra_info("peername"))
        if not self._all.add(self):
            self._refused = True
            self.transport.write(_FULL)
            self.transport.close()
            return
        super().connection_made(transport)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._all.remove(self)
        self._request_timer = _restarted(self._request_timer)
        self._answer_timer = _restarted(self._answer_timer)
        if not self._refused:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read some of a request."""
        if not self._refused:
            super().data_received(data)
            self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """The client is behind with its answer."""
        super().pause_writing()
        self._behind = True
        self._look()

    def resume_writing(self) -> None:
        """It has taken some."""
        super().resume_writing()
        self._behind = False
        self._look()

    def _look(self) -> None:
        """Start the clock for what the client is to do, unless it runs for the same already."""
        late = self._behind or self.transport.is_closing()
        if late != (self._answer_timer is not None):
            self._answer_timer = _restarted(
                self._answer_timer, self._abort_after(self._limits.taking) if late else None
            )
        phase = self._name_of_phase(), self.cycle
        if phase == self._phase:
            return
        self._phase, self.waited_for_since = phase, self.loop.time()
        limit = {
            "head": self._limits.head,
            "body": self._limits.body,
            # uvicorn closes it after the first of these; the second is for what it has not taken by then.
            "idle": self._limits.idle + self._limits.taking,
        }.get(phase[0])
        self._request_timer = _restarted(self._request_timer, self._abort_after(limit))

    def _name_of_phase(self) -> str:
        """What of a request is waited for; nothing: an answer is."""
        if self.conn.their_state is h11.SEND_BODY:
            return "body"
        if self.conn.their_state is not h11.IDLE:
            return ""
        return "head" if self._cycle is None or self.conn.trailing_data[0] else "idle"

    def _abort_after(self, time: timedelta | None) -> asyncio.TimerHandle | None:
        return None if time is None else self.loop.call_later(time.total_seconds(), self.transport.abort)


def _restarted(
    timer: asyncio.TimerHandle | None, another: asyncio.TimerHandle | None = None
) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return another
