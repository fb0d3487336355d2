"""Ending a process by a signal: the first asks, the second insists, and after a while it ends in any case."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType

from projections.terminal.command_group import INTERRUPTED
from projections.terminal.forced_exit import GRACE, ForcedExit

log = logging.getLogger("projections")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ReceivedSignal:
    """Which signal asked to stop, if any."""

    def __init__(self, resort: ForcedExit) -> None:
        self.resort = resort
        self.number: signal.Signals | None = None

    @property
    def exit_code(self) -> int:
        """Of a command that runs until it is stopped: 130 after Ctrl-C, and 0 after SIGTERM."""
        return INTERRUPTED if self.number is signal.SIGINT else 0


@contextmanager
def stopped_by_signals(
    stop: asyncio.Event, grace: timedelta = GRACE, *, doing: str = "stopping"
) -> Iterator[ReceivedSignal]:
    """
    Set an event of the running loop at the first SIGINT or SIGTERM; a second one ends the process at once.

    It also ends ``grace`` after the first, at which the log says what the process is ``doing``. The handlers are
    Python's, not the loop's: they also run while a handler blocks the loop.
    """
    loop, received = asyncio.get_running_loop(), ReceivedSignal(ForcedExit(grace))

    def on_signal(number: int, _: FrameType | None) -> None:
        if received.number is not None:
            # Nothing is lost: the database rolls back what was open, and the lease ends by itself.
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        received.number = signal.Signals(number)
        loop.call_soon_threadsafe(ask)

    def ask() -> None:
        name = received.number.name if received.number else ""
        log.info("%s: %s; a second signal ends at once", name, doing, extra={"action": "stopping"})
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        with received.resort.watching():
            yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
