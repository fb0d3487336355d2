"""Requests that this process has on their way, and what it lacks to send more: files, memory, threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping

from journal.tasks import happens
from projections.failing import Backoff
from projections.webhooks.claims import Claimed
from projections.webhooks.sender import NotSentError

_NOTHING = (0, 0)


class InFlight:
    """Counts as attempts come and go: it is asked before every claim, and there may be thousands."""

    def __init__(self) -> None:
        self._attempts: dict[asyncio.Task[None], Claimed] = {}
        self._held: dict[str, tuple[int, int]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._attempts)

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(self._attempts)

    @property
    def bytes(self) -> int:
        """What they carry together."""
        return self._bytes

    @property
    def held(self) -> Mapping[str, tuple[int, int]]:
        """Places and bytes that tenants hold."""
        return self._held

    def add(self, task: asyncio.Task[None], claimed: Claimed) -> None:
        """One is on its way."""
        self._attempts[task] = claimed
        self._count(claimed.tenant, 1, claimed.size)

    def remove(self, task: asyncio.Task[None]) -> Claimed:
        """One has ended: give what it was."""
        claimed = self._attempts.pop(task)
        self._count(claimed.tenant, -1, -claimed.size)
        return claimed

    def _count(self, tenant: str, places: int, size: int) -> None:
        held, sizes = self._held.pop(tenant, _NOTHING)
        self._bytes += size
        if held + places:
            self._held[tenant] = (held + places, sizes + size)


log = logging.getLogger("projections")

_QUIET = 60.0
"""Seconds without a shortage after which the next one is news."""


class Shortage:
    """Remembers that nothing could be sent, and for how long to take nothing more."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._rounds = 0
        self._until = 0.0
        self._last: float | None = None

    def met(self, error: NotSentError) -> None:
        """Nothing was sent; those that were on their way together are one time."""
        if not error.everywhere:
            log.debug("a webhook was put off: %s", error, extra={"action": "webhook_put_off"})
            return
        now = asyncio.get_running_loop().time()
        if self._last is None or now - self._last > _QUIET:
            log.warning(
                "webhooks wait: this process cannot send: %s; no attempt is used up. Give it more, or lower "
                "--concurrency", error, extra={"action": "webhooks_short"},
            )  # fmt: skip
        self._last = now
        if now >= self._until:
            self._rounds += 1
            self._until = now + self._backoff.delay(self._rounds).total_seconds()

    def passed(self) -> None:
        """Something was sent."""
        if self._rounds and asyncio.get_running_loop().time() >= self._until:
            self._rounds = 0

    async def over(self, ending: asyncio.Event) -> None:
        """Wait until more may be taken, or the process ends."""
        pause = self._until - asyncio.get_running_loop().time()
        if pause > 0:
            await happens(ending, pause)
