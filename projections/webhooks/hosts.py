"""How much one host gets from this process, whoever has endpoints there."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from projections.webhooks.shares import Shares

__all__ = ["HostPlace", "Hosts"]

_SECOND = 1.0
_PAUSE = 0.01
"""Seconds: places whose second is over are given back together."""


@dataclass(slots=True, eq=False)
class HostPlace:
    """
    A place at a host, for one request.

    Args:
        host: The host that requests go to.
        tenant: Whose request it is.
        until: In the time of the event loop: its second ends then.
        kept: Neither its second nor its request has ended: the first that ends leaves it to the other.
    """

    host: str
    tenant: str
    until: float
    kept: bool = True


class Hosts:
    """
    Bounds the requests to each host: so many on their way at a time, and begun in any second.

    One that was quick keeps its place for the rest of a second: that bounds the rate, too.

    Args:
        most: So many; None: any number.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._shares: dict[str, Shares] = {}
        # In the order in which their seconds end: one timer is enough for all.
        self._begun: deque[HostPlace] = deque()

    async def take(self, host: str, tenant: str, share: float, patience: float) -> HostPlace | None:
        """
        Wait for a place, which is to be given back when the request has ended; None where there is no bound.

        Raises:
            TimeoutError: There was none for so many seconds.
        """
        if self._most is None:
            return None
        if (shares := self._shares.get(host)) is None:
            shares = self._shares[host] = Shares(self._most)
        if not shares.take_at_once(tenant, share):
            async with asyncio.timeout(patience):
                await shares.take(tenant, share)
        loop = asyncio.get_running_loop()
        place = HostPlace(host, tenant, loop.time() + _SECOND)
        if not self._begun:
            loop.call_at(place.until, self._end_seconds)
        self._begun.append(place)
        return place

    def give_back(self, place: HostPlace | None) -> None:
        """Its request has ended."""
        if place is not None:
            self._end_half(place)

    def _end_seconds(self) -> None:
        loop = asyncio.get_running_loop()
        while self._begun and self._begun[0].until <= loop.time():
            self._end_half(self._begun.popleft())
        if self._begun:
            loop.call_at(max(self._begun[0].until, loop.time() + _PAUSE), self._end_seconds)

    def _end_half(self, place: HostPlace) -> None:
        """The second of a place, or its request, has ended: when both have, the next one may have it."""
        if place.kept:
            place.kept = False
            return
        shares = self._shares[place.host]
        shares.give_back(place.tenant)
        if shares.idle:
            del self._shares[place.host]
