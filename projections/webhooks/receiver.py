"""
A receiver of webhooks for trying things out, for tests and for measurements.

    async with Receiver(secret, script=[503, 503]) as receiver:
        ...  # an endpoint at receiver.url
        await receiver.wait_for(3)  # three messages, however often each was sent
        assert receiver.totals.duplicates == 0

It does what a receiver is to do: it verifies before anything else, answers 2xx for a message that it has, and counts
it once. On request, it fails. A sender that is to reach it must be allowed to: ``AddressRules(allow=
("127.0.0.0/8",))`` and ``allow_http=True``.
"""

from __future__ import annotations

import asyncio
import json
import random
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self, TypeAlias

from cachetools import FIFOCache

from projections.extras import from_extra
from projections.http.addresses import Address
from projections.http.connection_limits import ConnectionLimits
from projections.http.serving import listening
from projections.webhooks.errors import VerificationFailed
from projections.webhooks.retry_policy import is_success
from projections.webhooks.signing import ID_HEADER, Secret, parse_secrets, verify
from projections.webhooks.topics import CHALLENGE

with from_extra("webhooks"):
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

Verification: TypeAlias = Literal["verified", "refused", "unchecked"]

_ACCEPTED = 204
_MALFORMED = 400
_UNVERIFIED = 401
_TOO_LARGE = 413
_TOLD = "the receiver fails on request"
_LARGEST = 1 << 28
_REMEMBERED = 1_000_000
"""Ids of messages, to tell duplicates."""


@dataclass(frozen=True, slots=True)
class Received:
    """One request, and how it was answered."""

    at: datetime
    message_id: str
    """Its ``webhook-id``; empty where it has none."""
    headers: Mapping[str, str]
    """Their names in lower case."""
    body: bytes
    """Decompressed."""
    verification: Verification
    """Whether its signature is by a known secret; ``unchecked`` without secrets."""
    reason: str | None
    status: int
    sending: int
    """How often this message has come: 1 for the first time."""
    duplicate: bool
    """It had been accepted before."""

    @property
    def accepted(self) -> bool:
        """Whether the answer says that it has arrived."""
        return is_success(self.status)

    @property
    def topic(self) -> str | None:
        """The ``type`` of its body; None where there is none."""
        document = self._document()
        found = document.get("type") if isinstance(document, dict) else None
        return found if isinstance(found, str) else None

    def data(self) -> Any:
        """The ``data`` of its body, as JSON is read; None where there is none."""
        document = self._document()
        return document.get("data") if isinstance(document, dict) else None

    def _document(self) -> Any:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


@dataclass(slots=True)
class Totals:
    """What has come so far."""

    requests: int = 0
    messages: int = 0
    """Different messages that were accepted."""
    duplicates: int = 0
    """Requests with a message that had been accepted before."""
    failed: int = 0
    """Requests that were answered with a failure because the receiver was to fail."""
    refused: int = 0
    """Requests whose signature is by no known secret, or that are too old."""


