"""The feed as server-sent events: one document after another to a client, until it goes."""

from __future__ import annotations

from datetime import timedelta

from starlette.types import Receive, Scope, Send

from projections.http.server_sent_events import EventWriter, frame, while_connected
from projections.web.feed import Feed

__all__ = ["FeedStream"]

_RETRY = timedelta(seconds=1)
"""After which a browser connects again."""


class FeedStream:
    """Sends what a feed has: first its history, then each document. A slow client misses some, and holds up nobody."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Serve one client."""
        with self._feed.watching():
            await while_connected(receive, self._send(EventWriter(send)))

    async def _send(self, writer: EventWriter) -> None:
        await writer.begin()
        await writer.write(frame(retry=_RETRY) + frame(self._feed.history(), event="history"))
        number, document = await self._feed.after(0)
        while not self._feed.closed:
            await writer.write(frame(document, event="message"))
            number, document = await self._feed.after(number)
        await writer.finish()
