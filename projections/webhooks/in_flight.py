"""The attempts that a process has on their way, and how much of it each tenant holds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from projections.webhooks.claims import Claimed

__all__ = ["InFlight"]

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
