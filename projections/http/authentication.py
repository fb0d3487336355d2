"""
Who may ask over HTTP: the check of every request.

On a loopback address everybody on the machine may ask, and the Host header is checked, so that a page of another site
cannot ask through the user's browser (DNS rebinding). Elsewhere every request needs the token.
"""

from __future__ import annotations

from collections.abc import Collection

from projections.http.addresses import Address, is_own_host
from projections.http.asgi import ASGIApp, Receive, Scope, Send, answer
from projections.http.tokens import KnownTokens, bearer_token, headers_of, password, require_token

__all__ = ["Authentication"]

_CHALLENGES = [
    (b"www-authenticate", b'Basic realm="projections", charset="UTF-8"'),
    (b"www-authenticate", b"Bearer"),
]


class Authentication:
    """
    ASGI middleware: passes on the requests that may be answered.

    A token is asked for as ``Authorization: Bearer TOKEN``, or as the password of basic authentication, with any user,
    so that browsers can give it. A browser sends a password along with requests that other sites make: what changes
    anything has to be protected against that too.

    Args:
        app: What is protected.
        address: Where it listens.
        token: What requests must carry; None only on a loopback address.
        open_paths: Paths that need no token; they must not tell anything.

    Raises:
        TokenMissing: See :func:`projections.http.tokens.require_token`.
    """

    def __init__(
        self, app: ASGIApp, address: Address, token: str | None, open_paths: Collection[str] = ()
    ) -> None:
        require_token(address, token)
        self._app = app
        self._address = address
        self._tokens = None if token is None else KnownTokens([(True, token)])
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served here")
        elif not self._is_host_ours(scope):
            await answer(send, 421, f"this is {self._address}, under no other name\n")
        elif not self._is_allowed(scope):
            await answer(send, 401, "a token is needed, as a bearer token or as a password\n", _CHALLENGES)
        else:
            await self._app(scope, receive, send)

    def _is_host_ours(self, scope: Scope) -> bool:
        if not self._address.loopback:
            return True
        hosts = headers_of(scope, b"host")
        return len(hosts) == 1 and is_own_host(hosts[0].decode("latin-1"))

    def _is_allowed(self, scope: Scope) -> bool:
        if self._tokens is None or scope["path"] in self._open_paths:
            return True
        return self._tokens.holder(bearer_token(scope) or password(scope)) is not None
