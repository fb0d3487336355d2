"""
How names of receivers are looked up: in threads of its own, of which no tenant has all.

A name whose servers are silent holds a thread for half a minute, and who runs such servers may be a tenant. So each
tenant has its share of the threads, names that were slow have a few of their own, and waiting for a thread is on no
endpoint's account: its time-out begins with its own lookup.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import lru_cache, partial
from ipaddress import ip_address

from cachetools import TTLCache

from projections.webhooks.fair_shares import Shares

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Look a name up: its addresses, the preferred ones first. Raises OSError where there are none."""

LookUp = Callable[[timedelta], Awaitable[Sequence[str]]]
"""Wait for the end of a lookup that has begun, up to a time. Raises UnresolvedError."""

_PLACES = 64
_SLOW_PLACES = 16
_SLOW = timedelta(seconds=1)
_REMEMBERED = timedelta(minutes=10)
_MOST_NAMES = 10_000


class UnresolvedError(Exception):
    """A name has no address, or could not be looked up in time."""


class SystemLookup:
    """The system's resolver, in threads of its own: as many as there are lookups at a time."""

    def __init__(self, threads: int = _PLACES + _SLOW_PLACES) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="webhook-lookup")

    async def __call__(self, host: str) -> Sequence[str]:
        """Give the addresses of a host."""
        try:
            looking = asyncio.get_running_loop().run_in_executor(self._threads, _addresses, host)
        except RuntimeError as error:
            raise OSError(errno.ENOMEM, "no thread can be started") from error
        return await looking

    def close(self) -> None:
        """Let go of the threads; what runs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _addresses(host: str) -> Sequence[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except UnicodeError as error:  # a label too long for IDNA
        raise OSError(errno.EINVAL, "the name cannot be looked up") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Lookups:
    """
    Looks names up, a limited number at a time and by tenant, each name once at a time; keeps what it found for a while.

    ``places`` lookups run at once, and ``slow_places`` more of names that were slow: these hold up others of their
    kind and tenant alone. What takes longer than ``slow`` is slow, for some minutes.
    """

    def __init__(
        self,
        resolve: Resolve,
        kept: timedelta,
        *,
        places: int = _PLACES,
        slow_places: int = _SLOW_PLACES,
        slow: timedelta = _SLOW,
    ) -> None:
        self._resolve = resolve
        self._slow = slow.total_seconds()
        self._places = Shares(places)
        self._apart = Shares(slow_places)
        self._found: TTLCache[str, Sequence[str]] = TTLCache(_MOST_NAMES, kept.total_seconds())
        self._were_slow: TTLCache[str, bool] = TTLCache(_MOST_NAMES, _REMEMBERED.total_seconds())
        self._running: dict[str, asyncio.Task[Sequence[str]]] = {}

    async def begin(self, host: str, tenant: str, share: float) -> LookUp:
        """Wait until the lookup of a host has begun, within a tenant's share, and give what waits for its end."""
        if (begun := self._begun(host)) is not None:
            return begun
        places = self._apart if host in self._were_slow else self._places
        await places.take(tenant, share)
        if (begun := self._begun(host)) is not None:  # meanwhile
            places.give_back(tenant)
            return begun
        task = asyncio.create_task(self._look_up(host))
        self._running[host] = task
        # A thread cannot be stopped: its place is free when it has ended, whoever still waits.
        task.add_done_callback(lambda ended: self._ended(ended, host, places, tenant))
        return partial(_answer, task)

    def known(self, host: str) -> Sequence[str] | None:
        """Give the addresses of a host that need no lookup: it is one itself, or was looked up a moment ago."""
        return [host] if _is_literal(host) else self._found.get(host)

    def _begun(self, host: str) -> LookUp | None:
        if (running := self._running.get(host)) is not None:
            return partial(_answer, running)
        found = self.known(host)
        return None if found is None else partial(_at_once, found)

    def close(self) -> None:
        """Wait for nothing that runs."""
        for task in self._running.values():
            task.cancel()

    def _ended(self, task: asyncio.Task[Sequence[str]], host: str, places: Shares, tenant: str) -> None:
        del self._running[host]
        places.give_back(tenant)
        if not task.cancelled():
            task.exception()  # those who wait for it have it

    async def _look_up(self, host: str) -> Sequence[str]:
        began = time.monotonic()
        try:
            found = await self._resolve(host)
        finally:
            if time.monotonic() - began > self._slow:
                self._were_slow[host] = True
        if found:
            self._found[host] = found
        return found


async def _at_once(found: Sequence[str], _: timedelta) -> Sequence[str]:
    return found


async def _answer(running: asyncio.Task[Sequence[str]], patience: timedelta) -> Sequence[str]:
    done, _ = await asyncio.wait([running], timeout=patience.total_seconds())
    if not done or running.cancelled():
        raise UnresolvedError("not in time")
    try:
        found = running.result()
    except OSError as error:
        raise UnresolvedError(str(error)) from error
    if not found:
        raise UnresolvedError("the name has no address")
    return found


@lru_cache(_MOST_NAMES)
def _is_literal(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
