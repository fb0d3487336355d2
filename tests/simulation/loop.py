"""
An event loop whose clock is a number, and whose order is drawn from one generator of random numbers.

Each process of a simulation is a :class:`Host`. A callback belongs to the host whose context it was made in. Callbacks
of one host run in the order in which they were added, as asyncio promises; which host goes on next is drawn. When no
host has anything to do, the clock goes on to the next timer. Nothing here reads a clock, a file or a socket.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NoReturn

_HOST: contextvars.ContextVar[Host] = contextvars.ContextVar("host")
_CLOSES = 100
"""How often a coroutine that waits in its own clean-up is closed before it is given up."""


class Livelock(Exception):
    """So many callbacks have run that the run will hardly end."""


class Host:
    """
    A process that can be frozen, and die.

    Args:
        name: For the trace.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[_Callback] = deque()
        self.dead = False
        self.frozen = False
        self.context = contextvars.copy_context()
        self.context.run(_HOST.set, self)

    def __str__(self) -> str:
        return self.name

    @property
    def runs(self) -> bool:
        """Whether it can go on now."""
        return bool(self.ready) and not self.frozen

    def die(self) -> None:
        """Stop for ever, as SIGKILL does it: nothing is cleaned up, and nothing runs again."""
        self.dead = True
        self.ready.clear()


def current_host() -> Host:
    """The host that the running callback belongs to."""
    return _HOST.get()


