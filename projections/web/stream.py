"""Server-sent events: one document after another to a client, until it goes."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope, Send

from projections.subscriptions.framing import HEADERS, frame
from projections.web.feed import Feed

__all__ = ["EventStream"]

_RETRY = frame(retry=1000)
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
            await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
            gone = asyncio.create_task(_until_gone(receive))
            sending = asyncio.create_task(self._send(send))
            try:
                await asyncio.wait([gone, sending], return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                sending.cancel()
                await asyncio.gather(gone, sending, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        await send(_part(_RETRY + frame(self._feed.history(), event="history")))
        number, document = await self._feed.after(0)
        while not self._feed.closed:
            await send(_part(frame(document, event="message")))
            number, document = await self._feed.after(number)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _part(body: bytes) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": True}
