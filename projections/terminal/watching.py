"""Looking again and again: ``--watch``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.live import Live

__all__ = ["watch"]

_EVERY = 1.0  # seconds between two looks

T = TypeVar("T")


async def watch(
    look: Callable[[], Awaitable[T]],
    echo: Callable[[T], None],
    shown: Callable[[T], RenderableType] | None,
) -> None:
    """
    Look about once a second, for ever.

    Args:
        look: Asks the database.
        echo: Prints what was seen, one look after another.
        shown: What a terminal shows, in place of what was seen before; None: print there, too.
    """
    console, clock = Console(), asyncio.get_running_loop().time
    live = Live(console=console, auto_refresh=False) if shown is not None and console.is_terminal else None
    with live or nullcontext():
        while True:
            begun = clock()
            found = await look()
            if live is None or shown is None:
                echo(found)
            else:
                live.update(shown(found), refresh=True)
            # A large backlog takes a while to count: look no more than half of the time.
            await asyncio.sleep(max(_EVERY, clock() - begun))
