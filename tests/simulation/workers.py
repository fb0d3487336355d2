"""The processes that run the projection: started, killed, stopped, frozen, and started again in each other's place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any

from tests.simulation.loop import Host, SimulatedLoop
from tests.simulation.network import Network

_LOOK_EVERY = 0.1
_STOPS = 5.0
"""Seconds that workers may take to stop."""
_LOCKED = 10.0
"""Seconds after which what a process that hangs has locked is free; another one that hangs may get it then."""


@dataclass(slots=True)
class Worker:
    """A process that runs the projection, and those that come after it in its place."""

    number: int
    host: Host
    stop: asyncio.Event
    task: asyncio.Task[None] | None = None
    hangs: bool = False
    """It is frozen for ever: nobody waits for it."""
    leaves: bool = False
    """It was asked to end."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is to be expected of it."""
        return self.host.dead or self.hangs or (self.task is not None and self.task.done())


Work = Callable[[Worker, bool], Coroutine[Any, Any, None]]
"""What a worker does until it is stopped; whether it takes over what others hold."""


class Workers:
    """
    All workers of a run, by their places.

    Args:
        loop: Runs them.
        network: Their connections.
        work: What each does.
        tell: Adds a line to the trace.
    """

    def __init__(
        self, loop: SimulatedLoop, network: Network, work: Work, tell: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._network = network
        self._work = work
        self._tell = tell
        self._starts = 0
        self._places: dict[int, Worker] = {}
        self._hang = 0
        self._are_over = False

    def start(self, number: int, *, take_over: bool = False) -> None:
        """Start a process in a place."""
        self._starts += 1
        host = Host(f"worker {number}.{self._starts}")
        worker = self._places[number] = Worker(number, host, asyncio.Event())
        worker.task = self._loop.start(host, self._work(worker, take_over))
        self._tell(f"{host} starts")

    def join(self, *, take_over: bool) -> None:
        """Start one more process."""
        self.start(max(self._places, default=0) + 1, take_over=take_over)

    @property
    def places(self) -> Collection[int]:
        """The numbers of the places in which a process has started."""
        return self._places.keys()

    def host(self, number: int) -> Host:
        """The process that is in a place now."""
        return self._places[number].host

    def place_of(self, host: Host) -> int | None:
        """The place that a process is in."""
        for number, worker in self._places.items():
            if worker.host is host:
                return number
        return None

    def steps_of(self, number: int) -> list[str]:
        """What a worker is doing, by the statements that it waits for."""
        links = self._network.links_of(self.host(number)) if number in self._places else []
        return sorted({link.step for link in links if link.step})

    # What is done to them

    def kill(self, number: int, *, silently: bool, again_after: float) -> None:
        """End a process at once; another one comes in its place."""
        if not self.host(number).dead:
            self._network.die(self.host(number), silently=silently)
            self._later(again_after, self._start_again, number)

    def hang(self, number: int, *, again_after: float) -> None:
        """Stop a process for ever, whose connections stay; another one comes in its place."""
        self._places[number].hangs = self.host(number).frozen = True
        self._hang += 1
        self._later(again_after, self._start_again, number)

    def freeze(self, number: int, seconds: float) -> None:
        """Stop a process for a while."""
        if not self._places[number].hangs:
            self.host(number).frozen = True
            self._later(seconds, self._thaw, self.host(number))

    def _thaw(self, host: Host) -> None:
        if any(worker.host is host and worker.hangs for worker in self._places.values()):
            return
        host.frozen = False
        self._loop.wake(host)
        self._tell(f"{host} goes on")

    def stop(self, number: int, *, again_after: float) -> None:
        """Ask a process to end in order; another one comes in its place."""
        worker = self._places[number]
        worker.leaves = True
        self._loop.at(self._loop.time(), worker.host, worker.stop.set)
        self._later(0.5 + again_after, self._start_again, number)

    def _start_again(self, number: int) -> None:
        """Once it has ended; when all faults are over, whoever is missing has been started."""
        if self._are_over:
            return
        if self._places[number].has_ended:
            self.start(number)
        else:
            self._later(0.5, self._start_again, number)

    def _later(self, seconds: float, callback: Callable[..., object], *args: object) -> None:
        self._loop.at(self._loop.time() + seconds, self._loop.world, callback, *args)

    # The end

    async def heal(self, suffices: Callable[[Collection[int]], bool]) -> None:
        """
        Have those go on that stand still, and none be stopped any more.

        Args:
            suffices: Whether the processes in some places are enough; else those that are missing are started, too.
        """
        self._are_over = True
        for worker in self._places.values():
            if worker.host.frozen:
                self._thaw(worker.host)
        missing = [number for number, one in self._places.items() if one.has_ended or one.leaves]
        if suffices(self._places.keys() - missing):
            return
        for number in missing:
            while not self._places[number].has_ended:
                await asyncio.sleep(_LOOK_EVERY)
            self.start(number)

    async def end(self) -> str | None:
        """Ask all to end; returns who does not."""
        for worker in self._places.values():
            self._loop.at(self._loop.time(), worker.host, worker.stop.set)
        seconds = _STOPS + _LOCKED * max(self._hang, 1)
        until = self._loop.time() + seconds
        while self._loop.time() < until and (left := self._left()):
            await asyncio.sleep(_LOOK_EVERY)
        if left := self._left():
            return f"{', '.join(left)} did not stop within {seconds:g} s"
        return None

    def _left(self) -> list[str]:
        return [str(worker.host) for worker in self._places.values() if not worker.has_ended]
