"""The event loop of processes that are this library's own: workers, senders of webhooks, the demo."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from importlib import import_module


def loop_runner() -> asyncio.Runner:
    """Make what runs a loop: uvloop's, which is faster, where that is installed."""
    with suppress(ModuleNotFoundError):
        return asyncio.Runner(loop_factory=import_module("uvloop").new_event_loop)
    return asyncio.Runner()
