"""Where to listen, and which names are this machine's own."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple

from journal import InvalidValue

_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)]|(?P<host>[^\s:\[\]/@]+)):(?P<port>[0-9]{1,5})")
_HOST_HEADER = re.compile(r"(?:\[([0-9A-Fa-f:.]+)]|([^\s:\[\]/@]+))(?::[0-9]{1,5})?")
_LAST_PORT = 65_535
_LOCALHOST = "localhost"


class InvalidAddress(InvalidValue):
    """The text is not an address to listen at."""


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
    Read an address to listen at: ``127.0.0.1:9187``, ``localhost:9187``, ``[::1]:9187``; else InvalidAddress.

    A host must be named: whether ``:9187`` means this machine or every network is something to say, not to guess.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > _LAST_PORT or not _is_host(found):
        raise InvalidAddress(
            f"{text!r} is not an address to listen at: write HOST:PORT, such as 127.0.0.1:9187 for this machine alone, "
            "[::1]:9187, or 0.0.0.0:9187 for all networks, which needs a token"
        )
    return Address(found["ipv6"] or found["host"], int(found["port"]))


def is_own_host(header: str) -> bool:
    """
    Whether a Host header names this machine alone, by a name that others cannot point at it.

    Any port may be named, because a tunnel may lead here.
    """
    found = _HOST_HEADER.fullmatch(header)
    return found is not None and _is_loopback(found[1] or found[2])


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
