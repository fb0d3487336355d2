"""A receiver may send whatever it likes, without end: what is read of it is bounded, in bytes, lines and reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from projections.webhooks.response_reading import FRAMING, BoundedHandler
from projections.webhooks.sender import KEEP_BODY
from tests.fixtures.raw_server import Exchange, RawServer, Step, respond
from tests.fixtures.webhooks_wire import outgoing, sending, sent

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


def endless(first: bytes, then: bytes) -> tuple[Step, Callable[[], int]]:
    """Send without end, until the client leaves; gives how many bytes were sent, too."""
    count = 0

    async def step(exchange: Exchange) -> None:
        nonlocal count
        with suppress(OSError):
            await exchange.send(first)
            while True:
                await exchange.send(then)
                count += len(then)
        exchange.close()

    return step, lambda: count


BEFORE_THE_STATUS = {
    "interim": (b"", INTERIM * 3000),
    "interim with headers": (b"", (INTERIM[:-2] + b"Link: </a>\r\n\r\n") * 3000),
    "one endless interim answer": (INTERIM[:-2], b"A: b\r\n" * 10_000),
    "headers": (OK, b"A: b\r\n" * 10_000),
    "a header without an end": (OK + b"A: ", b"b" * 65_536),
    "a reason without an end": (OK[:-2], b"b" * 65_536),
}


@pytest.mark.parametrize(("first", "then"), BEFORE_THE_STATUS.values(), ids=BEFORE_THE_STATUS)
async def test_what_comes_before_the_headers_end_is_bounded(first: bytes, then: bytes) -> None:
    step, _ = endless(first, then)

    async with RawServer(step) as server:
        reply = await sent(server.url)

    assert (reply.code, reply.status) == ("too_large_headers", None)


AFTER_THE_STATUS = {
    "a chunk's extension": (CHUNKED + b"1;a=", b"b" * 65_536),
    "extensions of chunks": (CHUNKED, (b"1;a=" + b"b" * 100 + b"\r\nx\r\n") * 600),
    "trailers": (CHUNKED + b"0\r\n", b"A: b\r\n" * 10_000),
    "a trailer without an end": (CHUNKED + b"0\r\nA: ", b"b" * 65_536),
    "chunks of a byte": (CHUNKED, b"1\r\nx\r\n" * 10_000),
}


@pytest.mark.parametrize(("first", "then"), AFTER_THE_STATUS.values(), ids=AFTER_THE_STATUS)
async def test_what_frames_a_body_is_bounded(first: bytes, then: bytes) -> None:
    step, _ = endless(first, then)

    async with RawServer(step) as server:
        reply = await sent(server.url)

    assert reply.code in {"200", "protocol_error", "too_large_headers"}  # some are limits of the parser
    assert reply.truncated == (reply.status == 200)


async def test_sixteen_interim_answers_are_passed_over_and_no_more() -> None:
    codes = []
    for number in (16, 17):

        async def interim(exchange: Exchange, number: int = number) -> None:
            await exchange.send(INTERIM * number)
            await respond(204)(exchange)

        async with RawServer(interim) as server:
            codes.append((await sent(server.url)).code)

    assert codes == ["204", "too_large_headers"]


async def test_a_flood_on_an_idle_connection_ends_it() -> None:
    gone = asyncio.Event()

    async def later(exchange: Exchange) -> None:
        await respond(200)(exchange)
        with suppress(OSError):
            while True:
                await exchange.send(INTERIM * 1000)
        gone.set()

    async with RawServer(later, respond(204)) as server, sending() as sender:
        first = await sender.send(outgoing(server.url))
        async with asyncio.timeout(300):
            await gone.wait()
        second = await sender.send(outgoing(server.url))

    assert (first.code, second.code) == ("200", "204")


async def test_no_answer_costs_more_than_its_budget_of_reads_lines_and_bytes() -> None:
    """Counted, not timed: what a flood of anything makes the parser do."""
    parsed: list[int] = []

    class Counting(BoundedHandler):
        def feed_data(self, data: object, size: int = 0) -> None:
            parsed.append(1)
            super().feed_data(data, size)

    step, count = endless(b"", INTERIM * 10_000)
    async with RawServer(step) as server, sending() as sender:
        keeping, closing = sender._open_sessions()
        for session in (keeping, closing):
            assert session.connector is not None
            assert session.connector._factory.func is BoundedHandler
            session.connector._factory = lambda: Counting(asyncio.get_running_loop(), FRAMING)
        reply = await sender.send(outgoing(server.url))

    assert reply.code == "too_large_headers"
    assert len(parsed) <= 16 + 2048 // len(INTERIM) + 1
    assert count() < 50 * 2**20


async def test_a_body_in_single_bytes_costs_as_much_as_a_long_one() -> None:
    handler = BoundedHandler(asyncio.get_running_loop(), 2 * KEEP_BODY + FRAMING)
    handler.set_response_params()
    handler.data_received(OK + b"\r\n")
    reads = 0
    while handler.exception() is None and reads < 10_000:
        handler.data_received(b"x")
        reads += 1

    assert reads <= (2 * KEEP_BODY + FRAMING) // 256 + 1
