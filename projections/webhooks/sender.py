"""
How an attempt goes over the wire: one POST, one answer, within a deadline and a bounded memory.

What the other side does is never an error here: it is a code. No redirects, cookies, ``.netrc``, or
proxies of the environment.
"""

from __future__ import annotations

import asyncio
import io
import ssl
import time
from datetime import timedelta
from importlib.metadata import version
from typing import Any, Protocol, Self

from cachetools import TTLCache

from journal import ProjectionsError
from projections.extras import from_extra
from projections.webhooks.access_tokens import AccessTokens
from projections.webhooks.addresses import AddressRules
from projections.webhooks.client_tls import ClientContexts, default_context
from projections.webhooks.connector import (
    Connector,
    Dial,
    LookedUp,
    current_dial,
    dialling,
)
from projections.webhooks.dns_lookups import LookUp, Lookups, Resolve, SystemLookup
from projections.webhooks.egress import EgressFailedError, EgressProxy
from projections.webhooks.failure_codes import code_of, lack_of, lacks_port
from projections.webhooks.fair_shares import Hosts
from projections.webhooks.outgoing import Outgoing
from projections.webhooks.response_reading import FRAMING, IncomingResponse, Reply

with from_extra("webhooks"):
    import aiohttp
    from multidict import CIMultiDict
    from yarl import URL

KEEP_BODY = 65536
HOST_LIMIT = 500
"""Requests to one host on their way at a time, and begun in any second."""
USER_AGENT = f"slice-projections/{version('slice-projections')}"

_KEPT_OPEN = timedelta(seconds=4)  # common servers close idle connections after 5 s: be first
_MOST_HEADERS = 100
_LONGEST_HEADER = 8190
_LARGE = 1 << 20
_PATIENCE = 5.0
"""Seconds that one waits for its turn at most: its lease is not to end before its answer."""
_LATER = timedelta(seconds=2)
_NOT_FROM_CALLERS = frozenset(
    (
        *("accept-encoding", "connection", "content-length", "expect", "host", "te", "trailer"),
        *("transfer-encoding", "upgrade", "user-agent"),
    )
)


class NotSentError(ProjectionsError):
    """Nothing could be sent, for a reason that is not the receiver's: it was not an attempt."""

    def __init__(self, reason: str, delay: timedelta, *, everywhere: bool = False) -> None:
        super().__init__(reason)
        self.delay = delay
        self.everywhere = everywhere


class Sender(Protocol):
    """Makes the requests of attempts."""

    async def send(self, outgoing: Outgoing) -> Reply:
        """
        Send one, and return its outcome; raises nothing for what the other side does.

        Raises:
            NotSentError: It was not sent, and that is not the other side's doing.
        """

    async def aclose(self) -> None:
        """Close all connections."""


