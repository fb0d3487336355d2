"""Requests through a proxy: tunnels to addresses that were judged here, with a login that is shown nowhere."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

import pytest

from journal import Database, InvalidValue
from projections.webhooks.addresses import AddressRules
from projections.webhooks.egress import EgressProxy, proxy_from_environment
from projections.webhooks.sender import NotSentError
from tests.fixtures.certificates import Certificate
from tests.fixtures.connect_proxy import ConnectProxy
from tests.fixtures.raw_server import RawServer, respond
from tests.fixtures.webhook_delivery import attempts, delivering, finished, hook, states, until_rows
from tests.fixtures.webhook_delivery import sent as messages_sent
from tests.fixtures.webhooks_wire import SHORT, outgoing, sending, sent

PASSWORD = "hunter2/secret"
LOGIN = "mailer:hunter2%2Fsecret"
BASIC = "Basic bWFpbGVyOmh1bnRlcjIvc2VjcmV0"


def resolving(*addresses: str) -> object:
    async def resolve(_: str) -> Sequence[str]:
        return addresses

    return resolve


class TestTunnels:
    async def test_a_request_goes_through_it_with_its_login(self) -> None:
        async with RawServer(respond(204)) as server, ConnectProxy(BASIC) as proxy:
            reply = await sent(server.url, proxy=proxy.url(LOGIN))
        assert (reply.code, len(server.requests)) == ("204", 1)
        assert proxy.targets == [f"127.0.0.1:{server.port}"]
        assert server.requests[0].header("Proxy-Authorization") is None

    async def test_tls_is_with_the_receiver_and_the_name_stays_that_of_the_url(self) -> None:
        certificate = Certificate(("hooks.example",))
        async with RawServer(respond(204), certificate=certificate) as server, ConnectProxy() as proxy:
            url = f"https://hooks.example:{server.port}/x"
            options = {"ssl_context": certificate.client_context(), "resolve": resolving("127.0.0.1")}
            reply = await sent(url, proxy=proxy.url(), **options)
        assert reply.code == "204"
        assert proxy.targets == [f"127.0.0.1:{server.port}"]  # an address: the proxy looks up nothing
        assert server.requests[0].header("Host") == f"hooks.example:{server.port}"

    async def test_a_connection_is_kept_and_used_again(self) -> None:
        async with (
            RawServer(respond(204)) as server,
            ConnectProxy() as proxy,
            sending(proxy=proxy.url()) as sender,
        ):
            for _ in range(3):
                assert (await sender.send(outgoing(server.url))).code == "204"
        assert len(proxy.targets) == 1

    async def test_a_large_body_passes(self) -> None:
        body = b"x" * 3_000_000
        async with (
            RawServer(respond(204)) as server,
            ConnectProxy() as proxy,
            sending(proxy=proxy.url()) as sender,
        ):
            assert (await sender.send(outgoing(server.url, body))).code == "204"
        assert server.requests[0].body == body


class TestGuard:
    @pytest.mark.parametrize(
        "url",
        [
            "http://127.0.0.1:{port}/",
            "http://[::ffff:127.0.0.1]:{port}/",
            "http://169.254.169.254/",
            "http://10.0.0.1/",
        ],
    )
    async def test_an_address_that_is_not_allowed_is_never_asked_for(self, url: str) -> None:
        async with RawServer(respond(204)) as server, ConnectProxy() as proxy:
            reply = await sent(url.format(port=server.port), rules=AddressRules(), proxy=proxy.url())
        assert (reply.code, proxy.targets, server.requests) == ("blocked_address", [], [])

    async def test_a_name_is_judged_by_what_it_means_when_the_tunnel_is_asked_for(self) -> None:
        answers = iter([["127.0.0.1"], ["10.0.0.1"]])

        async def rebinding(_: str) -> Sequence[str]:
            return next(answers)

        async with (
            RawServer(respond(204, close=True)) as server,
            ConnectProxy() as proxy,
            sending(proxy=proxy.url(), resolve=rebinding, keep_names=timedelta(0)) as sender,
        ):
            url = f"http://rebinding.example:{server.port}/"
            codes = [(await sender.send(outgoing(url))).code for _ in range(2)]
        assert codes == ["204", "blocked_address"]
        assert proxy.targets == [f"127.0.0.1:{server.port}"]

    async def test_of_several_addresses_only_those_that_are_allowed_are_asked_for(self) -> None:
        async with RawServer(respond(204)) as server, ConnectProxy() as proxy:
            resolve = resolving("10.0.0.1", "127.0.0.1")
            reply = await sent(f"http://two.example:{server.port}/", proxy=proxy.url(), resolve=resolve)
        assert (reply.code, proxy.targets) == ("204", [f"127.0.0.1:{server.port}"])

    async def test_a_port_that_is_not_allowed_is_never_asked_for(self) -> None:
        async with ConnectProxy() as proxy:
            reply = await sent("http://127.0.0.1:5432/", proxy=proxy.url())
        assert (reply.code, proxy.targets) == ("blocked_address", [])

    async def test_a_proxy_that_leads_elsewhere_is_found_by_the_certificate(self) -> None:
        right, wrong = Certificate(("hooks.example",)), Certificate(("evil.example",))
        async with (
            RawServer(respond(204), certificate=wrong) as evil,
            ConnectProxy(leads_to=("127.0.0.1", evil.port)) as proxy,
        ):
            options = {"ssl_context": right.client_context(), "resolve": resolving("127.0.0.1")}
            reply = await sent("https://hooks.example/", proxy=proxy.url(), **options)
        assert (reply.code, evil.requests) == ("tls_error", [])


class TestAProxyThatFails:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("answer", "code"),
        [
            (b"HTTP/1.1 403 Forbidden\r\n\r\n", "blocked_address"),
            (b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n", "blocked_address"),
            (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "network_error"),
            (b"HTTP/1.1 504 Gateway Timeout\r\n\r\n", "timeout"),
        ],
    )
    async def test_what_it_says_of_the_receiver_is_the_outcome_of_the_attempt(
        self, answer: bytes, code: str
    ) -> None:
        async with RawServer(respond(204)) as server, ConnectProxy(answer=answer) as proxy:
            assert (await sent(server.url, proxy=proxy.url())).code == code
            assert server.requests == []

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "wants another user or password"),
            (b"SSH-2.0-OpenSSH\r\n\r\n", "does not answer as a proxy"),
            (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", "nobody has asked for"),
            (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 50_000, "does not answer as a proxy"),
            (b"HTTP/1.1 999 Odd\r\n\r\n", "does not answer as a proxy"),
        ],
    )
    async def test_what_it_does_wrong_itself_is_no_attempt(self, answer: bytes, reason: str) -> None:
        async with RawServer(respond(204)) as server, ConnectProxy(answer=answer) as proxy:
            with pytest.raises(NotSentError, match=reason) as failed:
                await sent(server.url, proxy=proxy.url(LOGIN))
        assert failed.value.everywhere
        assert PASSWORD not in str(failed.value)

    async def test_one_that_is_not_there_is_no_attempt(self) -> None:
        async with ConnectProxy() as proxy:
            gone = proxy.url(LOGIN)
        with pytest.raises(NotSentError, match="cannot be reached: Connection refused"):
            await sent("http://127.0.0.1:8080/", proxy=gone)

    async def test_one_that_says_nothing_costs_the_time_of_a_connection(self) -> None:
        async with ConnectProxy(silent=True) as proxy, sending(proxy=proxy.url()) as sender:
            reply = await sender.send(outgoing("http://127.0.0.1:8080/", connect_timeout=SHORT))
        assert reply.code == "timeout"

    @pytest.mark.slow
    async def test_deliveries_wait_for_it_and_use_up_no_attempt(
        self, database: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with RawServer(respond(204)) as server:
            await hook(database, server.url)
            await messages_sent(database)
            async with ConnectProxy() as proxy:
                where = proxy.url(LOGIN)
            with caplog.at_level(logging.DEBUG):
                async with sending(proxy=where) as sender, delivering(database, sender):
                    await until_rows(database, "attempts = 0 AND next_at > now() + interval '1 second'")
                    assert await states(database) == ["pending"]
            async with (
                ConnectProxy(BASIC) as back,
                sending(proxy=back.url(LOGIN)) as sender,
                delivering(database, sender),
            ):
                await finished(database)
        assert await attempts(database) == [(1, "success", "204")]
        assert "cannot be reached" in caplog.text
        assert PASSWORD not in caplog.text
        assert BASIC.removeprefix("Basic ") not in caplog.text


class TestSetting:
    @pytest.mark.parametrize(
        "wrong",
        [
            "socks5://p:1080", "https://p:443", "http://p", "http://", "p:8080", "http://p:99999", "http://p:1/path",
            "http://p:1?x", "http://p:1#x", "http://p:1\r\nX: y", "http://u:hunter2@p", "",
        ],
    )  # fmt: skip
    def test_another_form_is_refused_and_not_shown(self, wrong: str) -> None:
        with pytest.raises(InvalidValue, match="http://HOST:PORT") as refused:
            EgressProxy(wrong)
        assert "hunter2" not in str(refused.value)

    def test_nothing_shows_the_login(self) -> None:
        proxy = EgressProxy(f"http://{LOGIN}@proxy.internal:3128")
        assert repr(proxy) == "<proxy at proxy.internal:3128>"
        assert PASSWORD not in f"{proxy} {proxy!r}"

    def test_it_is_read_from_the_environment(self) -> None:
        assert proxy_from_environment({}) is None
        found = proxy_from_environment({"PROJECTIONS_WEBHOOK_PROXY": " http://p:3128 "})
        assert found is not None
        assert (found.host, found.port) == ("p", 3128)
