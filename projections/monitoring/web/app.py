"""The monitor as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from journal import Database, Journals
from projections.extras import from_extra
from projections.http.security_headers import StrictHeaders
from projections.http.server_sent_events import EventWriter, frame, while_connected
from projections.monitoring.probes import monitor_probe
from projections.monitoring.web.actions import Actions
from projections.monitoring.web.csrf import CrossSite
from projections.monitoring.web.details import Details
from projections.monitoring.web.feed import Feed

with from_extra("monitor"):
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import FileResponse, Response
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles
    from starlette.types import Receive, Scope, Send

_STATIC = Path(__file__).parent / "static"
_RETRY = timedelta(seconds=1)
"""After which a browser connects again."""


def monitor_app(
    database: Database, feed: Feed, *, origins: Collection[str] = (), journal: Journals = None
) -> StrictHeaders:
    """
    The page, its events and its actions, metrics and health.

    Whoever reaches it may use it: :func:`projections.http.serving.serving` puts authentication around it.

    Args:
        database: The database that the page's actions change.
        feed: What the page shows; runs while the application does.
        origins: Where a proxy shows the page, such as ``https://monitor.example.com``.
        journal: What projections read, if that is in another database.
    """
    cross_site, probe = CrossSite(origins), monitor_probe(database, journal)
    details = Details(database, feed.history, journal=journal)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with probe.lifespan(app), details.running(), feed.running():
            yield

    routes = [
        Route("/", _page),
        Mount("/static", StaticFiles(directory=_STATIC, packages=[("projections.http", "static")])),
        Route("/session", cross_site.session),
        Route("/events", _FeedStream(feed)),
        Route("/projection", details.answer),
        Route("/actions/{action}", Actions(database, cross_site).follow, methods=["POST"]),
        *probe.routes,
    ]
    # Everything from here, nothing inline: text that events bring cannot become code.
    policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    return StrictHeaders(Starlette(routes=routes, lifespan=lifespan), policy, "same-origin")


async def _page(_: Request) -> Response:
    return FileResponse(_STATIC / "index.html")


class _FeedStream:
    """Sends each document of a feed as a server-sent event. A slow client misses some."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Serve one client."""
        with self._feed.watching():
            await while_connected(receive, self._send(EventWriter(send)))

    async def _send(self, writer: EventWriter) -> None:
        await writer.begin()
        await writer.write(frame(retry=_RETRY))
        number, document = await self._feed.after(0)
        while not self._feed.closed:
            await writer.write(frame(document, event="message"))
            number, document = await self._feed.after(number)
        await writer.finish()
