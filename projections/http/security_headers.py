"""Headers that keep browsers strict."""

from __future__ import annotations

from projections.http.asgi import ASGIApp, Message, Receive, Scope, Send

NO_PAGE = "default-src 'none'; frame-ancestors 'none'"
"""The content security policy of what is not a page: a browser that is shown it anyway runs and frames nothing."""


class StrictHeaders:
    """
    ASGI middleware: adds headers to every answer that keep browsers strict, and answers out of caches.

    A header that an answer has of its own stays.
    """

    def __init__(
        self, app: ASGIApp, content_policy: str = NO_PAGE, referrer_policy: str = "no-referrer"
    ) -> None:
        self._app = app
        self._headers = (
            (b"content-security-policy", content_policy.encode()),
            (b"referrer-policy", referrer_policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cache-control", b"no-store"),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""

        async def strict(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message.get("headers", ())}
                added = [(name, value) for name, value in self._headers if name not in own]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        await self._app(scope, receive, strict)
