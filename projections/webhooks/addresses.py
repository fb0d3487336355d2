"""
Which addresses a webhook may be sent to: public ones, and what the operator allows.

Whoever registers an endpoint chooses where this process connects to. So every address is judged when it is dialled,
after names were looked up: what a name meant at registration says nothing about what it means now.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from projections.webhooks.errors import InvalidEndpoint

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

DENIED_PORTS = (
    1, 7, 9, 11, 13, 17, 19, 20, 21, 22, 23, 25, 37, 42, 53, 69, 79, 110, 111, 119, 123, 135, 137, 138, 139, 143, 161,
    162, 179, 389, 445, 465, 512, 513, 514, 515, 543, 544, 548, 554, 587, 601, 636, 873, 993, 995, 1099, 1433, 1521,
    1723, 2049, 2181, 2375, 2376, 2379, 2380, 3306, 3389, 4369, 5060, 5432, 5672, 5900, 5984, 6000, 6379, 6432, 6443,
    6667, 9042, 9092, 9200, 9300, 10250, 10255, 11211, 15672, 27017,
)  # fmt: skip
"""Ports of mail, shells, databases, queues and clusters, whose protocols may take a request for their own."""

_DENIED = tuple(
    ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
        *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32"),
        "168.63.129.16/32",  # Azure's, for its virtual machines alone, in public space
        *("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16"),
        *("3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
    )
)
# ipaddress calls many of these global (multicast, NAT64, 6to4, ...), and which ones depends on Python's version.
_PUBLIC_IPV6 = ip_network("2000::/3")
_NAT64 = ip_network("64:ff9b::/96")
_NAT64_LOCAL = ip_network("64:ff9b:1::/48")

_METADATA = frozenset(
    ip_address(text)
    for text in (
        *("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
        *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
    )
)
_LOCAL_NAMES = ("localhost", "*.localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_METADATA_NAMES = (
    "metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.*.internal",
)  # fmt: skip
_NAME = re.compile(
    r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
_LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class AddressRules:
    """
    Where webhooks may go: public addresses on ports that are not denied, unless told otherwise.

    ``AddressRules(allow=("127.0.0.0/8",))`` is for development. What ``deny`` names is denied whatever ``allow`` says.
    Addresses where clouds serve the credentials of a machine are allowed only where ``allow`` has just that address
    (``169.254.169.254/32``), not by a network or a name that covers them.

    Args:
        allow: Networks (``10.1.0.0/16``), addresses, or names (``hooks.internal``, ``*.svc.cluster.local``) that are
            allowed alongside the public ones. A name allows whatever addresses it has.
        deny: Networks, addresses or names that are denied.
        ports: The only ports allowed; None: all but those of mail, shells, databases, queues and clusters.

    Raises:
        InvalidValue: An entry is neither a network nor a name, or a port is out of range.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    ports: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        _entries(self.allow)
        _entries(self.deny)
        for port in self.ports or ():
            if not 1 <= port <= _LAST_PORT:
                raise InvalidEndpoint(f"port {port} cannot be allowed: ports are 1 to {_LAST_PORT}")

    def allows(self, address: str | Address, *, host: str | None = None) -> bool:
        """
        Whether this address may be connected to; the host is the name that was looked up for it, if any.

        Args:
            address: The IP address, as text or parsed.
            host: The name that was looked up for it, if any: names, too, can be allowed or denied.
        """
        parsed = _parsed(address)
        if parsed is None or (host is not None and _entries(self.deny).name(host)):
            return False
        named = host is not None and _entries(self.allow).name(host)
        return all(self._allows_face(face, named=named) for face in _faces(parsed))

    def allows_name(self, host: str) -> bool:
        """Whether this name may be registered; what it resolves to is judged when it is dialled."""
        allowed, denied = _entries(self.allow), _entries(self.deny)
        if denied.name(host):
            return False
        if allowed.name(host) or not _matches(host, (*_LOCAL_NAMES, *_METADATA_NAMES)):
            return True
        return _matches(host, _LOCAL_NAMES) and (self.allows("127.0.0.1") or self.allows("::1"))

    def allows_port(self, port: int) -> bool:
        """Whether this port may be connected to."""
        if self.ports is not None:
            return port in self.ports
        return 1 <= port <= _LAST_PORT and port not in DENIED_PORTS

    def _allows_face(self, face: Address, *, named: bool) -> bool:
        if _entries(self.deny).network(face) is not None:
            return False
        network = _entries(self.allow).network(face)
        if face in _METADATA:
            return network is not None and network.num_addresses == 1
        return named or network is not None or _is_public(face)


class _Entries(NamedTuple):
    """The entries of a list, told apart."""

    networks: tuple[Network, ...]
    names: tuple[str, ...]

    def network(self, address: Address) -> Network | None:
        """Give the narrowest of the networks that hold an address."""
        holding = [network for network in self.networks if address in network]
        return min(holding, key=lambda network: network.num_addresses, default=None)

    def name(self, host: str) -> bool:
        return _matches(host, self.names)


@lru_cache(maxsize=64)
def _entries(entries: tuple[str, ...]) -> _Entries:
    networks: list[Network] = []
    names: list[str] = []
    for entry in entries:
        try:
            networks.append(ip_network(entry))
        except ValueError as error:
            name = entry.lower().rstrip(".")
            if "/" in entry or _ends_in_a_number(name) or not _NAME.fullmatch(name):
                raise InvalidEndpoint(
                    f"{entry!r} is neither a network (10.0.0.0/8), an address nor a name (hooks.internal): {error}"
                ) from error
            names.append(name)
    return _Entries(tuple(networks), tuple(names))


def _ends_in_a_number(name: str) -> bool:
    return name.rpartition(".")[2].isdigit()


def _matches(host: str, names: tuple[str, ...]) -> bool:
    host = host.lower().rstrip(".")
    return any(_pattern(name).fullmatch(host) for name in names)


@lru_cache(maxsize=256)
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\*", ".+"))


def _parsed(address: str | Address) -> Address | None:
    if isinstance(address, str):
        try:
            address = ip_address(address)
        except ValueError:
            return None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:  # an interface of this machine is not a place on the Internet
            return None
        return address.ipv4_mapped or address
    return address


def _faces(address: Address) -> Iterator[Address]:
    """Give the address, and those that a gateway would send its packets to: all of them are reached."""
    yield address
    if not isinstance(address, IPv6Address):
        return
    if address in _NAT64 or address in _NAT64_LOCAL:
        yield IPv4Address(int(address) & 0xFFFFFFFF)
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo


def _is_public(address: Address) -> bool:
    if any(address in network for network in _DENIED):
        return False
    if isinstance(address, IPv6Address) and address not in _PUBLIC_IPV6:
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved
