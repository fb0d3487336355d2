"""Requests to addresses that are not allowed: none reaches a socket, by whatever way."""

from __future__ import annotations

import socket
from datetime import timedelta

import pytest

from projections.webhooks.addresses import AddressRules
from tests.fixtures.names import Names
from tests.fixtures.ports import unused_port
from tests.fixtures.raw_server import RawServer, redirect, respond
from tests.fixtures.webhooks_wire import LONG, outgoing, sending, sent

DEFAULT = AddressRules()
AT_ONCE = LONG / 2  # a filtered port would take all its time to connect
LITERALS = (
    *("127.0.0.1", "10.0.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "192.168.0.1", "224.0.0.1"),
    *(
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:a00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
    ),
    *("[fc00::1]", "[fd00:ec2::254]", "[::7f00:1]", "[ff02::1]", "168.63.129.16"),
)
ODD_LITERALS = ("2130706433", "127.1", "0177.0.0.1", "0x7f.1", "0x7f000001", "0")


@pytest.fixture(autouse=True)
def connected(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every address that a socket of this process tries to connect to."""
    tried: list[object] = []

    class Watched(socket.socket):
        def connect(self, address: object) -> None:  # type: ignore[override]
            tried.append(address)
            super().connect(address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "socket", Watched)
    return tried


@pytest.mark.parametrize("host", LITERALS)
async def test_ssrf_literal_is_not_dialled(host: str, connected: list[object]) -> None:
    reply = await sent(f"http://{host}/", rules=DEFAULT)

    assert (reply.code, reply.status, reply.body) == ("blocked_address", None, "")
    assert connected == []


@pytest.mark.parametrize("host", ODD_LITERALS)
async def test_ssrf_literal_in_odd_spelling_is_not_dialled(host: str, connected: list[object]) -> None:
    reply = await sent(f"http://{host}/", rules=DEFAULT)

    assert reply.code in {"blocked_address", "invalid_request", "dns_error"}
    assert connected == []


async def test_ssrf_literal_with_a_zone_is_not_dialled(connected: list[object]) -> None:
    reply = await sent("http://[fe80::1%25lo]/", rules=DEFAULT)

    assert reply.code in {"blocked_address", "invalid_request"}
    assert connected == []


async def test_ssrf_dns_to_private(connected: list[object]) -> None:
    async with RawServer() as server:
        reply = await sent(
            server.url_at("inside.example"), rules=DEFAULT, resolve=Names({"inside.example": [["127.0.0.1"]]})
        )

    assert reply.code == "blocked_address"
    assert server.connections == 0
    assert connected == []


async def test_ssrf_dns_mixed_public_private(connected: list[object]) -> None:
    """Only the allowed one is used: 127.0.0.1 stands for a public address here."""
    rules = AddressRules(allow=("127.0.0.1",))
    names = Names({"mixed.example": [["127.0.0.2", "10.0.0.1", "127.0.0.1", "169.254.169.254"]]})

    async with RawServer(respond(204)) as server:
        reply = await sent(server.url_at("mixed.example"), rules=rules, resolve=names)

    assert reply.code == "204"
    assert connected == [("127.0.0.1", server.port)]


async def test_ssrf_rebinding_second_lookup_private(connected: list[object]) -> None:
    rules = AddressRules(allow=("127.0.0.1",))
    names = Names({"rebinds.example": [["127.0.0.1"], ["127.0.0.2"]]})

    async with (
        RawServer(respond(204, close=True)) as server,
        sending(rules, resolve=names, keep_names=timedelta(0)) as sender,
    ):
        url = server.url_at("rebinds.example")
        codes = [(await sender.send(outgoing(url))).code for _ in range(2)]

    assert codes[0] == "204"
    assert codes[1] == "blocked_address"
    assert connected == [("127.0.0.1", server.port)]


async def test_ssrf_redirect_to_metadata(connected: list[object]) -> None:
    async with RawServer(redirect("http://169.254.169.254/latest/meta-data/", 307)) as server:
        reply = await sent(server.url)

    assert reply.code == "307"
    assert connected == [("127.0.0.1", server.port)]


async def test_ssrf_keepalive_reuse_other_host(connected: list[object]) -> None:
    """A connection serves the host that it was judged for, not another one with the same address and port."""
    rules = AddressRules(allow=("allowed.example",))
    names = Names({"allowed.example": [["127.0.0.1"]], "other.example": [["127.0.0.1"]]})

    async with RawServer() as server, sending(rules, resolve=names) as sender:
        allowed = await sender.send(outgoing(server.url_at("allowed.example")))
        other = await sender.send(outgoing(server.url_at("other.example")))
        again = await sender.send(outgoing(server.url_at("allowed.example")))

    assert (allowed.code, other.code, again.code) == ("200", "blocked_address", "200")
    assert server.connections == 1
    assert len(server.requests) == 2


async def test_a_host_header_changes_neither_address_nor_judgement() -> None:
    rules = AddressRules(allow=("allowed.example",))

    async with RawServer() as server, sending(rules) as sender:
        reply = await sender.send(outgoing(server.url, b"", ("Host", "allowed.example")))

    assert reply.code == "blocked_address"


@pytest.mark.parametrize("port", [22, 25, 5432, 6379])
async def test_a_denied_port_is_not_dialled(port: int, connected: list[object]) -> None:
    reply = await sent(f"http://127.0.0.1:{port}/")

    assert reply.code == "blocked_address"
    assert connected == []


async def test_ssrf_blocked_is_indistinguishable() -> None:
    async with RawServer() as server:
        urls = {
            "open": server.url,
            "closed": f"http://127.0.0.1:{unused_port()}/hooks",
            "filtered": f"http://10.255.255.1:{server.port}/hooks",
            "denied port": "http://127.0.0.1:22/hooks",
            "tls": server.url.replace("http:", "https:"),
        }
        async with sending(DEFAULT) as sender:
            replies = {what: await sender.send(outgoing(url)) for what, url in urls.items()}

    assert {reply._replace(took=timedelta(0)) for reply in replies.values()} == {
        replies["open"]._replace(took=timedelta(0))
    }
    assert replies["open"].code == "blocked_address"
    assert all(reply.took < AT_ONCE for reply in replies.values())
    assert server.connections == 0
