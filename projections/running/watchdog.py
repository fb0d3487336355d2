"""A limit of time for handlers that are called one after another."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Watchdog:
    """
    Cancels what runs in its block when that takes too long, as ``asyncio.timeout`` does, block after block of a task.

    One timer is for all of them: it is moved on when it fires, not with each block. A timer for each event would take
    longer than what most handlers compute. Call :meth:`close` after the last.

    Args:
        limit: Seconds of a block.
    """

    def __init__(self, limit: float) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - handlers run in one
        self._task, self._loop, self._limit = task, asyncio.get_running_loop(), limit
        self._timer: asyncio.TimerHandle | None = None
        self._begun_at: float | None = None
        self._cancelling = 0
        self._expired = False

    def expired(self) -> bool:
        """Whether the last block took too long."""
        return self._expired

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def __enter__(self) -> None:
        self._expired, self._cancelling = False, self._task.cancelling()
        self._begun_at = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_at(self._begun_at + self._limit, self._look)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._begun_at = None
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _look(self) -> None:
        self._timer = None
        if self._begun_at is None:
            return
        due = self._begun_at + self._limit
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._look)
        else:
            self._expired = True
            self._task.cancel()
