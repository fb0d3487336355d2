"""Each fault of the network or of the other side has its code, and is never an error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

import pytest

from projections.webhooks.failure_codes import CODES, FAILURES
from tests.fixtures.certificates import Certificate
from tests.fixtures.names import Names
from tests.fixtures.ports import unused_port
from tests.fixtures.raw_server import (
    RawServer,
    Step,
    close,
    hang,
    http09,
    huge_header,
    lie_about_length,
    many_headers,
    reset,
    respond,
    then_close,
    then_reset,
    truncated_chunked,
)
from tests.fixtures.webhooks_wire import LONG, SHORT, outgoing, sending, sent

BROKEN: dict[str, tuple[Step, str]] = {
    "reset_before_response": (reset(), "connection_reset"),
    "closed_before_response": (close(), "connection_reset"),
    "closed_within_headers": (then_close(b"HTTP/1.1 200 OK\r\nContent"), "connection_reset"),
    "reset_mid_response": (
        then_reset(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf"),
        "connection_reset",
    ),
    "truncated_chunked": (truncated_chunked(), "protocol_error"),
    "lie_about_length": (lie_about_length(), "protocol_error"),
    "http09_garbage": (http09(), "protocol_error"),
    "binary_garbage": (then_close(bytes(range(256)) * 9), "protocol_error"),
    "bad_chunk_size": (
        then_close(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        "protocol_error",
    ),
    "bad_length": (then_close(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"), "protocol_error"),
    "bad_header": (then_close(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"), "protocol_error"),
    "response_header_1MB": (huge_header(), "too_large_headers"),
    "many_headers": (many_headers(), "too_large_headers"),
    "long_reason": (then_close(b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n\r\n"), "too_large_headers"),
}


@pytest.mark.parametrize(("step", "code"), BROKEN.values(), ids=BROKEN)
async def test_each_broken_answer_has_its_code(step: Step, code: str) -> None:
    async with RawServer(step) as server:
        reply = await sent(server.url)

    assert reply.code == code
    assert reply.status in {None, 200}


async def test_a_sender_goes_on_after_each_broken_answer() -> None:
    async with RawServer(*(step for step, _ in BROKEN.values()), respond(204)) as server, sending() as sender:
        codes = [(await sender.send(outgoing(server.url))).code for _ in range(len(BROKEN) + 1)]

    assert codes == [*(code for _, code in BROKEN.values()), "204"]


async def test_connect_refused() -> None:
    reply = await sent(f"http://127.0.0.1:{unused_port()}/")

    assert (reply.code, reply.status, reply.body) == ("connection_refused", None, "")


async def test_dns_nxdomain() -> None:
    names = Names({})

    reply = await sent("http://nowhere.example/", resolve=names)

    assert reply.code == "dns_error"
    assert names.lookups == ["nowhere.example"]


async def test_a_name_without_addresses_is_a_dns_error() -> None:
    assert (await sent("http://empty.example/", resolve=Names({"empty.example": [[]]}))).code == "dns_error"


async def test_a_name_that_the_system_can_not_look_up_is_a_dns_error() -> None:
    assert (await sent(f"http://{'a' * 64}.invalid/")).code == "dns_error"


async def test_the_system_finds_localhost() -> None:
    async with RawServer(respond(204)) as server:
        reply = await sent(server.url_at("localhost"))

    assert reply.code == "204"
    assert server.requests[0].header("host") == f"localhost:{server.port}"


async def test_a_lookup_without_end_is_a_timeout() -> None:
    async def silent(host: str) -> Sequence[str]:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    assert (await sent("http://slow.example/", timeout=SHORT, resolve=silent)).code == "timeout"


async def test_a_resolver_that_fails_oddly_is_a_reply_that_tells_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(host: str) -> Sequence[str]:
        raise LookupError("internal.server at 10.0.0.1")

    with caplog.at_level(logging.WARNING):
        reply = await sent("http://odd.example/?token=s3cret", resolve=broken)

    assert reply.code == "network_error"
    assert "10.0.0.1" not in str(reply)
    assert "LookupError" in caplog.text
    assert "s3cret" not in caplog.text


async def test_the_second_address_of_a_name_is_tried_where_the_first_refuses() -> None:
    async with RawServer(respond(204)) as server:
        names = Names({"two.example": [["127.0.0.2", "127.0.0.1"]]})

        assert (await sent(server.url_at("two.example"), resolve=names)).code == "204"


async def test_tls_is_spoken_with_the_name_and_trusted_certificates() -> None:
    certificate = Certificate(["hooks.example"])

    async with RawServer(respond(204), certificate=certificate) as server:
        reply = await sent(
            server.url_at("hooks.example"),
            resolve=Names({"hooks.example": [["127.0.0.1"]]}),
            ssl_context=certificate.client_context(),
        )

    assert reply.code == "204"
    assert server.requests[0].header("host") == f"hooks.example:{server.port}"


async def test_tls_expired() -> None:
    certificate = Certificate(expired=True)

    async with RawServer(certificate=certificate) as server:
        reply = await sent(server.url, ssl_context=certificate.client_context())

    assert (reply.code, reply.status) == ("tls_error", None)
    assert server.requests == []


async def test_tls_wrong_host() -> None:
    certificate = Certificate(["other.example"])

    async with RawServer(certificate=certificate) as server:
        reply = await sent(server.url, ssl_context=certificate.client_context())

    assert reply.code == "tls_error"
    assert server.requests == []


async def test_tls_that_nobody_vouches_for_is_refused() -> None:
    async with RawServer(certificate=Certificate()) as server:
        reply = await sent(server.url)

    assert reply.code == "tls_error"
    assert server.requests == []


async def test_tls_to_a_server_that_does_not_speak_it() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with server:
        reply = await sent(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")

    assert reply.code == "tls_error"


async def test_a_handshake_without_end_is_cut_by_the_time_to_connect() -> None:
    async with RawServer(hang()) as server, sending() as sender:
        url = server.url.replace("http:", "https:")
        reply = await sender.send(outgoing(url, timeout=LONG, connect_timeout=SHORT))

    assert reply.code == "timeout"
    assert SHORT <= reply.took < LONG


@pytest.mark.slow
async def test_a_server_that_reads_nothing_is_cut_by_the_deadline() -> None:
    over, ended = asyncio.Event(), asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await over.wait()
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(deaf, "127.0.0.1", 0)
    async with server, sending() as sender:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        reply = await sender.send(outgoing(url, b"x" * 30_000_000, timeout=timedelta(milliseconds=300)))
        over.set()
        await ended.wait()

    assert reply.code == "timeout"


def test_all_codes_are_known_and_told_apart() -> None:
    assert len(set(CODES)) == len(CODES) == 400 + len(FAILURES)
    assert {code for _, code in BROKEN.values()} < set(FAILURES)
