"""Locks that transactions hold until they end: of rows, of tables, and advisory ones; with deadlock detection."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from tests.simulation.postgres.errors import ServerError
from tests.simulation.postgres.storage import Transaction

DEADLOCK_TIMEOUT = 1.0
"""Seconds after which a transaction that waits looks whether it waits for itself."""


class _Waiting(NamedTuple):
    """Who waits for a lock, in which mode, and what is set when it has it."""

    transaction: Transaction
    shared: bool
    granted: asyncio.Future[None]


class Locks:
    """Locks, each with the transactions that wait for it: exclusive ones, and those that many may share."""

    def __init__(self) -> None:
        self._holders: dict[Hashable, Transaction] = {}
        self._sharing: dict[Hashable, dict[Transaction, None]] = {}
        self._waiting: dict[Hashable, deque[_Waiting]] = {}

    def share(self, transaction: Transaction, lock: Hashable) -> None:
        """Share a lock that nobody takes for himself, as ROW EXCLUSIVE on a table."""
        self._sharing.setdefault(lock, {})[transaction] = None

    def sharing(self, lock: Hashable) -> list[Transaction]:
        """Who shares a lock."""
        return list(self._sharing.get(lock, ()))

    def shared_numbers(self, kind: str) -> list[int]:
        """Of shared locks of a kind and a number, the numbers."""
        return [
            lock[1]
            for lock, holders in self._sharing.items()
            if holders and isinstance(lock, tuple) and lock[0] == kind
        ]

    def take_free(self, transaction: Transaction, locks: Iterable[Hashable]) -> None:
        """Take exclusive locks that nobody has."""
        for lock in locks:
            self._grant(transaction, lock, shared=False)

    def is_free(self, transaction: Transaction, lock: Hashable) -> bool:
        """Whether a transaction would have an exclusive lock at once."""
        return not self._others(transaction, lock, shared=False)

    def is_shareable(self, transaction: Transaction, lock: Hashable) -> bool:
        """Whether a transaction would share a lock at once."""
        return not self._others(transaction, lock, shared=True) and not self._waiting.get(lock)

    def _others(self, transaction: Transaction, lock: Hashable, *, shared: bool) -> set[Transaction]:
        """Who keeps a transaction from a lock."""
        holder, sharing = self._holders.get(lock), self._sharing.get(lock)
        others = set() if shared or not sharing else set(sharing)
        if holder is not None:
            others.add(holder)
        others.discard(transaction)
        return others

    def _grant(self, transaction: Transaction, lock: Hashable, *, shared: bool) -> None:
        if shared:
            self.share(transaction, lock)
        else:
            self._holders[lock] = transaction
            transaction.locks[lock] = None

    async def take(
        self, transaction: Transaction, lock: Hashable, timeout: float | None = None, *, shared: bool = False
    ) -> None:
        """
        Take a lock; waits for who holds it, and behind who waits already, unless the transaction has it.

        Args:
            transaction: Who takes it.
            lock: Names it.
            timeout: Seconds after which it raises 55P03 (``lock_timeout``).
            shared: Whether others may share it.

        Raises:
            ServerError: 55P03, or 40P01 when it would wait for ever.
        """
        if self._holders.get(lock) is transaction or (shared and transaction in self._sharing.get(lock, ())):
            return
        if not self._waiting.get(lock) and not self._others(transaction, lock, shared=shared):
            self._grant(transaction, lock, shared=shared)
            return
        await self._wait(transaction, lock, timeout, shared=shared)

    async def _wait(
        self, transaction: Transaction, lock: Hashable, timeout: float | None, *, shared: bool
    ) -> None:
        queue = self._waiting.setdefault(lock, deque())
        loop = asyncio.get_running_loop()
        waiting = _Waiting(transaction, shared, loop.create_future())
        queue.append(waiting)
        transaction.waits_for = lock
        timers = [loop.call_later(DEADLOCK_TIMEOUT, self._look_for_a_deadlock, waiting)]
        if timeout is not None:
            error = ServerError("55P03", "canceling statement due to lock timeout")
            timers.append(loop.call_later(timeout, _fail, waiting.granted, error))
        try:
            await waiting.granted
        except BaseException:
            if waiting in queue:
                queue.remove(waiting)
            else:  # it was granted at the same moment
                self._release(transaction, lock)
            self._pass_on(lock)  # those behind may go on
            raise
        finally:
            transaction.waits_for = None
            for timer in timers:
                timer.cancel()

    def _blockers(self, transaction: Transaction) -> set[Transaction]:
        """Whom a transaction waits for: who holds the lock, and who waits for it before."""
        lock = transaction.waits_for
        ahead: set[Transaction] = set()
        for waiting in self._waiting.get(lock, ()):
            if waiting.transaction is transaction:
                return self._others(transaction, lock, shared=waiting.shared) | ahead
            ahead.add(waiting.transaction)
        return set()

    def _look_for_a_deadlock(self, waiting: _Waiting) -> None:
        seen: set[Transaction] = set()
        left = self._blockers(waiting.transaction)
        while left:
            one = left.pop()
            if one is waiting.transaction:
                _fail(waiting.granted, ServerError("40P01", "deadlock detected"))
                return
            if one not in seen:
                seen.add(one)
                left |= self._blockers(one)

    def release(self, transaction: Transaction, locks: Iterable[Hashable]) -> None:
        """Release exclusive locks of a transaction, as the end of a savepoint does."""
        for lock in locks:
            del transaction.locks[lock]
            self._release(transaction, lock)
            self._pass_on(lock)

    def release_all(self, transaction: Transaction) -> None:
        """Release what a transaction holds, as its end does."""
        shared = [lock for lock, holders in self._sharing.items() if transaction in holders]
        for lock in [*transaction.locks, *shared]:
            self._release(transaction, lock)
            self._pass_on(lock)
        transaction.locks.clear()

    def _release(self, transaction: Transaction, lock: Hashable) -> None:
        if self._holders.get(lock) is transaction:
            del self._holders[lock]
        self._sharing.get(lock, {}).pop(transaction, None)

    def _pass_on(self, lock: Hashable) -> None:
        """Give a lock to those who waited longest, as many as can have it."""
        queue = self._waiting.get(lock)
        while queue:
            waiting = queue[0]
            if not waiting.granted.done():
                if self._others(waiting.transaction, lock, shared=waiting.shared):
                    return
                self._grant(waiting.transaction, lock, shared=waiting.shared)
                waiting.granted.set_result(None)
            queue.popleft()


def _fail(granted: asyncio.Future[None], error: ServerError) -> None:
    if not granted.done():
        granted.set_exception(error)
