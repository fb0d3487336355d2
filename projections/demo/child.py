"""
The other processes of the demo, and how it talks with them: in lines of JSON on their standard input and output.

They end when their standard input does, so none outlives a demo that was killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from queue import SimpleQueue
from typing import Any

from journal import ProjectionsError, hide_password
from projections.demo.errors import DemoError
from projections.running import loop_runner


class Child:
    """A process of the demo; :func:`child` starts one."""

    def __init__(self, name: str, process: Process) -> None:
        self.pid = process.pid
        self._name = name
        self._process = process
        self._may_end = False
        self.said = self._listen()
        """What it says until its end; raises DemoError when it has failed."""

    def __str__(self) -> str:
        return self._name

    async def tell(self, **values: Any) -> None:
        """Tell it something."""
        assert self._process.stdin is not None  # noqa: S101 - asked for when it was started
        with suppress(ConnectionError):  # one that has ended says why on its output
            self._process.stdin.write(json.dumps(values).encode() + b"\n")
            await self._process.stdin.drain()

    async def _listen(self) -> AsyncIterator[dict[str, Any]]:
        assert self._process.stdout is not None  # noqa: S101 - asked for when it was started
        async for line in self._process.stdout:
            if "error" in (said := json.loads(line)):
                raise DemoError(f"{self}: {said['error']}")
            yield said
        code = await self._process.wait()
        if not self._may_end:
            raise DemoError(f"{self} ended unexpectedly, exit code {code}")

    def kill(self) -> None:
        """Kill it, as the kernel does when memory is short."""
        self._may_end = True
        self._process.kill()

    async def stop(self) -> None:
        """Ask it to finish what it has begun and to leave."""
        self._may_end = True
        await self.tell(stop=True)

    async def end(self) -> None:
        """End it at once, if it has not ended."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()


@asynccontextmanager
async def child(module: str, name: str) -> AsyncIterator[Child]:
    """Run a module of the demo in a process of its own for the length of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"projections.demo.{module}",
        stdin=PIPE, stdout=PIPE,
        start_new_session=True,  # Ctrl-C is for the demo, which then ends it
    )  # fmt: skip
    started = Child(name, process)
    try:
        yield started
    finally:
        await started.end()


def serve(main: Callable[[SimpleQueue[str]], Coroutine[Any, Any, None]]) -> None:
    """Be such a process: run the coroutine that ``main`` makes of the lines on standard input."""
    lines: SimpleQueue[str] = SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(1)  # whoever started this process is gone: what is open is rolled back by the database

    threading.Thread(target=listen, name="listening", daemon=True).start()
    try:
        with loop_runner() as runner:
            runner.run(main(lines))
    except ProjectionsError as error:
        tell(error=hide_password(str(error)))
        sys.exit(1)


def tell(**values: Any) -> None:
    """Say something to the demo."""
    print(json.dumps(values), flush=True)  # noqa: T201 - the protocol
