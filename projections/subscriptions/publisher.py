"""A publisher that gathers what an application publishes, and stores it in batches."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import UUID

from journal import Appended, Database, ProjectionsError, uuid7
from journal.database import Fault, fault_of
from journal.service import AT_ONCE, WHEN_WOKEN, Service
from projections.subscriptions.errors import PublishFailed
from projections.subscriptions.publishing import (
    DEFAULT_PUBLISHER,
    Publication,
    check_publisher,
    publish_rows,
)
from projections.subscriptions.settings import PublisherSettings

log = logging.getLogger("projections")

_PATIENCE = 30
"""Seconds that a batch may take: a connection that says nothing for that long is dead."""


class _Waiting(NamedTuple):
    row: tuple[Any, ...]
    stored: asyncio.Future[Appended]


class AcceptedPayload:
    """A payload that was accepted: await it until it is stored. Whoever stops to wait does not take it back."""

    __slots__ = ("_stored",)

    def __init__(self, stored: asyncio.Future[Appended]) -> None:
        self._stored = stored

    def __await__(self) -> Generator[Any, None, Appended]:
        """Where it was stored; raises what has kept it from that."""
        return asyncio.shield(self._stored).__await__()


class Publisher:
    """
    Publishes many payloads with few transactions, in the order in which they were accepted.

    Use it as an asynchronous context manager, or :meth:`close` it: that stores what still waits.

    Args:
        database: Where payloads are published; one connection is used.
        name: Its name, 1 to 245 characters. Its order is kept by storing one batch after another: processes that
            publish under one name wait for one another.
        settings: Sizes of batches, and time limits; None: the defaults.
    """

    def __init__(
        self, database: Database, name: str = DEFAULT_PUBLISHER, *, settings: PublisherSettings | None = None
    ) -> None:
        check_publisher(name)
        self._database = database
        self._name = name
        self._settings = settings or PublisherSettings()
        self._waiting: deque[_Waiting] = deque()
        self._turn = asyncio.Lock()
        self._room = asyncio.Event()
        self._flushing = 0
        self._gathers_until: float | None = None
        self._failing_since: float | None = None
        self._service = Service(
            f"publisher {name}", self._store_some, restart=self._settings.restart.delay, failed=self._tell_failure,
            goes_on=lambda: bool(self._waiting) or not self._is_closing,
        )  # fmt: skip
        self._task: asyncio.Task[bool] | None = None
        self._lost = 0
        self._first_error: Exception | None = None

    async def publish(
        self,
        topic: str,
        payload: Any,
        *,
        metadata: Mapping[str, Any] | None = None,
        event_id: UUID | None = None,
        subscription_id: int | None = None,
        not_before: datetime | None = None,
        traceparent: str | None = None,
    ) -> AcceptedPayload:
        """
        Accept a payload; waits while too many are waiting to be stored.

        Args:
            topic: The event type that subscriptions match, such as ``order.paid``.
            payload: As for :class:`Publication`.
            metadata: Anything that is not part of the payload.
            event_id: Publish only once under this id; by default a new one.
            subscription_id: Publish to this subscription alone.
            not_before: Match it at this time, not earlier; needs a zone.
            traceparent: The W3C trace context of the span that publishes.

        Returns:
            What can be awaited until the payload is stored for good; it raises what has kept it from that. Nobody need:
            :meth:`close` tells, too.

        Raises:
            InvalidEvent: It cannot be stored, and was not accepted.
            PublishFailed: The publisher was closed.
        """
        publication = Publication(
            topic, payload, metadata, event_id or new_event_id(), subscription_id, not_before, traceparent
        )
        row = publication.row()
        if len(self._waiting) < self._settings.buffer and not self._is_closing and not self._turn.locked():
            return self._accept(row)
        async with self._turn:  # those who wait for room are served in their order
            while len(self._waiting) >= self._settings.buffer and not self._is_closing:
                self._room.clear()
                await self._room.wait()
            if self._is_closing:
                raise PublishFailed(f"publisher {self._name!r} is closed: nothing was accepted")
            return self._accept(row)

    def _accept(self, row: tuple[Any, ...]) -> AcceptedPayload:
        stored: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(row, stored))
        if self._task is None:
            self._task = asyncio.create_task(self._service.run())
        if len(self._waiting) == 1 or len(self._waiting) >= self._settings.batch:
            self._service.wake()
        return AcceptedPayload(stored)

    @property
    def _is_closing(self) -> bool:
        return self._service.stopping.is_set()

    async def flush(self) -> None:
        """
        Wait until everything that was accepted so far is stored, or has failed.

        Raises:
            PublishFailed: Something could not be stored.
        """
        lost = self._lost
        if self._waiting:
            self._flushing += 1
            self._service.wake()
            try:
                await asyncio.wait([self._waiting[-1].stored])
            finally:
                self._flushing -= 1
        if self._lost > lost:
            raise self._failed()

    async def close(self) -> None:
        """
        Store what waits, and end. Closing twice is allowed.

        Raises:
            PublishFailed: Something that was accepted, at any time, could not be stored.
        """
        self._service.stop()
        self._room.set()
        if self._task is not None:
            await asyncio.shield(self._task)
        if self._lost:
            raise self._failed() from self._first_error

    def _failed(self) -> PublishFailed:
        failed = PublishFailed(
            f"publisher {self._name!r}: {self._lost} of what it had accepted could not be stored: {self._first_error}"
        )
        failed.__cause__ = self._first_error
        return failed

    async def __aenter__(self) -> Self:
        """Begin; nothing is connected before the first payload."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; an error of the block is the one that is raised."""
        try:
            await self.close()
        except PublishFailed as failed:
            if error is None:
                raise
            log.error("%s", failed, extra={"action": "publish_failed", "publisher": self._name})  # noqa: TRY400 - one line

    async def _store_some(self) -> float:
        """Store a batch; after one whose outcome is unknown too: what it has stored is found by its ids."""
        if not self._waiting:
            return WHEN_WOKEN
        if (pause := self._gathers_for()) > 0:
            return pause
        await self._store(list(islice(self._waiting, self._settings.batch)))
        self._gathers_until = None
        if len(self._waiting) >= self._settings.batch:
            self._service.wake()  # before all else that is ready: those who publish go on while the next one is stored
        return AT_ONCE

    def _gathers_for(self) -> float:
        """Seconds to wait for more."""
        if len(self._waiting) >= self._settings.batch or self._flushing or self._is_closing:
            return 0
        now = asyncio.get_running_loop().time()
        self._gathers_until = self._gathers_until or now + self._settings.within.total_seconds()
        return self._gathers_until - now

    async def _store(self, batch: Sequence[_Waiting]) -> None:
        """Store a batch in one transaction; what is at fault fails alone. Raises what may pass."""
        try:
            async with asyncio.timeout(_PATIENCE), self._database.session() as session:
                appended = await publish_rows(session, self._name, [waiting.row for waiting in batch])
        except Exception as error:
            is_passing = _is_passing(error)
            if is_passing and self._has_patience():
                raise
            if is_passing or len(batch) == 1 or fault_of(error) is not Fault.EVENT:
                self._fail(batch, error)
                return
            half = len(batch) // 2
            await self._store(batch[:half])
            await self._store(batch[half:])
            return
        self._failing_since = None
        for waiting, place in zip(batch, appended, strict=True):
            waiting.stored.set_result(place)
        self._forget(batch)

    def _has_patience(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._failing_since = self._failing_since or now
        return now - self._failing_since < self._settings.patience.total_seconds()

    def _forget(self, batch: Sequence[_Waiting]) -> None:
        """They were the first of those that wait; until now they counted, for the buffer bounds all that is held."""
        for _ in batch:
            self._waiting.popleft()
        self._room.set()

    def _fail(self, batch: Sequence[_Waiting], error: Exception) -> None:
        self._lost += len(batch)
        self._first_error = self._first_error or error
        log.error(
            "publisher %s: %d of what it had accepted could not be stored: %s", self._name, len(batch), error,
            extra={"action": "publish_failed", "publisher": self._name},
        )  # fmt: skip
        for waiting in batch:
            waiting.stored.set_exception(error)
            waiting.stored.exception()  # or asyncio complains of an error that nobody saw: close() tells
        self._forget(batch)

    def _tell_failure(self, error: Exception) -> None:
        log.warning(
            "publisher %s: trying again in about %.1f s: %s",
            self._name, self._settings.restart.pause(self._service.failures).total_seconds(), error,
            extra={"action": "publish_again", "publisher": self._name},
        )  # fmt: skip


def _is_passing(error: Exception) -> bool:
    """
    Whether it may be over in a while, as a fail-over is.

    Whether the batch was stored is unknown then; doing it again is safe.
    """
    foreseen = isinstance(error, ProjectionsError) and fault_of(error) in {Fault.BATCH, Fault.DATABASE}
    return foreseen or isinstance(error, TimeoutError)


def new_event_id() -> UUID:
    """Of version 7, so that looking for it again looks where it can be."""
    return uuid7(time.time_ns() // 1_000_000, secrets.randbits(74))
