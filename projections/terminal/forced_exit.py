"""
Ends the process when it has not ended some time after it was asked to, whatever it is doing.

Asking goes through the event loop, and so does what follows: batches that end, connections that are given back. A
driver that never answers, a handler that never ends, or a thread that keeps the interpreter from ending would go on for
good.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from projections.running import ABORTED

log = logging.getLogger("projections")

GRACE = timedelta(seconds=50)
"""For commands whose current work never takes longer."""
_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM})
_MARGIN = 2.0
"""Seconds for the last words; then the kernel ends the process: it needs no memory, and no lock that somebody holds."""
_OVER = b"\0"


class ForcedExit:
    """
    A thread that hears of signals by itself: the main thread may be in a call that no signal interrupts.

    ``grace`` is from the first SIGINT or SIGTERM, or :meth:`asked`, to the end.
    """

    def __init__(self, grace: timedelta) -> None:
        self._grace = grace.total_seconds()
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._ends_at: float | None = None
        self._forward_to = -1

    def asked(self) -> None:
        """The process was asked to end, by other means than a signal."""
        os.write(self._write, bytes([signal.SIGTERM]))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """
        Watch for the length of the block, in the main thread.

        Once it was asked, the process ends in time also after the block: what keeps it may come later.
        """
        self._forward_to = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        threading.Thread(target=self._watch, name="projections-last-resort", daemon=True).start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(self._forward_to)
            self._forward_to = -1
            os.write(self._write, _OVER)

    def _watch(self) -> None:
        while True:
            left = None if self._ends_at is None else max(0.0, self._ends_at - time.monotonic())
            if not select.select([self._read], [], [], left)[0]:
                self._end()
            heard = os.read(self._read, 64)
            if self._forward_to != -1:  # the event loop has signals of its own
                with suppress(OSError):
                    os.write(self._forward_to, heard)
            if self._ends_at is None and _SIGNALS.intersection(heard):
                self._ends_at = time.monotonic() + self._grace
                signal.setitimer(signal.ITIMER_REAL, self._grace + _MARGIN)
            if _OVER in heard and self._ends_at is None:
                return

    def _end(self) -> None:
        main = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - where it hangs
        where = "".join(traceback.format_stack(main)) if main else ""
        log.critical(
            "not ended %g s after it was asked to: this process ends now. What was open is rolled back, and others "
            "take over when the lease ends. The main thread is at\n%s", self._grace, where, extra={"action": "aborted"},
        )  # fmt: skip
        logging.shutdown()
        os._exit(ABORTED)
