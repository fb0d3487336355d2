"""A connection of uvicorn that is held to limits."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from projections.extras import from_extra
from projections.http.connection_limits import FULL, OpenConnections, peer_of

with from_extra("monitor"):
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

__all__ = ["LimitedProtocol"]


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
            self.transport.write(FULL)
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
