"""What tenants may ask of the API: requests a second, and a share of those that are followed at a time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cached_property

from cachetools import LRUCache

from journal import Database
from projections.webhooks.api.problems import Problem
from projections.webhooks.fair_shares import Shares

_BYTES = 16_384
"""Of a body: each counts as one request more."""
_REMEMBERED = 10_000
"""Tenants."""
_SHARE = 0.5


class TenantLimits:
    """
    Bounds what tenants ask of one process, so that none keeps it from others; administrators ask what they like.

    A tenant may send ``rate`` requests in a second (None: any number), and a challenge each ``challenge_pause``. As
    many requests of tenants are followed at a time as the database has connections.
    """

    def __init__(self, rate: float | None, challenge_pause: timedelta, database: Database) -> None:
        self._requests = None if rate is None else _Rate(rate)
        self._challenges = _Rate(1 / challenge_pause.total_seconds())
        self._database = database

    def ask(self, tenant: str | None) -> None:
        """Begin a request, unless the tenant has asked too often: the answer says when to ask again."""
        if tenant is not None and self._requests is not None:
            self._requests.take(
                tenant, "too_many_requests",
                f"a tenant may ask {self._requests.rate:g} times a second; each {_BYTES:,} bytes of a body count, too",
            )  # fmt: skip

    def brought(self, tenant: str | None, size: int) -> None:
        """Count a body; one that is more than is left is taken, and those after it wait."""
        if tenant is not None and self._requests is not None:
            self._requests.spend(tenant, size // _BYTES)

    def challenge(self, tenant: str | None) -> None:
        """Begin to send a URL a challenge, a request that its owner may not want, unless one was sent just now."""
        if tenant is not None:
            self._challenges.take(
                tenant,
                "too_many_challenges",
                "a challenge was sent for this tenant just now: try again later",
            )

    @asynccontextmanager
    async def place(self, tenant: str | None) -> AsyncIterator[None]:
        """Hold a place while a request is followed."""
        if tenant is None:
            yield
            return
        await self._places.take(tenant, _SHARE)
        try:
            yield
        finally:
            self._places.give_back(tenant)

    @cached_property
    def _places(self) -> Shares:
        return Shares(self._database.max_connections)


class _Rate:
    """The number a second for each tenant."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._left: LRUCache[str, tuple[float, float]] = LRUCache(_REMEMBERED)
        """Of each tenant, how many are left, and when."""

    def take(self, tenant: str, code: str, detail: str) -> None:
        """Use up one; where none is left, a problem with this code and these words says when there is one."""
        left = self._refilled(tenant)
        if left < 1:
            pause = math.ceil((1 - left) / self.rate)
            raise Problem(429, code, detail, headers={"retry-after": str(pause)})
        self.spend(tenant, 1)

    def spend(self, tenant: str, number: int) -> None:
        """Use up some, also more than are left."""
        self._left[tenant] = self._refilled(tenant) - number, asyncio.get_running_loop().time()

    def _refilled(self, tenant: str) -> float:
        """What is left: what a second lets through at most, and one at least."""
        now, most = asyncio.get_running_loop().time(), max(self.rate, 1)
        left, at = self._left.get(tenant, (most, now))
        return min(most, left + self.rate * (now - at))
