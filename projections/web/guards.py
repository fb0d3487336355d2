"""
What keeps other sites away: a page that somebody has open elsewhere must not act here through their browser.

Changing anything needs the page's own origin, JSON, and a token that no other site can read. Who may read at all, and
under which names of this host, is for :class:`projections.monitoring.authentication.Authentication` to say.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from projections.cross_site import foreign, is_json

__all__ = ["CrossSite", "Refused", "StrictHeaders"]

_COOKIE = "projections_monitor"
_TOKEN_HEADER = "x-csrf-token"  # noqa: S105 - a header's name
_MARK_BYTES = 24
_HEADERS = {
    # Everything from here, nothing inline: text that events bring can not become code.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Refused(Exception):
    """
    A request that is not to be followed.

    Args:
        status: The HTTP status that says so.
        reason: For people.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class StrictHeaders:
    """
    Sends headers that keep browsers strict.

    Args:
        app: What they are added to.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""

        async def strict(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, strict)


class CrossSite:
    """
    Tells this site's own requests from those that another site makes a browser send.

    Args:
        origins: Where the page is seen beside its own address: a proxy's, such as ``https://monitor.example.com``.
    """

    def __init__(self, origins: Collection[str] = ()) -> None:
        self._origins = origins
        self._key = secrets.token_bytes()

    def session(self, request: Request) -> Response:
        """Give a browser its token; the cookie that it belongs to is made when there is none."""
        known = request.cookies.get(_COOKIE)
        mark = known or secrets.token_urlsafe(_MARK_BYTES)
        response = JSONResponse({"token": self._token(mark)})
        if known is None:
            response.set_cookie(_COOKIE, mark, httponly=True, samesite="strict")
        return response

    def check(self, request: Request) -> None:
        """
        Let only the page itself through.

        Raises:
            Refused: It comes from elsewhere, or can not be told.
        """
        headers = request.headers
        if found := foreign(request.method, headers, self._origins):
            raise Refused(found.status, found.reason)
        if not is_json(headers):
            raise Refused(415, "only application/json is taken")
        if "origin" not in headers:
            raise Refused(403, "the request has no Origin, which the page's own have")
        given, mark = headers.get(_TOKEN_HEADER, ""), request.cookies.get(_COOKIE, "")
        if not mark or not hmac.compare_digest(given.encode(), self._token(mark).encode()):
            raise Refused(403, "the token is missing or of an earlier session: reload the page")

    def _token(self, mark: str) -> str:
        return hmac.new(self._key, mark.encode(), hashlib.sha256).hexdigest()
