"""Places that tenants share: none can take all of them, and those who wait are served in turn; also at each host."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from typing import NamedTuple


class _Turn(NamedTuple):
    """One that waits, and the share of its tenant when it was claimed."""

    share: float
    come: asyncio.Future[None]


class Shares:
    """
    A limited number of places, of which a tenant may have a share of what the others leave.

    With a share of a half the first tenant has half of the places at most, and two that take all they can get have a
    third each; a single one has all, for `_claim_deliveries_v1` says that its share is 1. That function shares the
    places of a process by the same rule.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._held: Counter[str] = Counter()
        self._busy = 0
        self._waiting: OrderedDict[str, deque[_Turn]] = OrderedDict()

    @property
    def idle(self) -> bool:
        """Whether nobody holds a place, or waits for one."""
        return not self._held and not self._waiting

    def take_at_once(self, tenant: str, share: float) -> bool:
        """Take a place that nobody waits for, and say whether there was one."""
        if self._waiting or not self._has_room(tenant, share):
            return False
        self._hold(tenant)
        return True

    async def take(self, tenant: str, share: float) -> None:
        """Wait for a place, behind others of the same tenant and in turn with other tenants; a share is 0 to 1."""
        if self.take_at_once(tenant, share):
            return
        turn = _Turn(share, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(tenant, deque()).append(turn)
        self._grant()
        try:
            await turn.come
        except asyncio.CancelledError:
            if turn.come.done() and not turn.come.cancelled():
                self.give_back(tenant)
            else:
                self._leave(tenant, turn)
            raise

    def give_back(self, tenant: str) -> None:
        """Let the next one have a place."""
        self._busy -= 1
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
        self._grant()

    def _grant(self) -> None:
        """Give each tenant that waits a place in turn, as long as there are any for it."""
        granted = True
        while granted:
            granted = False
            for tenant in list(self._waiting):
                turn = self._waiting[tenant][0]
                if self._has_room(tenant, turn.share):
                    self._leave(tenant, turn)
                    self._hold(tenant)
                    turn.come.set_result(None)
                    granted = True

    def _hold(self, tenant: str) -> None:
        self._busy += 1
        self._held[tenant] += 1

    def _has_room(self, tenant: str, share: float) -> bool:
        held = self._held[tenant]
        return self._busy < self._places and held < math.ceil(share * (self._places - self._busy + held))

    def _leave(self, tenant: str, turn: _Turn) -> None:
        self._waiting[tenant].remove(turn)
        if self._waiting[tenant]:
            self._waiting.move_to_end(tenant)
        else:
            del self._waiting[tenant]


_SECOND = 1.0
_PAUSE = 0.01
"""Seconds: places whose second is over are given back together."""


@dataclass(slots=True, eq=False)
class HostPlace:
    """A place at a host, for one request."""

    host: str
    tenant: str
    until: float
    """In the time of the event loop: its second ends then."""
    kept: bool = True
    """Neither its second nor its request has ended: the first that ends leaves it to the other."""


class Hosts:
    """
    Bounds the requests to each host: those on their way at a time, and those begun in any second.

    One that was quick keeps its place for the rest of a second: that bounds the rate, too.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._shares: dict[str, Shares] = {}
        # In the order in which their seconds end: one timer is enough for all.
        self._begun: deque[HostPlace] = deque()

    async def take(self, host: str, tenant: str, share: float, patience: float) -> HostPlace | None:
        """
        Wait for a place, which is to be given back when the request has ended; None where there is no bound.

        TimeoutError: there was none in time.
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
