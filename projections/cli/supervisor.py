"""
Several worker processes under one: started, started again when they die, and ended together.

Each hears its supervisor through a pipe, its standard input: a line asks it to stop, and the end of the pipe says
that the supervisor is gone, however that went. Signals are for the supervisor alone, so it makes no difference
whether a terminal or a service manager sends one to it or to all of its processes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import NamedTuple

from journal.tasks import happens
from projections.failing import Backoff
from projections.terminal.connection import Sides
from projections.terminal.forced_exit import ForcedExit
from projections.terminal.logs import LogFormat

log = logging.getLogger("projections")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_REFUSED = frozenset({1, 2})
"""Exit codes of a worker that could not start, which starting it again would not heal."""
_BACKOFF = Backoff(timedelta(milliseconds=200), timedelta(seconds=10))
_SETTLED = 10.0
"""Seconds after which a process counts as started: its next failure is a first one."""
_LATER = 5.0
"""Seconds after the end of their grace when processes that are still there are killed."""
_STOP = b"stop\n"
_ORPHANED = 1


class WorkerEnd(NamedTuple):
    """How it ended."""

    signal: signal.Signals | None
    """What asked to stop, if anything did."""
    code: int
    """The exit code of a worker that could not start, else 0."""


async def supervise(
    command: Callable[[int], Sequence[str]],
    processes: int,
    where: Sides,
    *,
    forever: bool,
    grace: timedelta,
    once: Sequence[str] = (),
) -> WorkerEnd:
    """
    Run a command in several processes until a signal stops them, or until each has ended with 0.

    The command tells the arguments of each process by its number from 1. The databases go down in the environment, for
    others can read a command line. With ``forever`` one starts again also when it has ended with 0. One that has not
    ended ``grace`` after it was asked to is killed. ``once`` are options for the first start of one of them only.
    """
    environment = {**os.environ, **where.environment}
    supervisor = _Supervisor(command, once, environment, grace, forever=forever)
    with supervisor.stopped_by_signals():
        await supervisor.run(processes)
    return WorkerEnd(supervisor.received, supervisor.code)


class _Supervisor:
    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        once: Sequence[str],
        environment: Mapping[str, str],
        grace: timedelta,
        *,
        forever: bool,
    ) -> None:
        self._command = command
        self._once = once
        self._environment = environment
        self._grace = grace.total_seconds()
        self._forever = forever
        self._running: dict[int, Process] = {}
        self._stop = asyncio.Event()
        self._settled = False
        self.received: signal.Signals | None = None
        self.code = 0

    async def run(self, processes: int) -> None:
        async with asyncio.TaskGroup() as group:
            keepers = [group.create_task(self._keep(number + 1)) for number in range(processes)]
            stopping = group.create_task(self._stop_all())
            await asyncio.wait(keepers)
            stopping.cancel()

    @contextmanager
    def stopped_by_signals(self) -> Iterator[None]:
        """Ask all to stop at the first signal; kill them and end at the second."""
        loop = asyncio.get_running_loop()

        def on_signal(number: int, _: FrameType | None) -> None:
            if self.received is not None:
                self._kill()
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(signal.Signals(number))
            self.received = signal.Signals(number)
            loop.call_soon_threadsafe(self._stop.set)

        before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def _stop_all(self) -> None:
        await self._stop.wait()
        if self.received is not None:
            log.info(
                "%s: stopping %d processes after the current batches; a second signal ends at once",
                self.received.name, len(self._running), extra={"action": "stopping"},
            )  # fmt: skip
        for process in self._running.values():
            _ask_to_stop(process)
        # Each ends itself by then, unless it is frozen.
        await asyncio.sleep(self._grace + _LATER)
        self._kill()

    def _kill(self) -> None:
        # Nothing is lost: the database rolls back what was open, and the leases end by themselves.
        for process in self._running.values():
            log.error("process %d is killed", process.pid, extra={"action": "process_killed"})
            with suppress(ProcessLookupError):
                process.kill()

    async def _keep(self, number: int) -> None:
        failures = 0
        while not self._stop.is_set():
            began_at = time.monotonic()
            code = await self._run_once(number)
            if self._stop.is_set() or (code == 0 and not self._forever):
                break
            if self._ran_long(began_at):
                failures = 0
            elif code in _REFUSED and not self._settled:
                self._refused(number, code)
                break
            failures += 1
            await self._pause(number, code, failures)

    async def _run_once(self, number: int) -> int:
        subcommand, *arguments = self._command(number)
        command = [sys.executable, "-m", "projections.cli", subcommand, *self._once, *arguments]
        self._once = ()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                env=self._environment,
                start_new_session=True,  # Ctrl-C is for the supervisor, which then asks each to stop
            )
        except OSError as error:  # too many processes, or no memory: that may pass
            log.error("process %d: %s", number, error, extra={"action": "process_failed"})  # noqa: TRY400
            return os.EX_OSERR
        self._running[number] = process
        log.info(
            "process %d: pid %d", number, process.pid,
            extra={"action": "process_started", "child": number, "child_pid": process.pid},
        )  # fmt: skip
        if self._stop.is_set():  # while it was being started
            _ask_to_stop(process)
        try:
            return await process.wait()
        finally:
            del self._running[number]

    def _ran_long(self, began_at: float) -> bool:
        ran_long = time.monotonic() - began_at >= _SETTLED
        self._settled = self._settled or ran_long
        return ran_long

    def _refused(self, number: int, code: int) -> None:
        log.error(
            "process %d could not start, exit code %d: all end", number, code,
            extra={"action": "process_refused", "child": number, "exit_code": code},
        )  # fmt: skip
        self.code = self.code or code
        self._stop.set()

    async def _pause(self, number: int, code: int, failures: int) -> None:
        delay = _BACKOFF.delay(failures).total_seconds()
        log.error(
            "process %d ended with %s, starting again in %.1f s", number, _how(code), delay,
            extra={"action": "process_ended", "child": number, "exit_code": code},
        )  # fmt: skip
        await happens(self._stop, delay)


def _ask_to_stop(process: Process) -> None:
    assert process.stdin is not None  # noqa: S101 - asked for when it was started
    if not process.stdin.is_closing():
        process.stdin.write(_STOP)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:  # a real-time signal
        return f"signal {-code}"


class StopAsked:
    """Whether the supervisor has asked to stop."""

    yes = False


@contextmanager
def heard_from_supervisor(stop: asyncio.Event, resort: ForcedExit, grace: timedelta) -> Iterator[StopAsked]:
    """
    In a supervised process: set an event of the running loop when the supervisor asks to stop, or is gone.

    Without a supervisor, the process ends after ``grace`` whatever it is doing: nobody would end it.
    """
    loop, asked, ended = asyncio.get_running_loop(), StopAsked(), threading.Event()

    def ask() -> None:
        asked.yes = True
        stop.set()

    def heard() -> None:
        resort.asked()
        _call(loop, ask)

    def listen() -> None:
        while os.read(sys.stdin.fileno(), len(_STOP)):
            heard()
        heard()
        if not ended.wait(grace.total_seconds()):
            os._exit(_ORPHANED)

    threading.Thread(target=listen, name="projections-supervisor", daemon=True).start()
    try:
        yield asked
    finally:
        ended.set()


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has just been closed
        loop.call_soon_threadsafe(function)


def tagged_logs(form: LogFormat) -> None:
    """Name the process in each line of the log: ``pid`` in JSON, ``[pid]`` at its beginning in text."""
    for handler in logging.getLogger().handlers:
        if form == "json":
            handler.addFilter(_add_pid)
        else:
            handler.setFormatter(_Tagged(handler.formatter or logging.Formatter()))


def _add_pid(record: logging.LogRecord) -> bool:
    record.pid = record.process
    return True


class _Tagged(logging.Formatter):
    """Lines of another formatter, those of a traceback too."""

    def __init__(self, lines: logging.Formatter) -> None:
        super().__init__()
        self._lines = lines

    def format(self, record: logging.LogRecord) -> str:
        tag = f"[{record.process}] "
        return tag + self._lines.format(record).replace("\n", f"\n{tag}")
