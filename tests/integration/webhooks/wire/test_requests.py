"""What a request looks like on the wire."""

from __future__ import annotations

import asyncio
import gzip
from datetime import timedelta
from pathlib import Path

import pytest

from projections.webhooks.sender import USER_AGENT
from projections.webhooks.signed_request import gzip_body
from tests.fixtures.ports import unused_port
from tests.fixtures.raw_server import Exchange, RawServer, close, hang, raw, redirect, respond
from tests.fixtures.webhooks_wire import LONG, SHORT, outgoing, sending, sent


async def test_a_request_is_a_post_of_exactly_these_bytes_and_headers() -> None:
    body = b'{"z": 1.0, "a": 1e400, "u": "\xc3\xbc"}\x00\r\n'

    async with RawServer() as server, sending() as sender:
        reply = await sender.send(
            outgoing(server.url, body, ("Webhook-Id", "msg_1"), ("Content-Type", "application/json"))
        )

    assert reply.code == "200"
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", "/hooks")
    assert request.raw.endswith(b"\r\n\r\n" + body)
    assert sorted(request.headers) == [
        ("Accept", "*/*"),
        ("Accept-Encoding", "identity"),
        ("Content-Length", str(len(body))),
        ("Content-Type", "application/json"),
        ("Host", f"127.0.0.1:{server.port}"),
        ("User-Agent", USER_AGENT),
        ("Webhook-Id", "msg_1"),
    ]


@pytest.mark.parametrize("body", [b"", b"x" * 3_000_000], ids=["empty", "large"])
async def test_a_body_of_any_size_is_sent_whole_with_its_length(body: bytes) -> None:
    async with RawServer() as server, sending() as sender:
        reply = await sender.send(outgoing(server.url, body))

    assert reply.code == "200"
    assert server.requests[0].body == body
    assert server.requests[0].header("content-length") == str(len(body))
    assert server.requests[0].header("transfer-encoding") is None


async def test_headers_of_the_connection_are_the_senders_alone() -> None:
    forged = [
        ("HOST", "evil.example"),
        ("content-length", "1"),
        ("User-Agent", "x"),
        ("expect", "100-continue"),
    ]

    async with RawServer() as server, sending() as sender:
        await sender.send(outgoing(server.url, b"four", *forged, ("accept-encoding", "gzip")))

    (request,) = server.requests
    assert request.header("host") == f"127.0.0.1:{server.port}"
    assert request.header("content-length") == "4"
    assert request.header("user-agent") == USER_AGENT
    assert request.header("expect") is None
    assert request.header("accept-encoding") == "identity"


@pytest.mark.parametrize(
    "header", [("X-A", "a\r\nX-Evil: 1"), ("X-A\r\nX-Evil", "1"), ("X-A", "a\0b"), ("X-A", "\n")]
)
async def test_header_injection_sends_nothing(header: tuple[str, str]) -> None:
    async with RawServer() as server, sending() as sender:
        reply = await sender.send(outgoing(server.url, b"", header))

    assert reply.code == "invalid_request"
    assert server.requests == []


@pytest.mark.parametrize(
    "url", ["", "ftp://127.0.0.1/", "ws://127.0.0.1/", "/hooks", "http://[::1", "http://h:99999/"]
)
async def test_a_url_that_can_not_be_sent_to_is_a_reply_too(url: str) -> None:
    assert (await sent(url)).code == "invalid_request"


async def test_a_compressed_body_is_what_was_signed_and_the_same_each_time() -> None:
    body = b'{"a": 1}' * 1000

    async with RawServer() as server, sending() as sender:
        await sender.send(outgoing(server.url, gzip_body(body), ("Content-Encoding", "gzip")))

    assert gzip.decompress(server.requests[0].body) == body
    assert server.requests[0].header("content-encoding") == "gzip"
    assert gzip_body(body) == gzip_body(body) == server.requests[0].body


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_never_followed(status: int) -> None:
    async with RawServer() as elsewhere, RawServer(redirect(elsewhere.url, status)) as server:
        reply = await sent(server.url)

    assert reply.code == str(status)
    assert len(server.requests) == 1
    assert elsewhere.connections == 0


