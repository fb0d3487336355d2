"""Server-sent events: one document after another to a client, until it goes."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope, Send

from projections.web.feed import Feed

__all__ = ["EventStream"]

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx passes each document on at once
]
_RETRY = b"retry: 1000\n\n"
"""Milliseconds after which a browser connects again."""


class EventStream:
    """
    Sends what a feed has: first its history, then each document. A slow client misses some, and holds up nobody.

    Args:
        feed: The documents.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Serve one client."""
        with self._feed.watching():
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            gone = asyncio.create_task(_until_gone(receive))
            sending = asyncio.create_task(self._send(send))
            try:
                await asyncio.wait([gone, sending], return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                sending.cancel()
                await asyncio.gather(gone, sending, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        await send(_part(_RETRY + _event(b"history", self._feed.history())))
        number, document = await self._feed.after(0)
        while not self._feed.closed:
            await send(_part(_event(b"message", document)))
            number, document = await self._feed.after(number)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(kind: bytes, document: bytes) -> bytes:
    return b"event: " + kind + b"\ndata: " + document + b"\n\n"


def _part(body: bytes) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": True}
