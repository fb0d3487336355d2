"""The demo's end of the appending process: starts it, tells it what to do, and hears how far it is."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from projections.demo.errors import DemoError


class Feeding:
    """A running appender; :func:`feeding` starts one."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def tell(self, **values: Any) -> None:
        """Tell it something."""
        assert self._process.stdin is not None  # noqa: S101 - asked for when it was started
        # An appender that has ended says why on its output.
        with suppress(ConnectionError):
            self._process.stdin.write(json.dumps(values).encode() + b"\n")
            await self._process.stdin.drain()

    async def hear(self) -> dict[str, Any]:
        """
        Wait for what it says next.

        Raises:
            DemoError: It has failed.
        """
        assert self._process.stdout is not None  # noqa: S101 - asked for when it was started
        line = await self._process.stdout.readline()
        if not line:
            raise DemoError(
                f"the appending process ended unexpectedly, exit code {await self._process.wait()}"
            )
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            raise DemoError(str(said["error"]))
        return said


@asynccontextmanager
async def feeding() -> AsyncIterator[Feeding]:
    """Run an appender for the length of the block; it ends with it, and with this process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "projections.demo.appender",
        stdin=PIPE, stdout=PIPE,
        start_new_session=True,  # Ctrl-C is for this process, which then ends the other one
    )  # fmt: skip
    try:
        yield Feeding(process)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        await process.wait()
