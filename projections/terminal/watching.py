"""Looking again and again: ``--watch``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from datetime import UTC, datetime

from rich.console import Console, Group
from rich.live import Live

from journal.tasks import first_of
from projections.terminal.output import Answer
from projections.terminal.signals import stopped_by_signals

_EVERY = 1.0  # seconds between two looks


async def watch(look: Callable[[], Awaitable[Answer]], *, as_json: bool) -> int:
    """
    Look about once a second, until a signal stops it; returns the exit code.

    A terminal shows the answer in place of the one before; as JSON each is printed as a line.
    """
    stop = asyncio.Event()
    with stopped_by_signals(stop) as received:
        await first_of(_watch(look, as_json=as_json), stop.wait())
    return received.exit_code


async def _watch(look: Callable[[], Awaitable[Answer]], *, as_json: bool) -> None:
    console, clock = Console(), asyncio.get_running_loop().time
    live = Live(console=console, auto_refresh=False) if console.is_terminal and not as_json else None
    with live or nullcontext():
        while True:
            begun = clock()
            found = await look()
            if live is None:
                found.echo(as_json=as_json)
            else:
                live.update(Group(found, f"{datetime.now(UTC):%H:%M:%S}"), refresh=True)
            # A large backlog takes a while to count: look no more than half of the time.
            await asyncio.sleep(max(_EVERY, clock() - begun))
