"""
Server-sent events: what any text becomes on the wire, and the writer of an answer that carries them to one client.

The format: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Protocol

from journal.tasks import first_of
from projections.http.asgi import Receive, Send

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx passes each event on at once
)

KEEP_ALIVE = timedelta(seconds=15)
"""Where nothing comes, a comment this often keeps proxies from ending the connection."""

_LOOK = 0.02
"""Seconds between two looks at what a client has taken."""

# The three of the format. Not str.splitlines(), which knows seven more: U+2028 is text here.
_LINE_END = re.compile(rb"\r\n|\r|\n")


def frame(
    data: str | bytes | None = None,
    *,
    event: str | None = None,
    id: str | None = None,  # noqa: A002 - the field's name
    retry: timedelta | None = None,
    comment: str | None = None,
) -> bytes:
    """
    One block of a stream. Without data no event comes of it, but a client keeps the id and the retry.

    Args:
        data: Any text, also an empty one. A client joins its lines by LF, whichever they ended with.
        event: What the event is called; by default a client calls it ``message``. It is a single line: line ends become
            spaces.
        id: Where a client that comes again has been; nothing without one.
        retry: After how long a client comes again, to the millisecond.
        comment: What no client looks at; nothing without one.
    """
    milliseconds = None if retry is None else retry // timedelta(milliseconds=1)
    fields = ((b"", comment), (b"event", event), (b"id", id), (b"retry", milliseconds))
    lines = [name + b": " + _line(str(value)) for name, value in fields if value is not None]
    if data is not None:
        lines += [b"data: " + line for line in _LINE_END.split(_bytes(data))]
    return b"\n".join(lines) + b"\n\n"


def _line(text: str) -> bytes:
    # A client that meets a NUL in an id ignores the id.
    return _LINE_END.sub(b" ", _bytes(text)).replace(b"\0", b"")


def _bytes(text: str | bytes) -> bytes:
    # A surrogate that stands alone can be no UTF-8.
    return text if isinstance(text, bytes) else text.encode(errors="replace")


class EventWriter:
    """
    Writes an answer of server-sent events to one client.

    Args:
        send: To the client.
        patience: How long a client may take to accept what is written, before it counts as too slow. None: the server
            has a limit of its own.
    """

    def __init__(self, send: Send, patience: timedelta | None = None) -> None:
        self._send = send
        self._patience = None if patience is None else patience.total_seconds()

    async def begin(self) -> None:
        """Send the status and the headers."""
        await self._send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})

    async def write(self, frames: bytes) -> None:
        """Send frames; TimeoutError: the client is too slow."""
        async with asyncio.timeout(self._patience):
            await self._send({"type": "http.response.body", "body": frames, "more_body": True})

    async def finish(self, retry: timedelta | None = None) -> None:
        """
        End the answer: a browser connects again after a while, or as it was asked to before, from where it was.

        Any status other than 200 would make it give up forever. TimeoutError: the client is too slow.
        """
        last = b"" if retry is None else frame(retry=retry)
        async with asyncio.timeout(self._patience):
            await self._send({"type": "http.response.body", "body": last, "more_body": False})


async def while_connected(receive: Receive, answering: Coroutine[Any, Any, None]) -> None:
    """Answer until that is done; when the client goes, what makes the answer is cancelled."""
    await first_of(answering, _until_gone(receive))


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Connection(Protocol):
    """Of a connection, what ends it."""

    def get_write_buffer_size(self) -> int:
        """Bytes that were written and that the client has not taken."""
        ...

    def abort(self) -> None:
        """End it at once."""
        ...


def connection_of(receive: Receive) -> Connection | None:
    """
    Give the connection of a request, where the server shows it: uvicorn does.

    ASGI has no way to end a connection: a server first sends what was written, and to one who never reads that takes
    without limit.
    """
    return getattr(getattr(receive, "__self__", None), "transport", None)


def unsent(connection: Connection) -> int:
    """Bytes that were written and that the client has not taken; none where the connection has ended."""
    try:
        return connection.get_write_buffer_size()
    except RuntimeError:  # uvloop does not tell of one that has ended
        return 0


async def let_go(connection: Connection, grace: timedelta) -> bool:
    """Let a client take what was written; ends the connection if that takes longer, and returns whether it did."""
    try:
        async with asyncio.timeout(grace.total_seconds()):
            while unsent(connection):  # noqa: ASYNC110 - transports tell nobody but their protocol
                await asyncio.sleep(_LOOK)
    except TimeoutError:
        connection.abort()
        return True
    return False