async def test_cookies_are_not_kept() -> None:
    async with RawServer(respond(200, headers={"Set-Cookie": "a=b; Path=/"})) as server, sending() as sender:
        await sender.send(outgoing(server.url))
        await sender.send(outgoing(server.url))

    assert [request.header("cookie") for request in server.requests] == [None, None]


async def test_ssrf_env_proxy_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))

    async with RawServer() as proxy, RawServer() as server:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        await sent(server.url)

    assert proxy.connections == 0
    assert server.requests[0].header("authorization") is None


async def test_a_connection_serves_the_next_request_to_its_origin() -> None:
    async with RawServer() as server, sending() as sender:
        for _ in range(3):
            await sender.send(outgoing(server.url))

    assert server.connections == 1
    assert len(server.requests) == 3


async def test_no_more_origins_are_kept_open_than_there_is_room_for() -> None:
    async with RawServer() as first, RawServer() as second, sending(connections=1) as sender:
        for _ in range(2):
            await sender.send(outgoing(first.url))
            await sender.send(outgoing(second.url))

    assert (first.connections, second.connections) == (1, 2)


async def test_a_request_on_a_connection_that_was_just_closed_is_sent_on_a_new_one() -> None:
    async with RawServer(respond(200), close(), respond(204)) as server, sending() as sender:
        first = await sender.send(outgoing(server.url))
        second = await sender.send(outgoing(server.url, b"again"))

    assert (first.code, second.code) == ("200", "204")
    assert [request.body for request in server.requests[1:]] == [b"again", b"again"]
    assert [request.connection for request in server.requests] == [0, 0, 1]


async def test_a_request_on_a_new_connection_is_sent_once() -> None:
    async with RawServer(close()) as server:
        reply = await sent(server.url)

    assert reply.code == "connection_reset"
    assert len(server.requests) == 1


async def test_a_second_answer_to_a_request_is_not_taken_for_that_of_the_next() -> None:
    twice = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 299 Forged\r\nContent-Length: 0\r\n\r\n"

    async with RawServer(raw(twice), respond(204)) as server, sending() as sender:
        first = await sender.send(outgoing(server.url))
        second = await sender.send(outgoing(server.url))

    assert (first.code, second.code) == ("200", "204")


async def test_what_comes_on_an_idle_connection_is_not_taken_for_the_next_answer() -> None:
    idle, told = asyncio.Event(), asyncio.Event()

    async def says_408_later(exchange: Exchange) -> None:
        await respond(200)(exchange)
        await idle.wait()
        await exchange.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        told.set()

    async with RawServer(says_408_later, respond(204)) as server, sending() as sender:
        first = await sender.send(outgoing(server.url))
        idle.set()
        await told.wait()
        # Another conversation over the loopback: by its end the first connection was read too.
        async with RawServer() as other:
            await sender.send(outgoing(other.url))
        second = await sender.send(outgoing(server.url))

    assert (first.code, second.code) == ("200", "204")
    assert server.connections == 2


async def test_a_server_that_speaks_first_is_a_protocol_error() -> None:
    async def banner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        await reader.read(1)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(banner, "127.0.0.1", 0)
    async with server:
        reply = await sent(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")

    assert reply.code == "protocol_error"


async def test_many_requests_at_once_are_not_limited_by_kept_connections() -> None:
    met = asyncio.Barrier(50)

    async def together(exchange: object) -> None:
        await met.wait()
        await respond(204)(exchange)  # type: ignore[arg-type]

    async with RawServer(together) as server, sending(connections=2) as sender:
        replies = await asyncio.gather(*(sender.send(outgoing(server.url)) for _ in range(50)))

    assert {reply.code for reply in replies} == {"204"}


async def test_a_cancelled_request_is_cancelled() -> None:
    async with RawServer(hang()) as server, sending() as sender:
        task = asyncio.create_task(sender.send(outgoing(server.url)))
        await server.received(1)
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_sender_that_was_never_used_or_is_closed_twice_closes() -> None:
    async with sending() as sender:
        await sender.aclose()


async def test_took_is_the_time_it_took() -> None:
    refused = await sent(f"http://127.0.0.1:{unused_port()}/", timeout=SHORT)

    assert timedelta(0) < refused.took < LONG
