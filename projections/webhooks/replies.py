"""What is kept of an answer: its status, two headers and the start of its body, whatever the other side sends."""

from __future__ import annotations

import codecs
import zlib
from datetime import timedelta
from typing import NamedTuple

from projections.extras import from_extra
from projections.webhooks.incoming import TooMuchError
from projections.webhooks.verdicts import is_success

with from_extra("webhooks"):
    from aiohttp import ClientResponse

_LONGEST_HEADER = 200
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_FIRST_STATUS, _LAST_STATUS = 200, 599


class Reply(NamedTuple):
    """
    What became of one attempt.

    Args:
        code: One of :data:`CODES`: the status, or why there is none that counts. A 2xx whose body can not be read in
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


class Answer:
    """
    An answer as it comes in: it is usable at any moment, so also where it breaks off.

    Args:
        keep: At most so many bytes of its body, once inflated, and of its text in UTF-8.
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
        """
        Say what became of it.

        Args:
            failure: The code of what went wrong, if something did.
            took: How long it took.
        """
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
