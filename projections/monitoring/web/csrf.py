"""
What keeps other sites away: a page that somebody has open elsewhere must not act here through their browser.

Changing anything needs the page's own origin, JSON, and a token that no other site can read. Who may read at all, and
under which names of this host, is for :class:`projections.http.authentication.Authentication` to say.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from projections.http.cross_site import foreign, is_json

_COOKIE = "projections_monitor"
_TOKEN_HEADER = "x-csrf-token"  # noqa: S105 - a header's name
_MARK_BYTES = 24


class CrossSite:
    """
    Tells this site's own requests from those that another site makes a browser send.

    Args:
        origins: Where the page is seen alongside its own address: a proxy's, such as ``https://monitor.example.com``.
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
            HTTPException: It comes from elsewhere, or this cannot be told.
        """
        headers = request.headers
        if found := foreign(request.method, headers, self._origins):
            raise HTTPException(found.status, found.reason)
        if not is_json(headers):
            raise HTTPException(415, "only application/json is taken")
        if "origin" not in headers:
            raise HTTPException(403, "the request has no Origin, which the page's own have")
        given, mark = headers.get(_TOKEN_HEADER, ""), request.cookies.get(_COOKIE, "")
        if not mark or not hmac.compare_digest(given.encode(), self._token(mark).encode()):
            raise HTTPException(403, "the token is missing or of an earlier session: reload the page")

    def _token(self, mark: str) -> str:
        return hmac.new(self._key, mark.encode(), hashlib.sha256).hexdigest()
