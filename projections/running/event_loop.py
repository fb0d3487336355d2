"""The event loop of processes that are this library's own: workers, senders of webhooks, the demo."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module


def loop_runner() -> asyncio.Runner:
    """
    Make what runs a loop: uvloop's, which is faster, where that is installed.

    Call it last before the process begins its work. What is loaded by then (modules, classes, validators) stays until
    the process ends, so from now on the garbage collector does not look through it.
    """
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ModuleNotFoundError):
        loop_factory = import_module("uvloop").new_event_loop
    gc.collect()  # what is garbage now would stay, too
    gc.freeze()
    return asyncio.Runner(loop_factory=loop_factory)
