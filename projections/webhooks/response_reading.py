"""
Answers: how much of one is read, and what is kept of it: its status, two headers and the start of its body.

Bytes, lines, reads and interim answers are counted before they are parsed. A deadline alone bounds nothing: what a
receiver can send in its seconds, this process would be busy with instead of other requests.
"""

from __future__ import annotations

import codecs
import zlib
from datetime import timedelta
from typing import Any, NamedTuple

from projections.extras import from_extra
from projections.webhooks.retry_policy import is_success

with from_extra("webhooks"):
    from aiohttp import ClientPayloadError, ClientResponse, StreamReader
    from aiohttp.client_proto import ResponseHandler

FRAMING = 65_536
"""Bytes that may come around the body of an answer; and before it, with all interim answers."""

_MOST_INTERIM = 16
_LINE = 64
_READ = 256
_PIECE = 2048


class TooMuchError(Exception):
    """A receiver sent more than is read of an answer."""

    def __init__(self, rest: bytes = b"") -> None:
        super().__init__("more than is read of an answer")
        self.rest = rest


class BoundedHandler(ResponseHandler):
    """
    Parses the answers of a connection, up to a budget for each; then the connection is cut.

    What comes is paid for by what it costs: a byte each, but a line (of headers, of an interim answer, around a chunk,
    of a trailer) 64 and a read 256 at least. What comes between two answers is paid for by the former one.
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


_LONGEST_HEADER = 200
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_FIRST_STATUS, _LAST_STATUS = 200, 599


class Reply(NamedTuple):
    """
    The outcome of one attempt.

    Args:
        code: One of :data:`CODES`: the status, or why there is none that counts. A 2xx whose body cannot be read in
            time and to its end (or to what is kept of it) has the code of that failure; any other status is its code.
        status: The status, where one came.
        retry_after: The header of that name, as it came.
        date: The header of that name, as it came.
        body: What is kept of the body: text that PostgreSQL can store.
        truncated: Whether there was, or may have been, more of it.
        took: From the beginning of sending to here.
    """

    code: str
    status: int | None
    retry_after: str | None
    date: str | None
    body: str
    truncated: bool
    took: timedelta


class IncomingResponse:
    """
    An answer as it comes in: it is usable at any moment, so also where it breaks off.

    ``keep`` bounds the bytes of its body, once inflated, and of its text in UTF-8.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self.status: int | None = None
        """Once it has come."""
        self._retry_after: str | None = None
        self._date: str | None = None
        self._body = bytearray()
        self._came = 0
        self._inflate: zlib._Decompress | None = None
        self._truncated = False

    async def read(self, response: ClientResponse) -> None:
        """Take an answer in, to its end or to what is kept of it."""
        self.status = response.status
        self._retry_after = _header(response, "Retry-After")
        self._date = _header(response, "Date")
        if response.headers.get("Content-Encoding", "").strip().lower() in {"gzip", "x-gzip", "deflate"}:
            self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            async for chunk in response.content.iter_any():
                self._take(chunk)
                if self._truncated:
                    return
        except TooMuchError as cut:
            self._take(cut.rest)
            self._truncated = True

    def reply(self, failure: str | None, took: timedelta) -> Reply:
        """Say its outcome."""
        status, code = self.status, failure
        truncated = self._truncated or (failure is not None and status is not None)
        if status is not None and not _FIRST_STATUS <= status <= _LAST_STATUS:
            status, code = None, "protocol_error"
        elif status is not None and (failure is None or not is_success(status)):
            code = str(status)
        body, cut = self._text(whole=not truncated)
        return Reply(
            code or "network_error", status, self._retry_after, self._date, body, truncated or cut, took
        )

    def _take(self, chunk: bytes) -> None:
        self._came += len(chunk)
        room = self._keep + 1 - len(self._body)
        self._body += self._inflated(chunk, room) if self._inflate else chunk[:room]
        # What inflates to nothing has no end either.
        if len(self._body) > self._keep or self._came > 2 * self._keep:
            del self._body[self._keep :]
            self._truncated = True

    def _inflated(self, chunk: bytes, room: int) -> bytes:
        assert self._inflate is not None  # noqa: S101 - for the type checker
        try:
            # The second argument bounds what one small chunk can become.
            return self._inflate.decompress(chunk, room)
        except zlib.error:
            self._inflate = None
            return chunk[:room]

    def _text(self, *, whole: bool) -> tuple[str, bool]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(bytes(self._body), final=whole).replace("\0", _REPLACEMENT)
        stored = text.encode()
        if len(stored) <= self._keep:
            return text, False
        return stored[: self._keep].decode("utf-8", "ignore"), True  # each replacement takes three bytes


def _header(response: ClientResponse, name: str) -> str | None:
    value = response.headers.get(name)
    if value is None:
        return None
    return value[:_LONGEST_HEADER].encode("utf-8", "replace").decode().replace("\0", _REPLACEMENT)
