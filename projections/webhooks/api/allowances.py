"""What tenants may ask of the API: so many requests a second each, and a share of those that are followed at a time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property

from cachetools import LRUCache

from journal import Database
from projections.webhooks.api.problems import Problem
from projections.webhooks.shares import Shares

__all__ = ["Allowances"]

_BYTES = 16_384
"""Of a body: each counts as one request more."""
_REMEMBERED = 10_000
"""Tenants."""
_SHARE = 0.5


class Allowances:
    """
    Bounds what tenants ask of one process, so that none keeps it from others; administrators ask what they like.

    Args:
        rate: Requests of a tenant in a second; None: any number.
        database: As many requests of tenants are followed at a time as it has connections.
    """

    def __init__(self, rate: float | None, database: Database) -> None:
        self._rate = rate
        self._database = database
        self._left: LRUCache[str, tuple[float, float]] = LRUCache(_REMEMBERED)
        """Of each tenant, requests that are left, and when."""

    def ask(self, tenant: str | None) -> None:
        """
        Begin a request.

        Raises:
            Problem: The tenant has asked too often; its answer says when to ask again.
        """
        if tenant is None or self._rate is None:
            return
        left = self._refilled(tenant, self._rate)
        if left < 1:
            pause = math.ceil((1 - left) / self._rate)
            raise Problem(
                429, "too_many_requests", f"a tenant may ask {self._rate:g} times a second; each {_BYTES:,} bytes "
                "of a body count, too", headers={"retry-after": str(pause)},
            )  # fmt: skip
        self._spend(tenant, 1)

    def brought(self, tenant: str | None, size: int) -> None:
        """Count a body; one that is more than is left is taken, and those after it wait."""
        if tenant is not None and self._rate is not None:
            self._refilled(tenant, self._rate)
            self._spend(tenant, size // _BYTES)

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

    def _refilled(self, tenant: str, rate: float) -> float:
        """What is left: what a second lets through at most, and one at least."""
        now, most = asyncio.get_running_loop().time(), max(rate, 1)
        left, at = self._left.get(tenant, (most, now))
        left = min(most, left + rate * (now - at))
        self._left[tenant] = left, now
        return left

    def _spend(self, tenant: str, number: int) -> None:
        left, at = self._left[tenant]
        self._left[tenant] = left - number, at
