"""
Who may ask over HTTP: the check of every request.

On a loopback address everybody on the machine may ask, and the Host header is checked, so that a page of another site
cannot ask through the user's browser (DNS rebinding). Elsewhere every request needs the token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from binascii import Error as BinasciiError
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from journal import ProjectionsError
from projections.http.addresses import Address, is_own_host
from projections.http.asgi import ASGIApp, Receive, Scope, Send, answer

T = TypeVar("T")

TOKEN_VARIABLE = "PROJECTIONS_TOKEN"  # noqa: S105 - the name of the variable
TOKEN_FILE_VARIABLE = "PROJECTIONS_TOKEN_FILE"  # noqa: S105 - likewise
TRUSTED = "projections.trusted"
"""Of a scope: whether the request may be told everything. Of an open path it is also answered where it may not."""
_CHALLENGES = [
    (b"www-authenticate", b'Basic realm="projections", charset="UTF-8"'),
    (b"www-authenticate", b"Bearer"),
]


class TokenMissing(ProjectionsError):
    """Other machines reach an address, and there is no token that keeps them out."""


class KnownTokens(Generic[T]):
    """Tells whose token a request carries."""

    def __init__(self, tokens: Iterable[tuple[T, str]]) -> None:
        self._known = [(holder, _digest(token.encode())) for holder, token in tokens]

    def holder(self, given: bytes) -> T | None:
        """Find whose token this is. All are compared, whichever it is: the time that it takes tells nothing."""
        digest = _digest(given)
        found: T | None = None
        for holder, known in self._known:
            if hmac.compare_digest(digest, known):
                found = holder
        return found


def bearer_token(scope: Scope) -> bytes:
    """The token that a request carries as ``Authorization: Bearer TOKEN``; empty, which no token is, without one."""
    scheme, value = _authorization(scope)
    return value if scheme == b"bearer" else b""


def _password(scope: Scope) -> bytes:
    """The password of basic authentication, with any user; empty without one."""
    scheme, value = _authorization(scope)
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2] if scheme == b"basic" else b""
    except BinasciiError:
        return b""


def headers_of(scope: Scope, name: bytes) -> list[bytes]:
    """All values of a header of a request, its name in lower case."""
    return [value for key, value in scope["headers"] if key == name]


def read_token(environment: Mapping[str, str] = os.environ, file: Path | None = None) -> str | None:
    """
    The token that requests must carry, of a file, PROJECTIONS_TOKEN_FILE or PROJECTIONS_TOKEN; None: there is none.

    It is never taken from the command line, which every user of the machine can read. Raises TokenMissing where the
    file cannot be read, or the token is empty.
    """
    token = environment.get(TOKEN_VARIABLE)
    if file is None and token is None and TOKEN_FILE_VARIABLE in environment:
        file = Path(environment[TOKEN_FILE_VARIABLE])
    where = TOKEN_VARIABLE if file is None else f"the file {file}"
    if file is not None:
        try:
            token = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TokenMissing(f"the token cannot be read from {where}: {error}") from error
    if token is None:
        return None
    if not token.strip():
        raise TokenMissing(f"the token in {where} is empty")
    return token.strip()


def require_token(address: Address, token: str | None) -> None:
    """Refuse (TokenMissing) to listen without a token at an address that is not a loopback one."""
    if token is None and not address.loopback:
        raise TokenMissing(
            f"{address} can be reached from other machines: set {TOKEN_VARIABLE}, or {TOKEN_FILE_VARIABLE} to a file "
            "that holds the token, or listen at 127.0.0.1"
        )


def _authorization(scope: Scope) -> tuple[bytes, bytes]:
    """The scheme in lower case and its value; both empty unless the header is there exactly once."""
    given = headers_of(scope, b"authorization")
    scheme, _, value = given[0].strip().partition(b" ") if len(given) == 1 else (b"", b"", b"")
    return scheme.lower(), value.strip()


def _digest(token: bytes) -> bytes:
    """Of one length, so that comparing tells nothing about the length."""
    return hashlib.sha256(token).digest()


class Authentication:
    """
    ASGI middleware: passes on the requests that may be answered.

    A token is asked for as ``Authorization: Bearer TOKEN``, or as the password of basic authentication, with any user,
    so that browsers can give it. A browser sends a password along with requests that other sites make: what changes
    anything has to be protected against that too.

    Args:
        app: The ASGI application behind it.
        address: The address that the server listens on.
        token: What requests must carry; None only on a loopback address.
        open_paths: Paths that need no token; they must not tell anything to who is not ``TRUSTED``.

    Raises:
        TokenMissing: See :func:`require_token`.
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
        elif not self._is_allowed(scope, trusted=(trusted := self._is_trusted(scope))):
            await answer(send, 401, "a token is needed, as a bearer token or as a password\n", _CHALLENGES)
        else:
            await self._app({**scope, TRUSTED: trusted}, receive, send)

    def _is_host_ours(self, scope: Scope) -> bool:
        if not self._address.loopback:
            return True
        hosts = headers_of(scope, b"host")
        return len(hosts) == 1 and is_own_host(hosts[0].decode("latin-1"))

    def _is_allowed(self, scope: Scope, *, trusted: bool) -> bool:
        return trusted or scope["path"] in self._open_paths

    def _is_trusted(self, scope: Scope) -> bool:
        return (
            self._tokens is None or self._tokens.holder(bearer_token(scope) or _password(scope)) is not None
        )
