"""
Who may ask over HTTP: addresses, the token, and the check of every request.

On a loopback address everybody on the machine may ask, and the Host header is checked, so that a page of another site
can not ask through the user's browser (DNS rebinding). Elsewhere every request needs the token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from binascii import Error as BinasciiError
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from journal import ProjectionsError

TOKEN_VARIABLE = "PROJECTIONS_TOKEN"  # noqa: S105 - the name of the variable
TOKEN_FILE_VARIABLE = "PROJECTIONS_TOKEN_FILE"  # noqa: S105 - likewise

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
ASGIApp = Callable[[_Message, _Receive, _Send], Awaitable[None]]

_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)]|(?P<host>[^\s:\[\]/@]+)):(?P<port>[0-9]{1,5})")
_HOST_HEADER = re.compile(r"(?:\[([0-9A-Fa-f:.]+)]|([^\s:\[\]/@]+))(?::[0-9]{1,5})?")
_LAST_PORT = 65_535
_LOCALHOST = "localhost"


class InvalidAddress(ProjectionsError, ValueError):
    """No address to listen at."""


class TokenMissing(ProjectionsError):
    """An address that others reach, and nothing that keeps them out."""


class Address(NamedTuple):
    """Where to listen."""

    host: str
    """A name or an IP address, an IPv6 one without brackets."""
    port: int
    """0 for any that is free."""

    @property
    def loopback(self) -> bool:
        """Whether nothing but this machine reaches it; a name other than ``localhost`` might be any machine's."""
        return _is_loopback(self.host)

    def __str__(self) -> str:
        """``127.0.0.1:9187``, ``[::1]:9187``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """
    Read an address to listen at.

    Args:
        text: ``127.0.0.1:9187``, ``localhost:9187``, ``[::1]:9187``. A host must be named: whether ``:9187`` means this
            machine or every network is something to say, not to guess.

    Raises:
        InvalidAddress: It is none; the message says how to write it.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > _LAST_PORT or not _is_host(found):
        raise InvalidAddress(
            f"{text!r} is no address to listen at: write HOST:PORT, such as 127.0.0.1:9187 for this machine alone, "
            "[::1]:9187, or 0.0.0.0:9187 for all networks, which needs a token"
        )
    return Address(found["ipv6"] or found["host"], int(found["port"]))


def read_token(environment: Mapping[str, str] = os.environ, file: Path | None = None) -> str | None:
    """
    The token that requests must carry; None when there is none.

    It is never taken from the command line, which every user of the machine can read.

    Args:
        environment: PROJECTIONS_TOKEN holds it, or PROJECTIONS_TOKEN_FILE names a file that does.
        file: A file that holds it; goes before the environment.

    Raises:
        TokenMissing: The file can not be read, or the token is empty.
    """
    token = environment.get(TOKEN_VARIABLE)
    if file is None and token is None and TOKEN_FILE_VARIABLE in environment:
        file = Path(environment[TOKEN_FILE_VARIABLE])
    where = TOKEN_VARIABLE if file is None else f"the file {file}"
    if file is not None:
        try:
            token = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TokenMissing(f"the token can not be read from {where}: {error}") from error
    if token is None:
        return None
    if not token.strip():
        raise TokenMissing(f"the token in {where} is empty")
    return token.strip()


def require_token(address: Address, token: str | None) -> None:
    """
    Refuse to listen where others reach it without a token.

    Raises:
        TokenMissing: The address is not a loopback one, and there is no token.
    """
    if token is None and not address.loopback:
        raise TokenMissing(
            f"{address} can be reached from other machines: set {TOKEN_VARIABLE}, or {TOKEN_FILE_VARIABLE} to a file "
            "that holds the token, or listen at 127.0.0.1"
        )


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
        TokenMissing: See :func:`require_token`.
    """

    def __init__(
        self, app: ASGIApp, address: Address, token: str | None, open_paths: Collection[str] = ()
    ) -> None:
        require_token(address, token)
        self._app = app
        self._address = address
        self._digest = None if token is None else _digest(token.encode())
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served here")
        elif not self._is_host_ours(scope):
            await _refuse(send, 421, f"this is {self._address}, under no other name\n")
        elif not self._is_allowed(scope):
            await _refuse(send, 401, "a token is needed, as a bearer token or as a password\n", _CHALLENGES)
        else:
            await self._app(scope, receive, send)

    def _is_host_ours(self, scope: _Message) -> bool:
        """Any port may be named, because a tunnel may lead here; no name that others can point at this machine."""
        if not self._address.loopback:
            return True
        hosts = _headers(scope, b"host")
        found = _HOST_HEADER.fullmatch(hosts[0].decode("latin-1")) if len(hosts) == 1 else None
        return found is not None and _is_loopback(found[1] or found[2])

    def _is_allowed(self, scope: _Message) -> bool:
        if self._digest is None or scope["path"] in self._open_paths:
            return True
        given = _headers(scope, b"authorization")
        return len(given) == 1 and hmac.compare_digest(_digest(_secret(given[0])), self._digest)


_CHALLENGES = [
    (b"www-authenticate", b'Basic realm="projections", charset="UTF-8"'),
    (b"www-authenticate", b"Bearer"),
]


def _is_host(found: re.Match[str]) -> bool:
    try:
        return ip_address(found["ipv6"]).version == 6 if found["ipv6"] else True  # noqa: PLR2004 - IP's version
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    if host.lower().rstrip(".") == _LOCALHOST:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _headers(scope: _Message, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]


def _secret(authorization: bytes) -> bytes:
    """What a request gives as the token; empty, which no token is, when it gives none."""
    scheme, _, value = authorization.strip().partition(b" ")
    value = value.strip()
    if scheme.lower() == b"bearer":
        return value
    if scheme.lower() == b"basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except BinasciiError:
            return b""
    return b""


def _digest(secret: bytes) -> bytes:
    """Of one length, so that comparing tells nothing about the length."""
    return hashlib.sha256(secret).digest()


async def _refuse(send: _Send, status: int, why: str, headers: Collection[tuple[bytes, bytes]] = ()) -> None:
    body = why.encode()
    own = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})
