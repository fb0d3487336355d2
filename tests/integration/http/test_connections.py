"""Connections that are left undone, and as many as a client can make: what is served goes on."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from projections.http.connection_limits import ConnectionLimits, OpenConnections
from projections.http.serving import serving
from tests.fixtures.http import ANY_PORT

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[..., Awaitable[Stream]]

LONG, SHORT = timedelta(hours=1), timedelta(milliseconds=50)
PATIENT = ConnectionLimits(head=LONG, body=LONG, idle=LONG, taking=LONG)
IMPATIENT = ConnectionLimits(head=SHORT, body=SHORT, idle=SHORT, taking=SHORT)
WAITING_FOR_READERS = replace(PATIENT, taking=SHORT)
GET = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST /%b HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n"


class App:
    """Answers at once, never ends an answer, or begins none."""

    def __init__(self) -> None:
        self.working = asyncio.Semaphore(0)
        self.streaming = asyncio.Semaphore(0)
        self.ended = asyncio.Event()
        self.finish = asyncio.Event()
        self.app = Starlette(
            routes=[
                Route("/health", self._health, methods=["GET", "POST"]),
                Route("/large", self._large),
                Route("/stream", self._stream),
                Route("/work", self._work),
                Route("/read", self._read, methods=["POST"]),
            ]
        )

    async def _health(self, _: Request) -> Response:
        return Response("well")

    async def _large(self, _: Request) -> Response:
        return Response(bytes(50_000_000))

    async def _stream(self, _: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            try:
                yield b"begun"
                self.streaming.release()
                while True:
                    await asyncio.sleep(0)
                    yield bytes(1_000_000)
            finally:
                self.ended.set()

        return StreamingResponse(parts())

    async def _work(self, _: Request) -> Response:
        self.working.release()
        await self.finish.wait()
        return Response("done")

    async def _read(self, request: Request) -> Response:
        return Response(await request.body())


@asynccontextmanager
async def served(limits: ConnectionLimits) -> AsyncIterator[tuple[App, Connect]]:
    """An application, and what connects to it and sends something."""
    app, writers = App(), []

    async def connect(sent: bytes = b"", peer: str = "127.0.0.1") -> Stream:
        reader, writer = await asyncio.open_connection(address.host, address.port, local_addr=(peer, 0))
        writers.append(writer)
        writer.write(sent)
        return reader, writer

    async with asyncio.timeout(300), serving(ANY_PORT, app.app, limits=limits) as address:
        try:
            yield app, connect
        finally:
            app.finish.set()
            for writer in writers:
                writer.transport.abort()
            await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


async def until_ended(stream: Stream, trickle: bytes = b"") -> bytes:
    """The first that came until the server ended the connection, though a byte was sent again and again."""
    reader, writer = stream
    ending = asyncio.create_task(_read_all(reader))
    while not (await asyncio.wait([ending], timeout=0.005 if trickle else None))[0]:
        writer.write(trickle)
    return ending.result()


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    first = b""
    with suppress(ConnectionError):
        while part := await reader.read(1_000_000):
            first = first or part
    return first


async def worked_for(app: App, connect: Connect) -> Stream:
    """A request that the application works for; where a busy machine is late with its head, another."""
    while True:
        reader, writer = await connect(GET.replace(b"health", b"work"))
        while app.working.locked() and not reader.at_eof() and reader.exception() is None:
            await asyncio.sleep(0.001)
        if not app.working.locked():
            await app.working.acquire()
            return reader, writer


async def answered(stream: Stream) -> int:
    line = await stream[0].readline()
    return int(line.split()[1]) if line else 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "trickle"),
    [
        pytest.param(b"", b"", id="nothing is sent"),
        pytest.param(b"", b"\n", id="empty lines, one after the other"),
        pytest.param(b"GET /health HTTP/1.1\r\nhost: localhost\r\n", b"", id="headers that do not end"),
        pytest.param(b"GET /health HTTP/1.1\r\nx: ", b"y", id="headers that go on, byte by byte"),
        pytest.param(POST % b"read", b"", id="a body that does not come"),
        pytest.param(POST % b"read", b"x", id="a body that comes byte by byte"),
        pytest.param(POST % b"health", b"x", id="a body that nobody waits for, byte by byte"),
        pytest.param(GET, b"", id="no other request"),
        pytest.param(GET, b"\n", id="empty lines instead of another request"),
        pytest.param(GET, b"G", id="another request, byte by byte"),
    ],
)
async def test_what_a_client_leaves_undone_ends_its_connection(sent: bytes, trickle: bytes) -> None:
    async with served(IMPATIENT) as (_, connect):
        await until_ended(await connect(sent), trickle)


@pytest.mark.parametrize("headers", [b"", b"connection: close\r\n"])
async def test_an_answer_that_is_not_taken_ends_its_connection(headers: bytes) -> None:
    async with served(WAITING_FOR_READERS) as (_, connect):
        request = b"GET /large HTTP/1.1\r\nhost: localhost\r\n" + headers + b"\r\n"
        reader, writer = await connect(request)
        assert await answered((reader, writer)) == 200
        writer.transport.pause_reading()  # what the kernel holds is all that is taken
        while not writer.transport.is_closing():  # a byte that the server refuses tells
            writer.write(b"x")
            await asyncio.sleep(0.005)


async def test_a_stream_that_is_not_taken_ends_for_the_application_too() -> None:
    async with served(WAITING_FOR_READERS) as (app, connect):
        _, writer = await connect(b"GET /stream HTTP/1.1\r\nhost: localhost\r\n\r\n")
        writer.transport.pause_reading()
        await app.ended.wait()


async def test_who_works_slowly_for_an_answer_has_its_time() -> None:
    """No limit is for the application: what it takes is its own business."""
    async with served(IMPATIENT) as (app, connect):
        working = await worked_for(app, connect)
        for _ in range(3):  # each as long as all limits
            await until_ended(await connect())
        app.finish.set()

        assert await answered(working) == 200


async def test_a_new_connection_takes_the_place_of_the_one_that_is_waited_for_longest() -> None:
    async with served(ConnectionLimits(total=8, per_peer=4, head=LONG, idle=LONG)) as (app, connect):
        working = await connect(GET.replace(b"health", b"work"))
        await app.working.acquire()
        held = [await connect(b"GET") for _ in range(4)]

        assert await answered(await connect(GET)) == 200
        assert [await until_ended(one) for one in held[:2]] == [b"", b""]
        app.finish.set()
        assert await answered(working) == 200
        held[3][1].write(GET.removeprefix(b"GET"))
        assert await answered(held[3]) == 200


async def test_who_holds_most_makes_room_for_anotherpeer_of() -> None:
    async with served(ConnectionLimits(total=10, per_peer=8, head=LONG)) as (_, connect):
        greedy = [await connect(b"GET", "127.0.0.2") for _ in range(8)]
        modest = [await connect(b"GET", "127.0.0.3") for _ in range(2)]

        assert await answered(await connect(GET)) == 200
        assert await until_ended(greedy[0]) == b""
        for _, writer in modest:
            writer.write(GET.removeprefix(b"GET"))
        assert [await answered(one) for one in modest] == [200, 200]


async def test_streams_of_a_peer_do_not_keep_its_probes_out() -> None:
    async with served(ConnectionLimits(total=8, per_peer=4, taking=LONG)) as (app, connect):
        streams = [await connect(GET.replace(b"health", b"stream")) for _ in range(4)]
        for _ in streams:
            await app.streaming.acquire()

        assert await answered(await connect(GET)) == 200
        await until_ended(streams[0])


async def test_a_connection_is_refused_where_all_are_worked_for() -> None:
    async with served(ConnectionLimits(total=8, per_peer=4)) as (app, connect):
        working = [await connect(GET.replace(b"health", b"work")) for _ in range(4)]
        for _ in working:
            await app.working.acquire()

        refused = await until_ended(await connect())
        app.finish.set()

        assert refused.startswith(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n")
        assert [await answered(one) for one in working] == [200] * 4


@pytest.mark.slow
async def test_health_answers_while_thousands_are_held_open() -> None:
    """More than the server has places for, from several addresses, none with a whole request."""
    async with served(PATIENT) as (_, connect):
        for number in range(1_100):
            await connect(b"GET / HTTP/1.1\r\n", f"127.0.0.{2 + number % 3}")

        for _ in range(3):
            assert await answered(await connect(GET)) == 200


def test_connections_leave_files_for_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    connections = OpenConnections(ConnectionLimits(total=1000, per_peer=1000))

    assert (connections._total, connections._per_peer) == (64, 32)


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        (("10.1.2.3", 1), "10.1.2.3"),
        (("::ffff:10.1.2.3", 1, 0, 0), "10.1.2.3"),
        (("2001:db8:1:2:3::4", 1, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::/64"),
        (None, ""),
    ],
)
def test_a_peer_is_an_address_or_a_network(name: Any, peer: str) -> None:
    from projections.http.connection_limits import peer_of

    assert peer_of(name) == peer