class _Callback(asyncio.TimerHandle):
    """
    A callback of a host: asyncio's handle, made without what that keeps for debugging.

    Args:
        when: When it is to run.
        callback: What runs.
        args: Its arguments.
        context: It runs in.
        host: Whose it is.
    """

    __slots__ = ("host",)

    def __init__(
        self, when: float, callback: Any, args: tuple[Any, ...], context: contextvars.Context, host: Host
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self.host = host

    def __repr__(self) -> str:
        return f"<callback of {self.host}>"

    def cancel(self) -> None:
        """Leave it where it is: it is passed over when its turn comes."""
        self._cancelled = True
        self._callback = self._args = None


class SimulatedTask(asyncio.Task[Any]):
    """A task whose place in a set depends on when it was made, and not on where it is in memory."""

    _numbers = itertools.count()

    def __init__(self, coroutine: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._hash = next(self._numbers)  # the task is put into a set while it is made
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._hash


class SimulatedLoop(asyncio.BaseEventLoop):
    """
    Runs hosts one callback at a time.

    Args:
        choices: Which host goes on is drawn from it.
        most_steps: Callbacks after which it raises :class:`Livelock`.
    """

    def __init__(self, choices: Random, most_steps: int = 2_000_000) -> None:
        super().__init__()
        self.choices = choices
        self.steps = 0
        self._most_steps = most_steps
        self._now = 0.0
        self._timers: list[tuple[float, int, _Callback]] = []
        self._timer_numbers = itertools.count()
        self._hosts: dict[Host, None] = {}
        self._tasks: list[SimulatedTask] = []
        self.errors: list[dict[str, Any]] = []
        self.fatal: Exception | None = None
        """Raised at once: the simulation itself is at fault."""
        self.world = Host("world")
        self.set_exception_handler(lambda _, context: self.errors.append(context))
        SimulatedTask._numbers = itertools.count()

    def time(self) -> float:
        """Seconds since the simulation began."""
        return self._now

    def call_soon(
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Run a callback when its host goes on; see :meth:`asyncio.loop.call_soon`."""
        context = context if context is not None else contextvars.copy_context()
        host = context.get(_HOST, self.world)
        handle = _Callback(self._now, callback, args, context, host)
        if not host.dead:
            host.ready.append(handle)
            self._hosts[host] = None
        return handle

    def call_at(
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback of the same host at a time; see :meth:`asyncio.loop.call_at`."""
        context = context if context is not None else contextvars.copy_context()
        return self._call_at(when, callback, args, context, context.get(_HOST, self.world))

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback of the same host after some seconds."""
        return self.call_at(self._now + max(delay, 0.0), callback, *args, context=context)

    def at(self, when: float, host: Host, callback: Callable[..., object], *args: object) -> None:
        """Run a callback of a host at a time."""
        self._call_at(when, callback, args, host.context, host)

    def _call_at(
        self, when: float, callback: Any, args: tuple[Any, ...], context: contextvars.Context, host: Host
    ) -> _Callback:
        timer = _Callback(when, callback, args, context, host)
        heapq.heappush(self._timers, (when, next(self._timer_numbers), timer))
        return timer

    def _run_once(self) -> None:
        """Run callbacks until the loop is stopped."""
        while not self._stopping:
            if self.fatal is not None:
                raise self.fatal
            runnable = [host for host in self._hosts if host.ready and not host.frozen]
            if not runnable:
                self._go_on_to_the_next_timer()
                continue
            host = runnable[0] if len(runnable) == 1 else self.choices.choice(runnable)
            handle = host.ready.popleft()
            if not handle._cancelled:
                self._run(handle)

    def _run(self, handle: _Callback) -> None:
        self.steps += 1
        if self.steps > self._most_steps:
            raise Livelock(f"{self.steps} callbacks have run by {self._now:.3f} s")
        try:
            handle._context.run(handle._callback, *handle._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as asyncio does it
            self.call_exception_handler({"message": f"exception in a {handle!r}", "exception": error})

    def _go_on_to_the_next_timer(self) -> None:
        timers = self._timers
        self._hosts = {host: None for host in self._hosts if host.ready}
        while timers:
            when, _, timer = heapq.heappop(timers)
            host = timer.host
            if timer._cancelled or host.dead:
                continue
            self._now = max(self._now, when)
            host.ready.append(timer)
            self._hosts[host] = None
            if not timers or timers[0][0] > self._now:
                return
        if not any(host.runs for host in self._hosts):
            raise Livelock(f"nothing is left to happen after {self._now:.3f} s")

    def _process_events(self, event_list: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody waits in another thread."""

    call_soon_threadsafe = call_soon
    """There is one thread: asyncio asks for it when it ends asynchronous generators."""

    def run_in_executor(self, *args: Any, **options: Any) -> NoReturn:
        """Refuse threads."""
        raise NotImplementedError("a simulation has no threads")

    def create_task(self, coroutine: Any, **options: Any) -> SimulatedTask:
        """Make a task of the same host; see :meth:`asyncio.loop.create_task`."""
        task = SimulatedTask(coroutine, loop=self, **options)
        # Kept: a task that is forgotten while it waits would run its clean-up whenever that is noticed.
        self._tasks.append(task)
        if len(self._tasks) > 4096:
            self._tasks = [one for one in self._tasks if not one.done()]
        return task

    def wake(self, host: Host) -> None:
        """Let a host go on that was frozen."""
        if host.ready:
            self._hosts[host] = None

    def start(self, host: Host, coroutine: Coroutine[Any, Any, Any]) -> SimulatedTask:
        """Run a coroutine as a task of a host."""
        return self.create_task(coroutine, context=host.context)

    def dispose(self) -> None:
        """End what still waits; nothing of it runs in any loop again."""
        self.close()  # first: asyncio would have generators end in it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for task in self._tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    _close(task.get_coro())
            self._tasks.clear()
            self._timers.clear()
            self._hosts.clear()


def _close(coroutine: Any) -> None:
    for _ in range(_CLOSES):
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001 - it waits again, or what it cleans up is gone
            continue
        return


@contextmanager
def simulated_loop(choices: Random) -> Iterator[SimulatedLoop]:
    """Lend a loop, and end with it what still waits."""
    loop = SimulatedLoop(choices)
    try:
        yield loop
    finally:
        loop.dispose()
