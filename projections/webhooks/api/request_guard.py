"""What every request meets first, whatever it asks for: limits of its size, and an id."""

from __future__ import annotations

import re
from secrets import token_hex
from typing import Any

from projections.extras import from_extra
from projections.http.asgi import ASGIApp, Message, Receive, Scope, Send
from projections.http.authentication import headers_of
from projections.webhooks.api.problems import Problem, problem_response
from projections.webhooks.api.settings import ApiSettings

with from_extra("webhooks"):
    from starlette.datastructures import MutableHeaders

REQUEST_ID = "x-request-id"
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestGuard:
    """ASGI middleware: refuses what is too large, and gives each request an id."""

    def __init__(self, app: ASGIApp, settings: ApiSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _given_id(scope)
        scope.setdefault("state", {})[REQUEST_ID] = request_id

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        problem = self._too_large(scope)
        app = self._app if problem is None else problem_response(problem, request_id)
        await app(scope, receive, named)

    def _too_large(self, scope: Scope) -> Problem | None:
        url = scope.get("raw_path") or scope["path"].encode()
        most = self._settings.max_url_bytes
        if len(url) + len(scope["query_string"]) > most:
            return Problem(414, "url_too_long", f"path and query have at most {most} bytes together")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self._settings.max_header_bytes:
            return Problem(
                431,
                "headers_too_large",
                f"headers have at most {self._settings.max_header_bytes} bytes together",
            )
        return None


def request_id_of(scope: Any) -> str:
    """The id of a request that the guard has let through."""
    return str(scope["state"][REQUEST_ID])


def _given_id(scope: Scope) -> str:
    """The caller's own, if it can be one: it goes into logs and headers."""
    given = [value.decode("latin-1") for value in headers_of(scope, REQUEST_ID.encode())]
    return given[0] if len(given) == 1 and _SAFE_ID.fullmatch(given[0]) else token_hex(16)
