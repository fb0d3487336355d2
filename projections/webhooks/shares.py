"""Places that tenants share: none can take all of them, and those who wait are served in turn."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict, deque

__all__ = ["Shares"]


class Shares:
    """
    So many places at a time, of which a tenant may have a share of what the others leave.

    With a share of a half the first tenant has half of the places at most, and two that take all they can get have a
    third each. `claim_deliveries_v1` shares the places of a process by the same rule.

    Args:
        places: How many.
        share: Of a tenant, above 0 and up to 1.
    """

    def __init__(self, places: int, share: float) -> None:
        self._places = places
        self._share = share
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def idle(self) -> bool:
        """Whether nobody holds a place, or waits for one."""
        return not self._held and not self._waiting

    async def take(self, tenant: str) -> None:
        """Wait for a place, behind others of the same tenant and in turn with other tenants."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(tenant)
            else:
                self._leave(tenant, turn)
            raise

    def give_back(self, tenant: str) -> None:
        """Let the next one have a place."""
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
                if self._has_room(tenant):
                    turn = self._waiting[tenant][0]
                    self._leave(tenant, turn)
                    self._held[tenant] += 1
                    turn.set_result(None)
                    granted = True

    def _has_room(self, tenant: str) -> bool:
        held, busy = self._held[tenant], self._held.total()
        return busy < self._places and held < math.ceil(self._share * (self._places - busy + held))

    def _leave(self, tenant: str, turn: asyncio.Future[None]) -> None:
        self._waiting[tenant].remove(turn)
        if self._waiting[tenant]:
            self._waiting.move_to_end(tenant)
        else:
            del self._waiting[tenant]
