"""What becomes of an answer, whatever it is."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from datetime import timedelta

import pytest

from projections.webhooks.failure_codes import CODES
from projections.webhooks.retry_policy import is_success
from tests.fixtures.raw_server import (
    RawServer,
    Step,
    drip,
    gzip_bomb,
    hang,
    never_closing_body,
    raw,
    respond,
    stream,
    then_hang,
    then_reset,
)
from tests.fixtures.webhooks_wire import LONG, SHORT, cut_off, outgoing, sending, sent

STATUSES = (200, 201, 204, 299, 301, 302, 304, 307, 308, 400, 404, 410, 422, 429, 500, 502, 503, 504, 599)


@pytest.mark.parametrize("status", STATUSES)
async def test_status_matrix(status: int) -> None:
    async with RawServer(respond(status)) as server:
        reply = await sent(server.url)

    assert (reply.code, reply.status) == (str(status), status)
    assert is_success(status) == (status < 300)
    assert reply.code in CODES


@pytest.mark.parametrize("line", ["101 Switching Protocols", "600 Made Up", "999 Made Up"])
async def test_a_status_that_is_no_answer_is_a_protocol_error(line: str) -> None:
    async with RawServer(then_hang(f"HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n".encode())) as server:
        reply = await sent(server.url, timeout=timedelta(seconds=1))

    assert (reply.code, reply.status) == ("protocol_error", None)


async def test_interim_answers_are_passed_over() -> None:
    interim = b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"

    async with RawServer(raw(interim + b"HTTP/1.1 204 No Content\r\n\r\n")) as server:
        reply = await sent(server.url)

    assert reply.code == "204"


async def test_what_a_retry_is_planned_by_is_in_the_reply() -> None:
    headers = {"Retry-After": "120", "Date": "Sat, 01 Jan 2000 00:00:00 GMT"}

    async with RawServer(respond(429, b"slow down", headers=headers)) as server:
        reply = await sent(server.url)

    assert (reply.retry_after, reply.date) == ("120", "Sat, 01 Jan 2000 00:00:00 GMT")
    assert (reply.body, reply.truncated) == ("slow down", False)


async def test_a_header_of_any_bytes_is_kept_as_text_that_can_be_stored() -> None:
    async with RawServer(respond(503, headers={"Retry-After": "\xff\xfe" + "9" * 500})) as server:
        reply = await sent(server.url)

    assert reply.retry_after is not None
    assert len(reply.retry_after.encode()) <= 400


async def test_timeout_before_headers() -> None:
    async with RawServer(hang()) as server:
        reply = await sent(server.url, timeout=SHORT)

    assert (reply.code, reply.status, reply.body) == ("timeout", None, "")
    assert SHORT <= reply.took < LONG


async def test_timeout_within_headers() -> None:
    async with RawServer(then_hang(b"HTTP/1.1 200 OK\r\nContent-Le")) as server:
        assert (await sent(server.url, timeout=SHORT)).code == "timeout"


async def test_drip_body_after_200() -> None:
    reply = await cut_off(drip())

    assert (reply.code, reply.status, reply.truncated) == ("timeout", 200, True)
    assert set(reply.body) == {"."}
    assert SHORT <= reply.took < LONG


async def test_never_closing_body() -> None:
    reply = await cut_off(never_closing_body())

    assert (reply.code, reply.status, reply.body) == ("timeout", 200, "and then")


@pytest.mark.slow
@pytest.mark.parametrize("step", [drip(status=410), never_closing_body(503)], ids=["410", "503"])
async def test_a_failure_that_never_ends_keeps_its_status(step: Step) -> None:
    reply = await cut_off(step)

    assert reply.code in {"410", "503"}
    assert reply.code == str(reply.status)
    assert reply.truncated


async def test_a_failure_that_breaks_off_keeps_its_status() -> None:
    async with RawServer(then_reset(b"HTTP/1.1 500 Oops\r\nContent-Length: 99\r\n\r\nhalf")) as server:
        reply = await sent(server.url)

    assert (reply.code, reply.status, reply.body, reply.truncated) == ("500", 500, "half", True)


async def test_response_10GB_stream_capped() -> None:
    async with RawServer(stream(10_000_000_000)) as server:
        reply = await sent(server.url)

    assert (reply.code, reply.status, reply.truncated) == ("200", 200, True)
    assert reply.body == "x" * 65536


@pytest.mark.slow
async def test_gzip_bomb_capped() -> None:
    async with RawServer(gzip_bomb(100_000_000)) as server, sending(keep_body=1000) as sender:
        tracemalloc.start()
        try:
            reply = await sender.send(outgoing(server.url))
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert (reply.code, reply.body, reply.truncated) == ("200", "0" * 1000, True)
    assert most < 5_000_000  # one piece of 64 KiB from the network inflates to 65 MB


async def test_a_compressed_body_that_inflates_to_nothing_has_an_end() -> None:
    header = zlib.compressobj(wbits=31).flush(zlib.Z_SYNC_FLUSH)
    empty = b"\x00\x00\x00\xff\xff" * 100_000  # stored blocks of no bytes

    async with RawServer(respond(200, header + empty, headers={"Content-Encoding": "gzip"})) as server:
        reply = await sent(server.url)

    assert (reply.code, reply.body, reply.truncated) == ("200", "", True)


@pytest.mark.parametrize(
    ("encoding", "encoded"),
    [
        ("gzip", gzip.compress(b"fine", mtime=0)),
        ("X-GZip", gzip.compress(b"fine", mtime=0)),
        ("deflate", zlib.compress(b"fine")),
    ],
)
async def test_a_compressed_body_is_inflated(encoding: str, encoded: bytes) -> None:
    async with RawServer(respond(200, encoded, headers={"Content-Encoding": encoding})) as server:
        reply = await sent(server.url)

    assert (reply.code, reply.body, reply.truncated) == ("200", "fine", False)


async def test_a_body_that_is_not_compressed_as_it_says_is_kept_as_it_is() -> None:
    async with RawServer(respond(200, b"plain", headers={"Content-Encoding": "gzip"})) as server:
        reply = await sent(server.url)

    assert (reply.code, reply.body) == ("200", "plain")


async def test_response_invalid_utf8_and_NUL() -> None:
    async with RawServer(respond(200, b"a\0b\xffc\xed\xa0\x80d\xc3\xbc")) as server:
        reply = await sent(server.url)

    assert reply.body == "a\ufffdb\ufffdc\ufffd\ufffd\ufffdd\xfc"
    assert not reply.truncated


async def test_a_body_of_bytes_that_are_no_text_takes_no_more_room_than_others() -> None:
    async with RawServer(respond(200, b"\xff" * 1000)) as server, sending(keep_body=1000) as sender:
        reply = await sender.send(outgoing(server.url))

    assert reply.body == "\ufffd" * 333
    assert reply.truncated


@pytest.mark.parametrize(("size", "truncated"), [(999, False), (1000, False), (1001, True)])
async def test_truncated_says_whether_there_was_more(size: int, truncated: bool) -> None:
    async with RawServer(respond(200, b"x" * size)) as server, sending(keep_body=1000) as sender:
        reply = await sender.send(outgoing(server.url))

    assert (len(reply.body), reply.truncated) == (min(size, 1000), truncated)


async def test_a_body_cut_within_a_character_ends_before_it() -> None:
    async with RawServer(respond(200, "aü".encode() * 9)) as server, sending(keep_body=5) as sender:
        reply = await sender.send(outgoing(server.url))

    assert (reply.body, reply.truncated) == ("aüa", True)


async def test_a_body_that_breaks_off_within_a_character_ends_before_it() -> None:
    reply = await cut_off(then_hang(b"HTTP/1.1 200 OK\r\n\r\na\xc3"))

    assert (reply.code, reply.body, reply.truncated) == ("timeout", "a", True)


async def test_nothing_may_be_kept() -> None:
    async with RawServer(respond(200, b"secret")) as server, sending(keep_body=0) as sender:
        reply = await sender.send(outgoing(server.url))

    assert (reply.code, reply.body, reply.truncated) == ("200", "", True)
