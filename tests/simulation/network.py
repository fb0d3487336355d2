"""A network between hosts and the server: delays, cuts, resets, answers that get lost; each drawn or asked for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.simulation.loop import Host, SimulatedLoop, current_host
from tests.simulation.postgres.backend import Answer, Backend
from tests.simulation.postgres.errors import ConnectionLost, ServerError
from tests.simulation.postgres.server import Server
from tests.simulation.postgres.statements import step_of

KEEPALIVE = 2.0
"""Seconds of silence of a network that is cut after which either end takes its connection for lost."""
SLOWEST = 0.05
"""Seconds that a message takes at most where nothing is cut."""
_CONNECT_TIMEOUT = 3.0

Watch = Callable[["Link", str, str], ServerError | bool]


class Network:
    """
    Connections of all hosts to servers.

    Args:
        loop: Carries messages.
        choices: Delays are drawn from it.
        far: How many times as long as those of others most messages of workers take.
    """

    def __init__(self, loop: SimulatedLoop, choices: Random, far: float = 1.0) -> None:
        self.loop = loop
        self._far = far
        self.links: list[Link] = []
        self.watch: Watch = lambda _link, _step, _moment: False
        """
        Called as a statement is ``sent``, ``begun`` and ``done``.

        Returns what the server refuses it with, or whether the message does not arrive.
        """
        self.trace: Callable[..., None] = lambda *_: None
        self._choices = choices
        self._cut_until: dict[tuple[Host, Server], float] = {}
        self._held_up: Counter[Host] = Counter()
        """Attempts to connect that a cut holds up, also once it has ended: like messages."""

    def delay(self, host: Host) -> float:
        """Seconds that a message of a host takes: mostly a part of a millisecond, at times many."""
        chance = self._choices.random()
        if chance >= 0.95:
            return SLOWEST * self._choices.random()
        return (0.0002 + 0.0008 * chance) * (self._far if host.name.startswith("worker") else 1.0)

    def cut(self, host: Host, server: Server, seconds: float) -> None:
        """Let nothing through between a host and a server for some time."""
        until = self.loop.time() + seconds
        self._cut_until[host, server] = max(until, self._cut_until.get((host, server), 0.0))
        if seconds > KEEPALIVE:
            for link in self.links_of(host, server):
                self.loop.at(self.loop.time() + KEEPALIVE, self.loop.world, link.lose)

    def heal(self) -> None:
        """End all cuts."""
        self._cut_until.clear()

    def links_of(self, host: Host, server: Server | None = None) -> list[Link]:
        """The connections of a host, to one server or to all."""
        return [
            link
            for link in self.links
            if link.client is host and not link.lost and server in {None, link.server}
        ]

    @property
    def is_disturbed(self) -> bool:
        """Whether what a cut has held up is still on its way, or a server still has what a client has left open."""
        return any(number > 0 for number in self._held_up.values()) or any(
            link.is_held_up or link.is_left_open for link in self.links
        )

    def arrival(self, host: Host, server: Server) -> float:
        """When a message arrives that leaves now."""
        return max(self.loop.time(), self._cut_until.get((host, server), 0.0)) + self.delay(host)

    async def connect(self, server: Server) -> Link:
        """
        Connect the current host to a server.

        Raises:
            OSError: The server does not run, or nothing comes through.
        """
        host = current_host()
        waits = self.arrival(host, server) - self.loop.time()
        self._held_up[host] += waits > SLOWEST
        try:
            if waits > _CONNECT_TIMEOUT:
                await asyncio.sleep(_CONNECT_TIMEOUT)
                raise TimeoutError("connecting took too long")
            await asyncio.sleep(waits + self.delay(host))
        finally:
            self._held_up[host] -= waits > SLOWEST
        if not server.up:
            raise ConnectionRefusedError("the server does not run")
        link = Link(self, host, server)
        self.links.append(link)
        return link

    def die(self, host: Host, *, silently: bool) -> None:
        """
        Kill a host.

        Args:
            host: The host.
            silently: With its machine: nobody tells the server, which finds out after a while.
        """
        links = self.links_of(host)
        host.die()
        del self._held_up[host]
        for link in links:
            link.client_died(KEEPALIVE if silently else self.delay(host))


class Link:
    """
    One connection.

    Args:
        network: Carries it.
        client: The host at this end.
        server: What is at the other end.
    """

    def __init__(self, network: Network, client: Host, server: Server) -> None:
        self.network = network
        self.client = client
        self.server = server
        self.in_transaction = False
        self.lost = False
        self.step = ""
        """What is being done on it."""
        self.backend: Backend = server.connect(self._server_hung_up)
        self._pending: asyncio.Future[Answer] | None = None
        self._unanswered: asyncio.Future[None] | None = None
        """Also when nobody waits for the answer any more: the next statement comes after it."""
        self._arrives = {"server": 0.0, "client": 0.0}
        """When the last message in each direction arrives: none overtakes another."""
        self._ended: asyncio.Future[None] | None = None

    async def call(self, sql: str, args: Sequence[Any] = ()) -> Answer:
        """
        Send a statement, and wait for its answer.

        Raises:
            ServerError: The server's.
            ConnectionLost: It is lost; what the server did is not known.
        """
        while self._unanswered is not None and not self._unanswered.done():
            await asyncio.wait([self._unanswered])
        if self.lost:
            raise ConnectionLost("connection is closed")
        loop = self.network.loop
        pending = self._pending = loop.create_future()
        self._unanswered = loop.create_future()
        self.step = step_of(sql)
        lost = self.network.watch(self, self.step, "sent")
        if not lost:
            loop.at(self._arrival("server"), self.backend.host, self._arrived, sql, args)
        try:
            answer = await pending
        except asyncio.CancelledError:
            self.backend.cancel()
            raise
        finally:
            self._pending, self.step = None, ""
        self.in_transaction = answer.in_transaction
        return answer

    @property
    def is_held_up(self) -> bool:
        """Whether a message is on its way for longer than any that nothing keeps."""
        return not self.lost and max(self._arrives.values()) > self.network.loop.time() + SLOWEST

    @property
    def is_left_open(self) -> bool:
        """Whether a transaction is open that the client cannot end any more: its process is gone, or stands still."""
        return (self.client.dead or self.client.frozen) and self.backend.in_transaction

    def _arrival(self, end: str, after: float | None = None) -> float:
        """When a message arrives at an end that leaves now, or that is to take some seconds."""
        network = self.network
        at = network.arrival(self.client, self.server) if after is None else network.loop.time() + after
        self._arrives[end] = max(at, self._arrives[end])
        return self._arrives[end]

    def _arrived(self, sql: str, args: Sequence[Any]) -> None:
        if not self.backend.host.dead and not self.backend.running:
            self.network.loop.start(self.backend.host, self._serve(sql, args))

    async def _serve(self, sql: str, args: Sequence[Any]) -> None:
        network, step = self.network, step_of(sql)
        refusal = network.watch(self, step, "begun")
        result: Answer | ServerError
        try:
            result = await self.backend.run(sql, args, refusal if isinstance(refusal, ServerError) else None)
        except ServerError as error:
            result = error
        except Exception as error:
            network.loop.fatal = error
            raise
        network.trace(self, step, result)
        lost = network.watch(self, step, "done")
        if self.lost or (isinstance(result, ServerError) and result.fatal):
            self.backend.terminate()
        elif not lost and not self.backend.host.dead:
            network.loop.at(self._arrival("client"), self.client, self._answered, result)

    def _answered(self, result: Answer | ServerError) -> None:
        pending = self._pending
        self._nothing_is_unanswered()
        if self.lost or pending is None or pending.done():
            return
        if isinstance(result, ServerError):
            self.in_transaction = result.in_transaction
            pending.set_exception(result)
        else:
            pending.set_result(result)

    async def listen(self, channel: str, heard: Callable[[], None]) -> None:
        """Call ``heard`` for each notification, until it is lost."""
        loop = self.network.loop
        self._ended = loop.create_future()

        def notified() -> None:
            loop.at(self.network.arrival(self.client, self.server), self.client, heard)

        self.server.listening.setdefault(channel, []).append(notified)
        heard()  # what was appended while nobody listened
        await self._ended

    def close(self) -> None:
        """End it from this end; the server learns it after a while, and finishes what it does."""
        if not self.lost:
            self._lose_here()
            self._tell_server(None)

    def lose(self) -> None:
        """Both ends find that it is lost."""
        if not self.lost:
            self._lose_here()
            self._tell_server(0.0)

    def client_died(self, after: float) -> None:
        """The client is gone; the server learns it after some seconds."""
        self.lost = True
        self._tell_server(after)

    def _tell_server(self, after: float | None) -> None:
        self.network.loop.at(self._arrival("server", after), self.backend.host, self.backend.hang_up)

    def _server_hung_up(self) -> None:
        self.network.loop.at(self._arrival("client"), self.client, self._lose_here)

    def _nothing_is_unanswered(self) -> None:
        if self._unanswered is not None and not self._unanswered.done():
            self._unanswered.set_result(None)

    def _lose_here(self) -> None:
        if self.lost:
            return
        self.lost = True
        self.in_transaction = False
        self._nothing_is_unanswered()
        if self in self.network.links:
            self.network.links.remove(self)
        if self._pending is not None and not self._pending.done():
            self._pending.set_exception(ConnectionLost("connection was closed in the middle of operation"))
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
