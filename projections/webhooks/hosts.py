"""How much one host gets from this process, whoever has endpoints there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from projections.webhooks.shares import Shares

__all__ = ["Hosts"]

_SECOND = 1.0


class Hosts:
    """
    Bounds the requests to each host: so many on their way at a time, and begun in any second.

    Args:
        most: So many; None: any number.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._shares: dict[str, Shares] = {}

    @asynccontextmanager
    async def place(self, host: str, tenant: str, share: float, patience: float) -> AsyncIterator[None]:
        """
        Hold a place for the length of the block.

        Raises:
            TimeoutError: There was none for so many seconds.
        """
        if self._most is None:
            yield
            return
        shares = self._shares.setdefault(host, Shares(self._most))
        async with asyncio.timeout(patience):
            await shares.take(tenant, share)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        finally:
            # One that was quick keeps its place for the rest of a second: that bounds the rate, too.
            loop.call_later(max(0.0, began + _SECOND - loop.time()), self._give_back, host, tenant)

    def _give_back(self, host: str, tenant: str) -> None:
        shares = self._shares[host]
        shares.give_back(tenant)
        if shares.idle:
            del self._shares[host]
