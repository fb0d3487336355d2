"""
Server-sent events as bytes: what any text becomes on the wire, and what every answer that carries them has in common.

The format: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

from __future__ import annotations

import re

__all__ = ["HEADERS", "frame"]

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx passes each event on at once
)

# The three of the format. Not str.splitlines(), which knows seven more: U+2028 is text here.
_LINE_END = re.compile(rb"\r\n|\r|\n")


def frame(
    data: str | bytes | None = None,
    *,
    event: str | None = None,
    id: str | None = None,  # noqa: A002 - the field's name
    retry: int | None = None,
    comment: str | None = None,
) -> bytes:
    """
    One block of a stream. Without data no event comes of it, but a client keeps the id and the retry.

    Args:
        data: Any text, also an empty one. A client joins its lines by LF, whichever they ended with.
        event: What the event is called; by default a client calls it ``message``. It is a single line: line ends become
            spaces.
        id: Where a client that comes again has been; likewise.
        retry: Milliseconds after which a client comes again.
        comment: What no client looks at; likewise.
    """
    fields = ((b"", comment), (b"event", event), (b"id", id), (b"retry", retry))
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
