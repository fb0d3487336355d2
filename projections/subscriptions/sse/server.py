"""
The server of streams: an ASGI application that streams events to browsers; none is lost while they connect again.

It needs no framework: it runs by itself under any ASGI server, and mounted in one that has routes.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias, TypeVar

from journal import ProjectionsError, hide_password
from projections.http.asgi import Receive, Scope, Send
from projections.http.server_sent_events import (
    Connection,
    EventWriter,
    connection_of,
    let_go,
    unsent,
    while_connected,
)
from projections.subscriptions.errors import InvalidSubscription
from projections.subscriptions.listening import Interest, Listener, Listening
from projections.subscriptions.settings import StreamSettings
from projections.subscriptions.sse.rendering import Render, as_json
from projections.subscriptions.sse.request import Refused, StreamRequest, client_address
from projections.subscriptions.sse.stream import StreamClient, spread

log = logging.getLogger("projections")

T = TypeVar("T")

Subscription: TypeAlias = Callable[[StreamRequest], Interest | Awaitable[Interest | None] | None]
Authorize: TypeAlias = Callable[[StreamRequest], int | Awaitable[int | None] | None]

_SAID = {401: "authentication is required", 403: "access is denied"}
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class EventStream:
    """
    Streams events to browsers and others.

    A client that comes again with ``Last-Event-ID``, as browsers do, to this process or to another of the same
    database, goes on after that event: nothing is lost and nothing comes twice. One that cannot is answered 204, which
    ends a browser's attempts: the page begins again.

    Args:
        listener: Where events come from. It serves all clients with one connection.
        subscription: Which events a client gets, from its request; None: there is nothing there (404). What comes from
            the request belongs into ``contains`` or ``params``, never into the text of a condition. May be async.
        authorize: Who may: None, or the status of the refusal, 401 or 403. May be async. By default everybody may.
        client: Returns a key for a request; clients with the same key share one limit. By default their address.
        render: Makes the text that is sent out of an event; by default JSON.
        settings: Limits and times.
    """

    def __init__(
        self,
        listener: Listener,
        subscription: Subscription,
        *,
        authorize: Authorize | None = None,
        client: Callable[[StreamRequest], str] = client_address,
        render: Render = as_json,
        settings: StreamSettings | None = None,
    ) -> None:
        self._listener = listener
        self._subscription = subscription
        self._authorize = authorize
        self._client = client
        self._render = render
        self._settings = settings or StreamSettings()
        self._lookups = asyncio.Semaphore(self._settings.lookups)
        self._counts: Counter[str] = Counter()
        self._open: set[Listening] = set()
        self._answering: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def clients(self) -> int:
        """How many there are now, and those whose stream has ended and who have not taken the end of it."""
        return self._counts.total()

    @property
    def ending(self) -> int:
        """How many of the clients have not taken the end of their stream; after ``grace`` their connection is ended."""
        return len(self._ending)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection, as ASGI 3 has it."""
        if scope["type"] == "http":
            await while_connected(receive, self._answer(StreamRequest(scope), receive, send))
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """
        End all streams at the end of the block, or when the process is to end.

        For the lifespan of an application that this one is mounted in; by itself it does that alone.
        """
        with _on_signals(self.close) if self._settings.end_on_signals else _nothing():
            try:
                yield
            finally:
                await self.aclose()

    def close(self) -> None:
        """End all streams: their clients come again, to whoever serves here by then, and go on where they were."""
        self._closed = True
        for listening in list(self._open):
            listening.close()

    async def aclose(self) -> None:
        """End all streams, and wait until they have."""
        self.close()
        for tasks in (self._answering, self._ending):
            if tasks:
                await asyncio.wait(tasks, timeout=2 * self._settings.grace.total_seconds())

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, request: StreamRequest, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        try:
            await self._check(request)
            with self._counted(self._client(request), connection_of(receive)):
                await self._stream(request, send)
        except Refused as refused:
            await refused.answer(send)

    async def _check(self, request: StreamRequest) -> None:
        if request.method != "GET":
            raise Refused(405, "only GET", allow="GET")
        status = None if self._authorize is None else await _value(self._authorize(request))
        if status is not None:
            headers = {"www_authenticate": "Bearer"} if status == 401 else {}  # noqa: PLR2004 - HTTP's
            raise Refused(status, _SAID.get(status, "refused"), **headers)

    @contextmanager
    def _counted(self, client: str, connection: Connection | None) -> Iterator[None]:
        seconds = str(max(1, round(self._settings.retry.total_seconds())))
        if self.clients >= self._settings.max_clients:
            raise Refused(503, "too many clients", retry_after=seconds)
        if self._counts[client] >= self._settings.max_clients_per:
            raise Refused(429, "too many streams of yours", retry_after=seconds)
        self._counts[client] += 1
        try:
            yield
        finally:
            if connection is not None and unsent(connection):
                task = asyncio.create_task(self._end(client, connection))
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)
            else:
                self._uncount(client)

    async def _end(self, client: str, connection: Connection) -> None:
        """Count a client until it has taken what it was sent, or its connection is ended."""
        try:
            if await let_go(connection, self._settings.grace):
                log.info(
                    "the connection of a client of group %s was ended: it did not take the end of its stream",
                    self._listener.group, extra={"action": "stream_cut_off"},
                )  # fmt: skip
        finally:
            self._uncount(client)

    def _uncount(self, client: str) -> None:
        self._counts[client] -= 1
        self._counts += Counter()  # without those that have none left

    async def _stream(self, request: StreamRequest, send: Send) -> None:
        interest = await _value(self._subscription(request))
        if interest is None:
            raise Refused(404, "there is no such stream")
        if self._closed:
            await self._come_again(send)
            return
        listening = self._listener.listen(**interest._asdict(), buffer=self._settings.buffer)
        client = StreamClient(
            self._listener,
            listening,
            send,
            settings=self._settings,
            render=self._render,
            lookups=self._lookups,
        )
        self._open.add(listening)
        try:
            if await self._begun(client, request.last_event_id):
                await client.run()
            else:
                await self._come_again(send)
        finally:
            self._open.discard(listening)
            listening.close()

    async def _come_again(self, send: Send) -> None:
        """Answer with a stream that is over."""
        writer = EventWriter(send)
        await writer.begin()
        await writer.finish(spread(self._settings.retry))

    async def _begun(self, client: StreamClient, last_event_id: str | None) -> bool:
        """Whether the stream can begin; if not, it may be able to later."""
        try:
            async with asyncio.timeout(self._settings.patience.total_seconds()):
                await client.begin(last_event_id)
        except InvalidSubscription as error:
            log.warning(
                "a stream was refused, its subscription is invalid: %s", error,
                extra={"action": "stream_refused"},
            )  # fmt: skip
            raise Refused(400, "this cannot be subscribed to") from error
        except (ProjectionsError, TimeoutError) as error:
            log.warning(
                "a client of group %s is to come again: %s",
                self._listener.group, hide_password(str(error)) or "the database did not answer in time",
                extra={"action": "stream_postponed"},
            )  # fmt: skip
            return False
        return True


async def _value(found: T | Awaitable[T]) -> T:
    return await found if inspect.isawaitable(found) else found


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _on_signals(call: Callable[[], None]) -> Iterator[None]:
    """Call something when the process is asked to end: servers only wait then for what an application does not know."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, before = asyncio.get_running_loop(), {number: signal.getsignal(number) for number in _SIGNALS}

    def heard(number: int, frame: Any) -> None:
        loop.call_soon_threadsafe(call)
        if callable(then := before[signal.Signals(number)]):
            then(number, frame)

    # Where nobody listens, the process ends by itself.
    ours = [number for number, then in before.items() if callable(then)]
    for number in ours:
        signal.signal(number, heard)
    try:
        yield
    finally:
        for number in ours:
            if signal.getsignal(number) is heard:
                signal.signal(number, before[number])
