"""Compressed bodies of webhooks: made outside the event loop, and once for all endpoints of a message."""

from __future__ import annotations

import asyncio
import hashlib

from cachetools import LRUCache

from journal.tasks import Shared
from projections.webhooks.outgoing import Outgoing
from projections.webhooks.signed_request import gzip_body

_SMALL = 16_384
"""Bytes that are compressed in less time than it takes to hand them to a thread and back: 0.7 ms."""
_KEPT = 16 << 20
"""Bytes of results that are kept, for other endpoints of the same message, and its next attempts."""


class Compression:
    """Compresses requests that are already signed; a body of 1 MB takes some 45 ms."""

    def __init__(self) -> None:
        self._kept: LRUCache[str, bytes] = LRUCache(_KEPT, getsizeof=len)
        self._making: Shared[bytes] = Shared()

    async def compressed(self, outgoing: Outgoing) -> Outgoing:
        """
        Give the same request with its body in gzip.

        Args:
            outgoing: It is signed, and its body is not compressed.
        """
        body = await self._body(outgoing.body)
        return outgoing._replace(headers=(*outgoing.headers, ("content-encoding", "gzip")), body=body)

    async def aclose(self) -> None:
        """End what is being compressed."""
        await self._making.aclose()

    async def _body(self, body: bytes) -> bytes:
        if len(body) <= _SMALL:
            return gzip_body(body)
        digest = hashlib.sha256(body).hexdigest()
        if (found := self._kept.get(digest)) is None:
            found = await self._making.get(digest, lambda: self._made(digest, body))
        return found

    async def _made(self, digest: str, body: bytes) -> bytes:
        made = await asyncio.to_thread(gzip_body, body)
        if len(made) <= self._kept.maxsize:
            self._kept[digest] = made
        return made
