"""
How much of an answer is read: bytes, lines, reads and interim answers are counted before they are parsed.

A deadline alone bounds nothing: what a receiver can send in its seconds, this process would be busy with instead of
other requests.
"""

from __future__ import annotations

from typing import Any

from projections.extras import from_extra

with from_extra("webhooks"):
    from aiohttp import ClientPayloadError, StreamReader
    from aiohttp.client_proto import ResponseHandler

__all__ = ["FRAMING", "BoundedHandler", "TooMuchError"]

FRAMING = 65_536
"""Bytes that may come around the body of an answer; and before it, with all interim answers."""

_MOST_INTERIM = 16
_LINE = 64
_READ = 256
_PIECE = 2048


class TooMuchError(Exception):
    """
    A receiver sent more than is read of an answer.

    Args:
        rest: What came of the body, and was not read yet.
    """

    def __init__(self, rest: bytes = b"") -> None:
        super().__init__("more than is read of an answer")
        self.rest = rest


class BoundedHandler(ResponseHandler):
    """
    Parses the answers of a connection, up to a budget for each; then the connection is cut.

    What comes is paid for by what it costs: a byte each, but a line (of headers, of an interim answer, around a chunk,
    of a trailer) 64 and a read 256 at least. What comes between two answers is paid for by the former one.

    Args:
        loop: The event loop.
        body: So much may come after the headers, with all that frames it.
    """

    def __init__(self, loop: Any, body: int) -> None:
        super().__init__(loop)
        self._body_budget = body
        self._budget = FRAMING
        self._interim = 0
        self._answered = False

    def set_response_params(self, **options: Any) -> None:
        """Begin an answer."""
        self._budget, self._interim, self._answered = FRAMING, 0, False
        super().set_response_params(**options)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Take an answer whose headers are complete."""
        if self._exception is not None:
            return
        status = data[0].code
        if 100 <= status < 200 and status != 101:  # noqa: PLR2004 - a change of protocol is final
            self._interim += 1
            if self._interim > _MOST_INTERIM:
                self._cut()
                return
        elif not self._answered:
            self._answered = True
            self._budget = self._body_budget
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        """Take what came, in pieces: none costs more than a moment."""
        if not data:  # the client goes on with what it has
            super().data_received(data)
            return
        self._budget -= max(_READ - len(data), 0)
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            self._budget -= max(len(piece), _LINE * piece.count(b"\n"))
            if self._budget < 0:
                self._cut()
            if self.transport is None or self._exception is not None:
                return
            super().data_received(piece)
            self._end_body()

    def _end_body(self) -> None:
        """Tell who reads the body of an error after it: the client tells who waits for the next answer alone."""
        payload, error = self._payload, self._exception
        if error is not None and payload is not None and not payload.is_eof() and payload.exception() is None:
            broken = ClientPayloadError("the answer breaks off")
            broken.__cause__ = error.__cause__ or error
            payload.set_exception(broken)

    def _cut(self) -> None:
        if self.transport is not None:
            self.transport.abort()
        if self._payload is not None and self._answered:
            self._payload.set_exception(TooMuchError(_unread(self._payload)))
        self.set_exception(TooMuchError())


def _unread(payload: StreamReader) -> bytes:
    try:
        return payload.read_nowait()
    except RuntimeError:  # somebody waits for more: there is nothing
        return b""
