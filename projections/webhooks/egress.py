"""
The proxy through which requests leave, where there is one: each connection is a tunnel (CONNECT) to an address.

Names of receivers are looked up here, and the tunnel is asked for to the very address that was judged: the proxy looks
up nothing. TLS and its certificates are between this process and the receiver.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import re
import socket
from collections.abc import Callable, Mapping
from urllib.parse import SplitResult, unquote, urlsplit

from projections.webhooks.errors import InvalidEndpoint

PROXY_VARIABLE = "PROJECTIONS_WEBHOOK_PROXY"

_LONGEST_ANSWER = 16_384
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?\r\n")
_FORM = "http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT"
_UNAUTHORISED, _GATEWAY_TIMEOUT = 407, 504


class EgressFailedError(Exception):
    """The proxy could not be asked, or does not answer as one: that is nobody's fault whom a request is for."""


class TunnelRefusedError(Exception):
    """The proxy lets nobody go there."""


class EgressProxy:
    """
    A proxy that is asked for tunnels; neither its representation nor an error shows the password.

    Args:
        url: ``http://HOST:PORT``, or ``http://USER:PASSWORD@HOST:PORT``; what is special in these is percent-encoded.

    Raises:
        InvalidValue: The URL is of another form; it is not in the message.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise InvalidEndpoint(f"a proxy is {_FORM}") from None
        if parts.scheme == "https":
            raise InvalidEndpoint(f"a proxy that speaks TLS itself is not supported: write {_FORM}")
        if parts.scheme != "http" or not parts.hostname or port is None or _has_more(parts, url):
            raise InvalidEndpoint(f"a proxy is {_FORM}")
        self.host, self.port = parts.hostname, port
        self._login = _login(parts)

    def __repr__(self) -> str:
        return f"<proxy at {self.host}:{self.port}>"

    async def tunnel(
        self,
        address: str,
        port: int,
        open_socket: Callable[[int, int, int], socket.socket],
        patience: float | None,
    ) -> socket.socket:
        """
        Have a tunnel to an address, which the caller has judged.

        Args:
            address: Where to: an IP address.
            port: Of that.
            open_socket: Makes a socket of a family, a kind and a protocol.
            patience: Seconds within which the proxy is connected to; None: any number.

        Raises:
            EgressFailedError: It is not there, wants another password, or does not speak HTTP.
            TunnelRefusedError: It lets nobody go there.
            OSError: It does not get there; also TimeoutError.
        """
        made = await self._connected(open_socket, patience)
        try:
            await self._ask(made, f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
        except BaseException:
            made.close()
            raise
        return made

    async def _connected(
        self, open_socket: Callable[[int, int, int], socket.socket], patience: float | None
    ) -> socket.socket:
        loop = asyncio.get_running_loop()
        failure: Exception = OSError("no address")
        try:
            async with asyncio.timeout(patience):
                for family, kind, protocol, _, place in await loop.getaddrinfo(
                    self.host, self.port, type=socket.SOCK_STREAM
                ):
                    made = open_socket(family, kind, protocol)
                    try:
                        made.setblocking(False)
                        await loop.sock_connect(made, place)
                    except OSError as error:
                        failure = error
                        made.close()
                    except BaseException:
                        made.close()
                        raise
                    else:
                        return made
        except (OSError, TimeoutError) as error:
            failure = error
        raise EgressFailedError(f"{self!r} cannot be reached: {_reason(failure)}") from failure

    async def _ask(self, connected: socket.socket, target: str) -> None:
        loop = asyncio.get_running_loop()
        login = f"Proxy-Authorization: {self._login}\r\n" if self._login else ""
        request = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{login}\r\n"
        answer = b""
        try:
            await loop.sock_sendall(connected, request.encode())
            while b"\r\n\r\n" not in answer:
                piece = await loop.sock_recv(connected, 4096)
                answer += piece
                if not piece or len(answer) > _LONGEST_ANSWER:
                    raise EgressFailedError(f"{self!r} does not answer as a proxy does")
        except OSError as error:
            raise EgressFailedError(f"{self!r} ended the connection: {_reason(error)}") from error
        self._judge(answer)

    def _judge(self, answer: bytes) -> None:
        head, _, rest = answer.partition(b"\r\n\r\n")
        found = _STATUS.match(head + b"\r\n")
        if found is None:
            raise EgressFailedError(f"{self!r} does not answer as a proxy does")
        status = int(found[1])
        if 200 <= status < 300:  # noqa: PLR2004 - any 2xx, RFC 9110 says
            if rest:  # nobody behind it has been asked anything yet
                raise EgressFailedError(f"{self!r} sends what nobody has asked for")
            return
        if status == _UNAUTHORISED:
            raise EgressFailedError(f"{self!r} wants another user or password (407)")
        if status == _GATEWAY_TIMEOUT:
            raise TimeoutError
        if status < 500:  # noqa: PLR2004 - what it will not do, whoever is behind it
            raise TunnelRefusedError
        raise OSError(errno.EPROTO, "the proxy does not get there")


def proxy_from_environment(environment: Mapping[str, str] = os.environ) -> EgressProxy | None:
    """
    The proxy that ``PROJECTIONS_WEBHOOK_PROXY`` names, if any.

    Raises:
        InvalidValue: It is of another form.
    """
    url = environment.get(PROXY_VARIABLE, "").strip()
    return EgressProxy(url) if url else None


def _has_more(parts: SplitResult, url: str) -> bool:
    more = parts.path not in {"", "/"} or parts.query or parts.fragment
    return bool(more) or any(not "!" <= character <= "~" for character in url)


def _login(parts: SplitResult) -> str | None:
    if parts.username is None:
        return None
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _reason(error: Exception) -> str:
    """Of an error of a socket: no text of ours or of the proxy's."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number and number > 0 else "its name cannot be looked up"