class Receiver:
    """
    Receives webhooks, for the length of a block.

    Args:
        secrets: Those of the endpoint: ``whsec_…`` or ``whpk_…``, one or several; None: signatures are not checked.
        host: The address to listen on.
        port: The port to listen on; 0 for any that is free.
        fail_rate: The share of messages' sendings that are answered with ``status``: 0 to 1.
        status: What a failure is answered with.
        script: What the first requests are answered with, before chance has its say; see :meth:`fail`.
        delay: The time to wait before each answer.
        seed: A seed for chance: with the same one the same requests fail.
        keep: How many of the newest requests to hold in ``received``; None: all.
        on_received: Is notified of each request when it has been answered.
        limits: Bounds of connections; None: no bounds.

    Raises:
        InvalidValue: A secret is malformed.
    """

    def __init__(
        self,
        secrets: Secret | str | Iterable[Secret | str] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        fail_rate: float = 0.0,
        status: int = 500,
        script: Iterable[int] = (),
        delay: timedelta = timedelta(0),
        seed: int | None = None,
        keep: int | None = None,
        on_received: Callable[[Received], None] | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        if not 0 <= fail_rate <= 1:
            raise ValueError(f"fail_rate is 0 to 1, not {fail_rate}")
        self.received: list[Received] = []
        self.totals = Totals()
        self._secrets = [] if secrets is None else parse_secrets(secrets)
        self._place = Address(host, port)
        self._fail_rate = fail_rate
        self._status = status
        self._script = list(script)
        self._delay = delay.total_seconds()
        self._chance = random.Random(seed)  # noqa: S311 - no secret depends on it
        self._keep = keep
        self._on_received = on_received
        self._limits = limits
        self._sendings: FIFOCache[str, int] = FIFOCache(_REMEMBERED)
        self._accepted: FIFOCache[str, bool] = FIFOCache(_REMEMBERED)
        self._more = asyncio.Condition()
        self._served = AsyncExitStack()
        self._url = ""

    @property
    def url(self) -> str:
        """Where it listens."""
        return self._url

    async def __aenter__(self) -> Self:
        """
        Begin to listen.

        Raises:
            AddressInUse: Nothing can listen there.
        """
        app = Starlette(routes=[Route("/{path:path}", self._answer, methods=["POST"])])
        place = await self._served.enter_async_context(listening(self._place, app, self._limits))
        self._url = f"http://{place}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._served.aclose()

    def fail(self, *statuses: int) -> None:
        """Answer the next requests with these statuses (a 2xx accepts), one after the other."""
        self._script.extend(statuses)

    async def wait_for(self, messages: int) -> None:
        """Wait until this number of different messages was accepted."""
        await self._wait(lambda: self.totals.messages >= messages)

    async def wait_for_requests(self, requests: int) -> None:
        """Wait until this number of requests came, whatever was answered."""
        await self._wait(lambda: self.totals.requests >= requests)

    async def _wait(self, enough: Callable[[], bool]) -> None:
        async with self._more:
            await self._more.wait_for(enough)

    async def _answer(self, request: Request) -> Response:
        try:
            body = await _body(request)
        except (ClientDisconnect, zlib.error):
            return Response(status_code=_MALFORMED)
        if len(body) > _LARGEST:
            return Response(status_code=_TOO_LARGE)
        one = self._judged(dict(request.headers), body)
        if self._delay:
            await asyncio.sleep(self._delay)
        await self._keep_one(one)
        if one.accepted and one.topic == CHALLENGE:
            return JSONResponse(one.data())
        said = one.reason or (None if one.accepted else _TOLD)
        return Response(said, one.status, media_type="text/plain")

    def _judged(self, headers: Mapping[str, str], body: bytes) -> Received:
        message_id = headers.get(ID_HEADER, "")
        verification, reason = self._verified(headers, body)
        sending = 1
        if verification != "refused" and message_id:
            self._sendings[message_id] = sending = self._sendings.get(message_id, 0) + 1
        duplicate = message_id in self._accepted
        status = _UNVERIFIED if verification == "refused" else self._chosen_status()
        accepted = is_success(status)
        if accepted and message_id:
            self._accepted[message_id] = True
        self._count(verification, accepted=accepted, duplicate=duplicate)
        return Received(
            datetime.now(UTC), message_id, headers, body, verification, reason, status, sending, duplicate
        )

    def _verified(self, headers: Mapping[str, str], body: bytes) -> tuple[Verification, str | None]:
        if not self._secrets:
            return "unchecked", None
        try:
            verify(self._secrets, headers, body)
        except VerificationFailed as error:
            return "refused", str(error)
        return "verified", None

    def _chosen_status(self) -> int:
        if self._script:
            return self._script.pop(0)
        failing = self._fail_rate > 0 and self._chance.random() < self._fail_rate
        return self._status if failing else _ACCEPTED

    def _count(self, verification: Verification, *, accepted: bool, duplicate: bool) -> None:
        totals = self.totals
        if verification == "refused":
            totals.refused += 1
            return
        totals.failed += not accepted
        totals.duplicates += duplicate
        totals.messages += accepted and not duplicate

    async def _keep_one(self, one: Received) -> None:
        self.totals.requests += 1
        self.received.append(one)
        if self._keep is not None:
            del self.received[: -self._keep or None]
        if self._on_received is not None:
            self._on_received(one)
        async with self._more:
            self._more.notify_all()


async def _body(request: Request) -> bytes:
    """Of a request, decompressed; of one that is too large, more than there may be."""
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > _LARGEST:
            break
    if request.headers.get("content-encoding", "").lower() in {"gzip", "deflate"}:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(content, _LARGEST + 1)
    return bytes(content)
