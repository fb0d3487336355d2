"""What tests of streams share: a real server in this process, and a client that sees every byte."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, Self

import uvicorn

from journal import Database, PollPacing
from projections.subscriptions import (
    EventStream,
    Interest,
    Listener,
    ListenerSettings,
    StreamRequest,
    StreamSettings,
    settled_matches,
)

QUICK = ListenerSettings(pacing=PollPacing(timedelta(milliseconds=1), timedelta(milliseconds=5)))
ALL = Interest(topics=["Landed"])


class Block(NamedTuple):
    """A block of a stream, as a client of the format understands it."""

    raw: bytes
    id: str | None
    data: str | None
    event: str | None
    retry: int | None

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        fields: dict[str, list[str]] = {}
        for line in raw.decode().split("\n"):
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
        retry = fields.get("retry")
        return cls(
            raw,
            fields["id"][-1] if "id" in fields else None,
            "\n".join(fields["data"]) if "data" in fields else None,
            fields["event"][-1] if "event" in fields else None,
            int(retry[-1]) if retry else None,
        )

    @property
    def place(self) -> tuple[str, int]:
        found = json.loads(self.data or "null")
        return found["source_id"], found["seq_nr"]


class Client:
    """A connection, and the answer on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._body = b""
        self._over = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.last_id: str | None = None

    async def ask(self, path: str, method: str, headers: dict[str, str]) -> None:
        lines = [f"{method} {path} HTTP/1.1", "host: test", *(f"{n}: {v}" for n, v in headers.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())
        first, *fields = (await self._reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = dict(field.lower().split(": ", 1) for field in fields)

    async def block(self) -> Block:
        """The next block."""
        while b"\n\n" not in self._body:
            chunk = await self._chunk()
            assert chunk, f"the stream is over, with {self._body!r} left"
            self._body += chunk
        raw, _, self._body = self._body.partition(b"\n\n")
        found = Block.parse(raw)
        self.last_id = found.id or self.last_id
        return found

    async def events(self, number: int) -> list[Block]:
        """The next blocks that are events."""
        found: list[Block] = []
        async with asyncio.timeout(30):
            while len(found) < number:
                block = await self.block()
                if block.data is not None:
                    found.append(block)
        return found

    async def places(self, number: int) -> list[tuple[str, int]]:
        return [block.place for block in await self.events(number)]

    async def rest(self) -> list[Block]:
        """All that comes until the server ends the answer in order."""
        async with asyncio.timeout(30):
            while chunk := await self._chunk():
                self._body += chunk
        blocks = [Block.parse(raw) for raw in self._body.split(b"\n\n")[:-1]]
        for block in blocks:
            self.last_id = block.id or self.last_id
        return blocks

    async def events_until_broken(self) -> list[Block]:
        """All that comes until the server ends the connection in the middle."""
        found: list[Block] = []
        try:
            while True:
                found += await self.events(1)
        except (asyncio.IncompleteReadError, ConnectionError):
            return found

    async def body(self) -> bytes:
        """Of an answer that is no stream."""
        return await self._reader.readexactly(int(self.headers.get("content-length", 0)))

    async def _chunk(self) -> bytes:
        if self._over:
            return b""
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        chunk = (await self._reader.readexactly(size + 2))[:-2]
        self._over = size == 0
        return chunk

    def close(self) -> None:
        self._writer.close()


class Server(uvicorn.Server):
    """A server in a test's event loop."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def served(app: Any, **options: Any) -> AsyncIterator[int]:
    """Serve an application for the length of the block; gives the port."""
    listening = socket.create_server(("127.0.0.1", 0))
    # Accepted connections inherit it: what a client does not read soon waits with the application.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    config = uvicorn.Config(
        app, log_config=None, loop="none", ws="none", timeout_graceful_shutdown=20, **options
    )
    server = Server(config)
    task = asyncio.create_task(server.serve([listening]))
    try:
        while not server.started:
            assert not task.done()
            await asyncio.sleep(0)
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        async with asyncio.timeout(30):
            await task
        listening.close()


@asynccontextmanager
async def asked(
    port: int, path: str = "/", *, method: str = "GET", last_id: str | None = None, **headers: str
) -> AsyncIterator[Client]:
    """Ask, over a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**14)
    client = Client(reader, writer)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if last_id is not None:
        named["Last-Event-ID"] = last_id
    try:
        async with asyncio.timeout(30):
            await client.ask(path, method, named)
        yield client
    finally:
        client.close()


def everything(_: StreamRequest) -> Interest:
    return ALL


def quick(**values: Any) -> StreamSettings:
    return StreamSettings(**{"end_on_signals": False, **values})


@asynccontextmanager
async def streaming(
    database: Database, *, group: str = "feed", subscription: Any = everything, listener: Listener | None = None,
    settings: StreamSettings | None = None, **options: Any,
) -> AsyncIterator[tuple[EventStream, int]]:  # fmt: skip
    """Serve a stream for the length of the block; gives it and its port."""
    own = listener or Listener(database, group, settings=QUICK)
    stream = EventStream(own, subscription, settings=settings or quick(), **options)
    try:
        async with served(stream) as port:
            try:
                yield stream, port
            finally:
                stream.close()
    finally:
        await own.close()


async def settled(database: Database) -> int:
    async with database.session() as session:
        return await settled_matches(session)


async def becomes(true: Callable[[], bool]) -> None:
    """Let everything else go on until something is so."""
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0)
