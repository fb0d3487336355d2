"""Which addresses, names and ports a webhook may be sent to."""

from __future__ import annotations

import pytest

from projections.webhooks.addresses import DENIED_PORTS, AddressRules
from projections.webhooks.errors import InvalidEndpoint

DENIED = (
    *(
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.9.9.9",
    ),
    *(
        "169.254.169.254",
        "169.254.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.0.192",
        "192.0.2.1",
    ),
    *(
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
    ),
    *("239.255.255.250", "240.0.0.1", "255.255.255.255", "168.63.129.16"),
    *("::", "::1", "::7f00:1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"),
    *(
        "::ffff:0:8.8.8.8",
        "64:ff9b::7f00:1",
        "64:ff9b::808:808",
        "64:ff9b:1::1",
        "64:ff9b:1::a00:1",
        "100::1",
    ),
    *("2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:20::1", "2001:db8::1", "2002:7f00:1::"),
    *("2002:a00:1::1", "2002:808:808::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fd12:3456::1"),
    *("fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1", "4000::1", "2606:4700::1111%eth0"),
)
PUBLIC = (
    "8.8.8.8",
    "1.1.1.1",
    "100.63.255.255",
    "100.128.0.1",
    "172.15.0.1",
    "172.32.0.1",
    "192.0.1.1",
    "223.255.255.1",
)
PUBLIC_IPV6 = (
    "2606:4700::1111",
    "2a00:1450:4001::1",
    "2001:4860:4860::8888",
    "2400:cb00::1",
    "::ffff:8.8.8.8",
)
NO_ADDRESS = (
    "2130706433",
    "0x7f.1",
    "127.1",
    "0177.0.0.1",
    "127.0.0.1.",
    " 127.0.0.1",
    "",
    "localhost",
    "8.8.8.8/32",
)


@pytest.mark.parametrize("address", DENIED)
def test_ssrf_literal_table(address: str) -> None:
    assert not AddressRules().allows(address)


@pytest.mark.parametrize("address", [*PUBLIC, *PUBLIC_IPV6])
def test_ssrf_public_ok(address: str) -> None:
    assert AddressRules().allows(address)


@pytest.mark.parametrize("text", NO_ADDRESS)
def test_what_is_no_canonical_address_is_never_allowed(text: str) -> None:
    assert not AddressRules(allow=("0.0.0.0/0", "::/0")).allows(text)


def test_an_allowed_network_holds_for_its_mapped_addresses_too() -> None:
    rules = AddressRules(allow=("127.0.0.0/8",))

    assert rules.allows("127.0.0.1")
    assert rules.allows("::ffff:127.0.0.1")
    assert not rules.allows("::1")
    assert not rules.allows("10.0.0.1")


@pytest.mark.parametrize("address", ["64:ff9b::a00:1", "2002:a00:1::1", "64:ff9b:1::a00:1"])
def test_a_gateway_that_is_allowed_leads_to_no_denied_address(address: str) -> None:
    rules = AddressRules(allow=("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16"))

    assert not rules.allows(address)


def test_a_gateway_that_is_allowed_leads_to_public_addresses() -> None:
    assert AddressRules(allow=("64:ff9b::/96",)).allows("64:ff9b::808:808")


def test_a_denied_network_is_denied_although_public_or_allowed() -> None:
    rules = AddressRules(allow=("8.8.8.8", "hooks.example"), deny=("8.8.8.0/24",))

    assert not rules.allows("8.8.8.8")
    assert not rules.allows("::ffff:8.8.8.8")
    assert not rules.allows("8.8.8.8", host="hooks.example")
    assert rules.allows("8.8.4.4")


def test_a_denied_name_is_denied_whatever_its_address() -> None:
    rules = AddressRules(deny=("*.rival.example",))

    assert not rules.allows_name("hooks.rival.example")
    assert not rules.allows("8.8.8.8", host="Hooks.Rival.Example.")
    assert rules.allows("8.8.8.8", host="rival.example")


def test_an_allowed_name_may_have_private_addresses_and_others_may_not() -> None:
    rules = AddressRules(allow=("*.svc.cluster.local",))

    assert rules.allows("10.0.0.1", host="hooks.svc.cluster.local")
    assert not rules.allows("10.0.0.1", host="svc.cluster.local.evil.example")
    assert not rules.allows("10.0.0.1", host="svc.cluster.local")
    assert not rules.allows("10.0.0.1")


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "100.100.100.200", "fd00:ec2::254", "::ffff:169.254.169.254"]
)
def test_metadata_addresses_are_allowed_by_themselves_alone(address: str) -> None:
    wide = AddressRules(allow=("0.0.0.0/0", "::/0", "metadata.google.internal"))
    exact = AddressRules(allow=("0.0.0.0/0", "169.254.169.254", "100.100.100.200/32", "fd00:ec2::254"))

    assert not wide.allows(address)
    assert not wide.allows(address, host="metadata.google.internal")
    assert exact.allows(address)


@pytest.mark.parametrize(
    "name", ["localhost", "LOCALHOST.", "a.localhost", "metadata.google.internal", "instance-data"]
)
def test_local_and_metadata_names_are_refused(name: str) -> None:
    assert not AddressRules().allows_name(name)


def test_localhost_is_a_name_like_others_where_loopback_is_allowed() -> None:
    assert AddressRules(allow=("127.0.0.0/8",)).allows_name("localhost")
    assert AddressRules(allow=("::1",)).allows_name("localhost")
    assert not AddressRules(allow=("127.0.0.0/8",)).allows_name("metadata.google.internal")


@pytest.mark.parametrize("port", [0, -1, 22, 25, 5432, 6379, 65536])
def test_ports_of_other_protocols_are_refused(port: int) -> None:
    assert not AddressRules().allows_port(port)


def test_ports_can_be_listed() -> None:
    rules = AddressRules(ports=(443, 5432))

    assert [port for port in (80, 443, 5432, 8443) if rules.allows_port(port)] == [443, 5432]


def test_no_port_that_systems_hand_out_is_denied() -> None:
    assert max(DENIED_PORTS) < 32768
    assert all(AddressRules().allows_port(port) for port in (80, 443, 3000, 8000, 8080, 8443))


@pytest.mark.parametrize(
    "entry", ["10.0.0.0/33", "10.0.0.1/8", "10.1", "a b", "", "*", "*.", "http://a.example", "-a"]
)
def test_an_entry_that_is_neither_network_nor_name_is_refused(entry: str) -> None:
    with pytest.raises(InvalidEndpoint, match="neither a network"):
        AddressRules(allow=(entry,))


def test_a_port_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidEndpoint, match="65536"):
        AddressRules(ports=(65536,))
