"""Locks that transactions hold until they end: of rows, of tables, and advisory ones; with deadlock detection."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Iterable

from tests.simulation.postgres.errors import ServerError
from tests.simulation.postgres.storage import Transaction

DEADLOCK_TIMEOUT = 1.0
"""Seconds after which a transaction that waits looks whether it waits for itself."""


class Locks:
    """Exclusive locks, each with the transactions that wait for it, and locks that any number may hold."""

    def __init__(self) -> None:
        self._holders: dict[Hashable, Transaction] = {}
        self._waiting: dict[Hashable, deque[tuple[Transaction, asyncio.Future[None]]]] = {}
        self._shared: dict[Hashable, dict[Transaction, None]] = {}

    def share(self, transaction: Transaction, lock: Hashable) -> None:
        """Take a lock that does not keep others from it, as ROW EXCLUSIVE on a table."""
        self._shared.setdefault(lock, {})[transaction] = None

    def sharing(self, lock: Hashable) -> list[Transaction]:
        """Who holds such a lock."""
        return list(self._shared.get(lock, ()))

    def take_free(self, transaction: Transaction, locks: Iterable[Hashable]) -> None:
        """Take exclusive locks that nobody has."""
        for lock in locks:
            self._holders[lock] = transaction
            transaction.locks[lock] = None

    def is_free(self, transaction: Transaction, lock: Hashable) -> bool:
        """Whether a transaction would have an exclusive lock at once."""
        return self._holders.get(lock, transaction) is transaction

    async def take(self, transaction: Transaction, lock: Hashable, timeout: float | None = None) -> None:
        """
        Take an exclusive lock; waits for who holds it.

        Args:
            transaction: Who takes it.
            lock: Names it.
            timeout: Seconds after which it raises 55P03 (``lock_timeout``).

        Raises:
            ServerError: 55P03, or 40P01 when it would wait for ever.
        """
        holder = self._holders.setdefault(lock, transaction)
        if holder is transaction:
            transaction.locks[lock] = None
            return
        loop = asyncio.get_running_loop()
        granted: asyncio.Future[None] = loop.create_future()
        queue = self._waiting.setdefault(lock, deque())
        queue.append((transaction, granted))
        transaction.waits_for = holder
        timers = [loop.call_later(DEADLOCK_TIMEOUT, self._look_for_a_deadlock, transaction, granted)]
        if timeout is not None:
            error = ServerError("55P03", "canceling statement due to lock timeout")
            timers.append(loop.call_later(timeout, _fail, granted, error))
        try:
            await granted
        except BaseException:
            queue.remove((transaction, granted)) if (transaction, granted) in queue else None
            if self._holders.get(lock) is transaction:  # it was granted at the same moment
                self._pass_on(lock)
            raise
        finally:
            transaction.waits_for = None
            for timer in timers:
                timer.cancel()

    def _look_for_a_deadlock(self, transaction: Transaction, granted: asyncio.Future[None]) -> None:
        seen, other = {transaction}, transaction.waits_for
        while other is not None and other not in seen:
            seen.add(other)
            other = other.waits_for
        if other is transaction:
            _fail(granted, ServerError("40P01", "deadlock detected"))

    def release_all(self, transaction: Transaction) -> None:
        """Release what a transaction holds, as its end does."""
        for holders in self._shared.values():
            holders.pop(transaction, None)
        for lock in list(transaction.locks):
            self._pass_on(lock)
        transaction.locks.clear()

    def _pass_on(self, lock: Hashable) -> None:
        del self._holders[lock]
        queue = self._waiting.get(lock)
        while queue:
            transaction, granted = queue.popleft()
            if not granted.done():
                self._holders[lock] = transaction
                transaction.locks[lock] = None
                for waiting, _ in queue:
                    waiting.waits_for = transaction
                granted.set_result(None)
                return


def _fail(granted: asyncio.Future[None], error: ServerError) -> None:
    if not granted.done():
        granted.set_exception(error)
