"""
Listening: events as they come, fire and forget.

Nobody acknowledges anything, and nothing is kept for one who is away: a loop that gets, while it runs, each event that
its subscription asks for, once, and those of a source in their order. Any number may listen in a process: one reader on
one connection serves them all, so none may hold up another, and one that is too slow is ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, Self

from journal import Database, DatabaseError, EntityTypes, Session
from projections.subscriptions.errors import InvalidSubscription, ListenerClosed, ListenerTooSlow
from projections.subscriptions.groups import is_reliable
from projections.subscriptions.live_reader import LiveReader
from projections.subscriptions.matched_event import MatchedEvent
from projections.subscriptions.reading import MatchPlace
from projections.subscriptions.settings import ListenerSettings
from projections.subscriptions.subscribing import made_at, subscribe

_REMOVED_MEANWHILE = "40001"
_TRIES = 5


class Interest(NamedTuple):
    """Which events somebody wants, in the words of :func:`projections.subscriptions.subscribing.subscribe`."""

    topics: Sequence[str] | None = None
    entity_types: Sequence[str] | EntityTypes | None = None
    contains: Mapping[str, Any] | None = None
    condition: str | None = None
    params: Mapping[str, Any] | None = None


class LiveSubscription(NamedTuple):
    """A subscription: its number, and when it was made."""

    subscription_id: int
    made_at: datetime


class Listener:
    """
    Lets any number listen to events for a group, with one reader and one connection of the pool for all of them.

    Processes may share a group: each gets all that it asks for. A subscription is shared by all who ask for the same,
    and expires a while after the last of them has gone.

    Args:
        database: The database that has the schema, as :func:`journal.connect` opens it.
        group: A group that only listens; it is made when it is not known. Not one that consumers read for.
        settings: Limits and times; None: the defaults.
    """

    def __init__(self, database: Database, group: str, *, settings: ListenerSettings | None = None) -> None:
        self.database = database
        self.group = group
        self.settings = settings or ListenerSettings()
        self._reader = LiveReader(database, group, self.settings)
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def position(self) -> int:
        """Number of the last match that has been given to its listener; -1 while nobody listens."""
        return self._reader.position

    @property
    def place(self) -> MatchPlace | None:
        """The same as a place; None while nobody listens."""
        return self._reader.place

    def listen(
        self,
        *,
        topics: Sequence[str] | None = None,
        entity_types: Sequence[str] | EntityTypes | None = None,
        contains: Mapping[str, Any] | None = None,
        condition: str | None = None,
        params: Mapping[str, Any] | None = None,
        buffer: int | None = None,
    ) -> Listening:
        """
        Events as they come: ``async for event in listener.listen(topics=["Landed"])``.

        The first step subscribes. To be sure from when on, ``async with listener.listen(...) as events``: they are all
        that is committed after it was entered. Leaving the loop ends it.

        Args:
            topics: Event types, or patterns of them, as :mod:`projections.interests.topics` says: ``*`` stands for one
                segment, ``**`` for one or more.
            entity_types: Kinds of sources; all where it is left out, or ``ALL_TYPES``.
            contains: What the payload must contain.
            condition: A boolean SQL expression over the event ``e`` and the subscription ``s``.
            params: Values for the condition.
            buffer: How many matches may wait to be taken; by default as the settings say.

        Raises:
            InvalidValue: The buffer holds nothing.
        """
        size = self.settings.buffer if buffer is None else buffer
        if size < 1:
            raise InvalidSubscription(f"buffer holds 1 match or more, not {size}")
        interest = Interest(topics, entity_types, contains, condition, params)
        return Listening(self, self._reader, interest, size)

    async def close(self) -> None:
        """End all loops, and give the connection back. Closing twice is allowed."""
        self._closed = True
        self._reader.end_all()
        await self._reader.close()

    async def subscribe(self, interest: Interest) -> LiveSubscription:
        """
        The subscription for an interest, which is made when there is none.

        Raises:
            SubscriptionLost: The listener was closed.
            InvalidValue: The interest cannot be; the message says why.
        """
        for last in range(_TRIES):
            if self._closed:
                raise ListenerClosed(f"the listener of group {self.group!r} was closed: make another")
            try:
                async with self.database.session() as session, session.transaction():
                    return await self._subscribe(session, interest)
            except DatabaseError as error:
                if error.sqlstate != _REMOVED_MEANWHILE or last == _TRIES - 1:
                    raise
        raise AssertionError  # the last try returns or raises

    async def _subscribe(self, session: Session, interest: Interest) -> LiveSubscription:
        number = await subscribe(
            session,
            self.group,
            **interest._asdict(),
            expires_after=self.settings.expires_after,
            reliable=False,
        )
        if await is_reliable(session, self.group):
            # Rolled back: its consumers must not be given what somebody listens to.
            raise InvalidSubscription(
                f"group {self.group!r} is one that consumers read for: listen with a group of another name"
            )
        return LiveSubscription(number, await made_at(session, number))


class Listening:
    """
    What somebody listens to; :meth:`Listener.listen` makes it.

    An iterator that can be left and gone on with, and a context manager. One that nobody refers to is forgotten, too.
    """

    def __init__(self, listener: Listener, reader: LiveReader, interest: Interest, limit: int) -> None:
        self.interest = interest
        self.limit = limit
        self.subscribed: LiveSubscription | None = None
        self.place: MatchPlace | None = None
        """It is given all matches after it; None before it has joined."""
        self.ended = asyncio.Event()
        """Nothing comes any more: it was closed, or has failed."""
        self._listener = listener
        self._reader = reader
        self._buffer: deque[MatchedEvent] = deque()
        self._changed = asyncio.Event()
        self._error: Exception | None = None

    @property
    def subscription_id(self) -> int | None:
        """Its subscription; None before it has subscribed."""
        return None if self.subscribed is None else self.subscribed.subscription_id

    @property
    def position(self) -> int:
        """It is given all matches after this number; -1 before it has joined."""
        return -1 if self.place is None else self.place.match_id

    async def __aenter__(self) -> Self:
        try:
            await self.join()
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MatchedEvent:
        """
        The next event.

        Raises:
            SubscriptionLost: The buffer was full; or somebody removed the subscription, or it expired while the process
                was cut off. What has come since is lost to this loop: listen again.
            DatabaseWentBack: After a fail-over or a restore the database lacks what was given: listen again.
        """
        await self.join()
        if not await self._filled():
            raise StopAsyncIteration
        return self._buffer.popleft()

    async def take(self, limit: int, seconds: float | None = None) -> list[MatchedEvent]:
        """
        All that waits, up to a number; waits until there is something, or for a number of seconds.

        Returns:
            None of them when the time is over, or nothing comes any more: see :attr:`ended`.
        """
        await self.join()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._filled()
        return [self._buffer.popleft() for _ in range(min(limit, len(self._buffer)))]

    async def subscribe(self) -> LiveSubscription:
        """Subscribe, which :meth:`join` does too; from here on the subscription is kept."""
        if self.subscribed is None:
            self.subscribed = await self._listener.subscribe(self.interest)
            if not self.ended.is_set():
                self._reader.add(self)
        return self.subscribed

    async def join(self) -> None:
        """Wait until it is certain that all matches after :attr:`position` come."""
        if self._decided():
            return
        await self.subscribe()
        self._reader.join(self)
        while not self._decided():
            await self._change()
        if self._error is not None:
            raise self._error

    def _decided(self) -> bool:
        return self.place is not None or self.ended.is_set()

    def close(self) -> None:
        """End it; what waits is dropped."""
        self._buffer.clear()
        self.end()

    def joined(self, place: MatchPlace) -> None:
        """See :class:`projections.subscriptions.live_reader.Sink`."""
        self.place = place
        self._changed.set()

    def put(self, event: MatchedEvent) -> None:
        """See :class:`projections.subscriptions.live_reader.Sink`."""
        if len(self._buffer) < self.limit:
            self._buffer.append(event)
            self._changed.set()
        else:
            self.fail(
                ListenerTooSlow(
                    f"{self.limit} matches of group {self._listener.group!r} waited to be taken, and more came: listen "
                    "again with a larger buffer, or let a consumer of a reliable group read, which keeps its place"
                )
            )

    def fail(self, error: Exception) -> None:
        """See :class:`projections.subscriptions.live_reader.Sink`."""
        self._error = error
        self.close()

    def end(self) -> None:
        """Let what waits be taken, and nothing come after it."""
        self.ended.set()
        self._changed.set()
        self._reader.remove(self)

    async def _filled(self) -> bool:
        """Wait until something can be taken; returns whether it can, or nothing comes any more."""
        while not self._buffer:
            if self._error is not None:
                raise self._error
            if self.ended.is_set():
                return False
            await self._change()
        return True

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
