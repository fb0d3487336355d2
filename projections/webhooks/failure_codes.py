"""The codes of the outcome of an attempt: a status, or one of a few words for why there was none."""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
import ssl
from collections.abc import Iterator

from projections.extras import from_extra
from projections.webhooks.connector import Dial
from projections.webhooks.dns_lookups import UnresolvedError
from projections.webhooks.response_reading import TooMuchError

with from_extra("webhooks"):
    import aiohttp
    from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

FAILURES = (
    "blocked_address",  # the rules allow none of the target's addresses, or not its port; nothing was sent
    "connection_refused",
    "connection_reset",  # also: closed without an answer
    "dns_error",  # the name has no address, or could not be looked up in time for the connection
    "invalid_request",  # the URL or a header cannot be sent as it is; nothing was sent
    "network_error",  # anything else on the way
    "network_unreachable",
    "protocol_error",  # the answer is not HTTP, or breaks off before its end
    "token_error",  # no access token could be had from the endpoint's token URL; nothing was sent to itself
    "timeout",  # the deadline passed: while connecting, waiting, or reading the answer to its end
    "tls_error",
    "too_large_headers",  # too many, too long, or too many interim answers
)
"""The codes of attempts without a usable answer."""

CODES = (*(str(status) for status in range(200, 600)), *FAILURES)
"""All codes of a reply. That of an attempt that succeeded is 200 to 299."""

_BY_ERRNO = {
    errno.ECONNREFUSED: "connection_refused",
    errno.ECONNRESET: "connection_reset",
    errno.ECONNABORTED: "connection_reset",
    errno.EPIPE: "connection_reset",
    errno.ENETUNREACH: "network_unreachable",
    errno.EHOSTUNREACH: "network_unreachable",
    errno.ENETDOWN: "network_unreachable",
    errno.ETIMEDOUT: "timeout",
}
_NO_WAY = frozenset({errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN})
_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_BY_KIND: tuple[tuple[tuple[type[Exception], ...], str], ...] = (  # in this order: some are of several kinds
    ((TimeoutError,), "timeout"),
    ((UnresolvedError,), "dns_error"),
    ((aiohttp.ClientSSLError, ssl.SSLError), "tls_error"),
    ((aiohttp.ServerDisconnectedError,), "connection_reset"),
    ((TooMuchError,), "too_large_headers"),
    ((ValueError,), "invalid_request"),  # also aiohttp's InvalidURL
)
_NUMBER = re.compile(r"\[Errno (\d{1,4})\]")
_log = logging.getLogger(__name__)


def code_of(error: Exception, dial: Dial) -> str:
    """Give the code for what went wrong; the error's own text tells about this network, and stays here."""
    if dial.refused and not dial.tried:
        return "blocked_address"
    for kinds, code in _BY_KIND:
        if isinstance(error, kinds):
            return code
    if isinstance(error, (aiohttp.ClientResponseError, aiohttp.ClientPayloadError)):
        return _of_answer(error)
    if isinstance(error, OSError):
        return next((_BY_ERRNO[number] for number in _numbers(error) if number in _BY_ERRNO), "network_error")
    _log.warning("a webhook to %s failed unexpectedly: %s", dial.host, type(error).__name__)
    _log.debug("it failed with", exc_info=error)  # may hold the URL, and a URL a token
    return "network_error"


def lack_of(error: Exception, dial: Dial) -> str | None:
    """
    Say what this process lacked when an attempt failed, such as files; None where it was not that.

    A look-up, or a check of a certificate, that cannot open a file says something else, or nothing: so whether a socket
    can be made now is tried.
    """
    for found in (*_causes(error), *_causes(dial.lacked)):
        if isinstance(found, MemoryError) or (
            isinstance(found, socket.gaierror) and found.errno == socket.EAI_MEMORY
        ):
            return "no memory is left"
        if isinstance(found, OSError) and (ours := _OURS.intersection(_numbers(found))):
            return os.strerror(min(ours))
    try:
        socket.socket().close()
    except OSError as lacking:
        return os.strerror(lacking.errno) if lacking.errno in _OURS else None
    return None


def lacks_port(error: Exception, dial: Dial) -> bool:
    """
    Whether no port is left here for connections to one of the addresses.

    The same error says that there is no address here of the receiver's family, such as IPv6. That holds for any kind of
    socket, and ports of TCP do not: so it is asked which of the addresses there is a way to.
    """
    if not isinstance(error, OSError) or errno.EADDRNOTAVAIL not in (numbers := _numbers(error)):
        return False
    without = sum(not has_way(address) for address in dial.addresses)
    if error.errno is not None:  # all of them failed so
        return without < len(dial.addresses)
    return sum(number in _NO_WAY for number in numbers) > without


def has_way(address: str) -> bool:
    """Whether there is an address here, and a route, from which that one may be reached; nothing is sent."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
    except OSError:
        return False
    return True


def _numbers(error: OSError) -> list[int]:
    """Of one that stands for several addresses, which failed in several ways, the text of its cause has the numbers."""
    if error.errno is not None:
        return [error.errno]
    return [int(found) for found in _NUMBER.findall(str(error.__cause__ or error))]


def _of_answer(error: Exception) -> str:
    for cause in _causes(error):
        if isinstance(cause, LineTooLong) or "Too many headers" in str(cause):
            return "too_large_headers"
        if isinstance(cause, ConnectionResetError):
            return "connection_reset"
    # Of a connection lost within the body, only the text of the error says whether it was reset or closed.
    if isinstance(error, aiohttp.ClientPayloadError) and "ConnectionResetError" in str(error):
        return "connection_reset"
    return "protocol_error"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (error.__context__ if isinstance(error, HttpProcessingError) else None)