class HttpSender:
    """
    Makes the requests of attempts over HTTP/1.1; to be used in one event loop, and closed.

    Connections serve later attempts at the same scheme, host and port for a few seconds. Where such a connection
    turns out to be closed, the request is sent again on a new one: receivers know it by its ``webhook-id``.

    Args:
        rules: What may be connected to; by default public addresses.
        keep_body: How many bytes of an answer's body are kept.
        connections: The most origins to which connections are kept open; those in flight are the caller's to bound.
        resolve: Looks names up; None: the system's way.
        keep_names: How long a lookup is good for. Each connection is judged by its address all the same.
        ssl_context: What to trust, and the ciphers; None: what the system trusts, and its ciphers without DHE.
        host_limit: The most requests to one host on their way at a time, and begun in any second, from this sender;
            None: any number.
        proxy: All connections are tunnels of this one (CONNECT): ``http://HOST:PORT``, or
            ``http://USER:PASSWORD@HOST:PORT``. None: they are made directly.
    """

    def __init__(
        self,
        rules: AddressRules | None = None,
        *,
        keep_body: int = KEEP_BODY,
        connections: int = 256,
        resolve: Resolve | None = None,
        keep_names: timedelta = timedelta(seconds=10),
        ssl_context: ssl.SSLContext | None = None,
        host_limit: int | None = HOST_LIMIT,
        proxy: EgressProxy | str | None = None,
    ) -> None:
        self._rules = rules or AddressRules()
        self._keep_body = keep_body
        self._origins: TTLCache[URL, bool] = TTLCache(connections, _KEPT_OPEN.total_seconds(), time.monotonic)
        self._system = SystemLookup() if resolve is None else None
        self._lookups = Lookups(resolve or self._system, keep_names)  # type: ignore[arg-type]
        self._hosts = Hosts(host_limit)
        self._ssl = ssl_context or default_context()
        self._contexts = ClientContexts(ssl_context)
        self._tokens = AccessTokens(self._send_one)
        self._proxy = EgressProxy(proxy) if isinstance(proxy, str) else proxy
        self._sessions: tuple[aiohttp.ClientSession, aiohttp.ClientSession] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def send(self, outgoing: Outgoing) -> Reply:
        """
        Send one, and return its outcome; raises nothing for what the other side does.

        Raises:
            ProjectionsError: This process has no files, memory or ports left; or others of its tenant, or to its
                host, were before it for long.
        """
        if outgoing.oauth is not None:
            return await self._tokens.send(outgoing, outgoing.oauth)
        return await self._send_one(outgoing)

    async def _send_one(self, outgoing: Outgoing) -> Reply:
        host = _host(outgoing.url)
        try:
            place = await self._hosts.take(host, outgoing.tenant, outgoing.share, _PATIENCE)
            try:
                addresses, look_up = self._lookups.known(host), None
                if addresses is None and host:
                    async with asyncio.timeout(_PATIENCE):
                        look_up = await self._lookups.begin(host, outgoing.tenant, outgoing.share)
                return await self._send(outgoing, Dial(host, addresses=addresses or ()), look_up)
            finally:
                self._hosts.give_back(place)
        except TimeoutError:
            raise NotSentError(f"others are before it at {host}", _LATER) from None

    async def _send(self, outgoing: Outgoing, dial: Dial, look_up: LookUp | None) -> Reply:
        began, answer, failure = time.monotonic(), IncomingResponse(self._keep_body), None
        with dialling(dial):
            try:
                async with asyncio.timeout(outgoing.timeout.total_seconds()):
                    if look_up:
                        dial.addresses = await look_up(outgoing.connect_timeout)
                    await self._exchange(outgoing, answer)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this attempt's alone
                if answer.status is None:
                    _raise_what_is_ours(error, dial)
                failure = code_of(error, dial)
        return answer.reply(failure, timedelta(seconds=time.monotonic() - began))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._tokens.aclose()
        await self._contexts.aclose()
        sessions, self._sessions = self._sessions, None
        for session in sessions or ():
            await session.close()
        self._lookups.close()
        if self._system:
            self._system.close()

    async def _exchange(self, outgoing: Outgoing, answer: IncomingResponse) -> None:
        url = URL(outgoing.url)
        if url.scheme not in {"http", "https"} or not url.host:
            raise ValueError("not a URL to send to")
        response = await self._answered(url, outgoing)
        try:
            await answer.read(response)
        finally:
            _done_with(response)

    async def _answered(self, url: URL, outgoing: Outgoing) -> aiohttp.ClientResponse:
        keeping, closing = self._open_sessions()
        context = await self._contexts.of(outgoing.certificate)
        session = keeping if self._keeps(url.origin()) else closing
        try:
            return await _post(session, url, outgoing, context)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            dial = current_dial()
            if dial is None or not dial.reused:
                raise
            dial.reused = False
            return await _post(closing, url, outgoing, context)

    def _keeps(self, origin: URL) -> bool:
        """Whether connections to an origin are kept open: to as many as there is room for."""
        self._origins.expire()
        if origin not in self._origins and len(self._origins) >= self._origins.maxsize:
            return False
        self._origins[origin] = True
        return True

    def _open_sessions(self) -> tuple[aiohttp.ClientSession, aiohttp.ClientSession]:
        """Give one that keeps connections, and one that does not."""
        if self._sessions is None:  # here, for they belong to the loop that is running
            self._sessions = (
                self._session(keepalive_timeout=_KEPT_OPEN.total_seconds()),
                self._session(force_close=True),
            )
        return self._sessions

    def _session(self, **options: Any) -> aiohttp.ClientSession:
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_reuseconn.append(_reused)
        connector = Connector(
            2 * self._keep_body + FRAMING,
            self._rules,
            self._proxy,
            limit=0,  # an attempt that waits here would be charged to its endpoint
            resolver=LookedUp(),
            use_dns_cache=False,
            ssl=self._ssl,
            **options,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            max_line_size=_LONGEST_HEADER,
            max_field_size=_LONGEST_HEADER,
            max_headers=_MOST_HEADERS,
            trace_configs=[tracing],
        )


async def _post(
    session: aiohttp.ClientSession, url: URL, outgoing: Outgoing, context: ssl.SSLContext | None
) -> aiohttp.ClientResponse:
    body = outgoing.body
    return await session.post(
        url,
        headers=_headers(outgoing),
        # Bytes are written at once, a file in pieces: large ones would hold up the loop.
        data=io.BytesIO(body) if len(body) > _LARGE else body,
        allow_redirects=False,
        ssl=context or True,  # of its session, unless it is another one
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=outgoing.connect_timeout.total_seconds()),
        skip_auto_headers=("Content-Type",),
    )


def _headers(outgoing: Outgoing) -> CIMultiDict[str]:
    headers = CIMultiDict(
        (name, value) for name, value in outgoing.headers if name.lower() not in _NOT_FROM_CALLERS
    )
    headers["User-Agent"] = USER_AGENT
    headers["Accept-Encoding"] = "identity"
    return headers


def _done_with(response: aiohttp.ClientResponse) -> None:
    connection = response.connection
    if connection is not None and connection.transport is not None:
        # There is more to come: closing politely would wait for it (TLS), or for what is unsent.
        connection.transport.abort()
    response.close()


async def _reused(*_: object) -> None:
    dial = current_dial()
    if dial is not None:
        dial.reused = True


def _raise_what_is_ours(error: Exception, dial: Dial) -> None:
    if isinstance(error, EgressFailedError):
        raise NotSentError(str(error), _LATER, everywhere=True) from None
    if lacks_port(error, dial):
        raise NotSentError(f"no port is left here for connections to {dial.host}", _LATER) from None
    if (reason := lack_of(error, dial)) is not None:
        raise NotSentError(reason, _LATER, everywhere=True) from None


def _host(url: str) -> str:
    try:
        return URL(url).raw_host or ""
    except ValueError:
        return ""
