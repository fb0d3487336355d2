"""The event loop of both processes of the demo."""

import asyncio
from contextlib import suppress
from importlib import import_module


def event_loop() -> asyncio.Runner:
    """The faster one, where it is installed."""
    with suppress(ModuleNotFoundError):
        return asyncio.Runner(loop_factory=import_module("uvloop").new_event_loop)
    return asyncio.Runner()
