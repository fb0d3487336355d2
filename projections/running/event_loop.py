"""The event loop of processes that are this library's own: workers, senders of webhooks, the demo."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

_COLLECT_AFTER = (20_000, 2, 2)
"""
New objects after which the garbage collector looks through them: more than two pages of events are, each a row and an
envelope. It looks through all objects after about ten times as many.
"""


def loop_runner() -> asyncio.Runner:
    """
    Make what runs a loop: uvloop's, which is faster, where that is installed.

    Call it last before the process begins its work. What is loaded by then (modules, classes, validators) stays until
    the process ends, so from now on the garbage collector does not look through it. Nor does it look through each page
    of events: they are in no cycle, and go when the page does.
    """
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ModuleNotFoundError):
        loop_factory = import_module("uvloop").new_event_loop
    gc.collect()  # what is garbage now would stay, too
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    return asyncio.Runner(loop_factory=loop_factory)
