"""Consumers: handlers that read reliably for a group, at least once, and in the order of each source."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeVar, Unpack, overload

from journal import Database
from projections.errors import InvalidHandler
from projections.subscriptions.consumer_loop import ConsumerLoop
from projections.subscriptions.errors import InvalidSubscription
from projections.subscriptions.group_handler import (
    Handler,
    HandlerOptions,
    HandlerSubscription,
    RegisteredHandler,
    register,
)
from projections.subscriptions.groups import is_reliable
from projections.subscriptions.matched_event import MatchedEvent
from projections.subscriptions.settings import ConsumerSettings
from projections.subscriptions.subscribing import register_handler, subscribe

H = TypeVar("H", bound=Handler)
Around: TypeAlias = Callable[[str, str, Sequence[MatchedEvent]], AbstractContextManager[object]]


class Consumer:
    """
    Reads for a group: every event that one of its handlers is for, at least once.

    Any number of processes may run a consumer of one group. They share the ranges of the group's slices
    (:func:`create_group`; ``projections groups rescale`` changes their number): each range has one reader at a time,
    and one that is gone is replaced once its lease ends.

    What is read is handed to all handlers, each with a queue of its own; the group's cursor moves to where everything
    before is done. After a crash, or when a handler without ``retries`` fails, what lies behind the cursor comes
    again, to all handlers of the range: they must bear to see an event twice.

    While an application is replaced by another version of it, processes of one group have different handlers. What is
    for a handler that the reader of a range does not have is kept for it, in its order, and is handled by any process
    that has it, now or later.

    Args:
        database: The database that has the schema. One connection is used, whatever the number of handlers and ranges.
            Where this process runs projections, too, a pool of its own: :func:`projections.run` uses up all of its own.
        group: The group; it is made when it is not known.
        settings: Limits and times; None: the defaults.
        around: Makes a context manager in which a handler is called, of the names of the group and the handler, and the
            batch: that of ``handling`` of :class:`projections.monitoring.Tracing` makes spans.
    """

    def __init__(
        self,
        database: Database,
        group: str,
        *,
        settings: ConsumerSettings | None = None,
        around: Around | None = None,
    ) -> None:
        if not group:
            raise InvalidSubscription(f"the name of a group has 1 to 255 characters, not {group!r:.80}")
        self._database = database
        self._group = group
        self._settings = settings or ConsumerSettings()
        self._around = around
        self._handlers: dict[str, RegisteredHandler] = {}
        self._running = False

    @overload
    def handle(self, handler: H, /, *, name: str, **options: Unpack[HandlerOptions]) -> H: ...

    @overload
    def handle(self, /, *, name: str, **options: Unpack[HandlerOptions]) -> Callable[[H], H]: ...

    def handle(
        self, handler: H | None = None, /, *, name: str, **options: Unpack[HandlerOptions]
    ) -> H | Callable[[H], H]:
        """
        Register a handler, also as a decorator: an async function that takes a sequence of :class:`MatchedEvent`.

        Args:
            handler: The async function that gets the batches; left out where this is a decorator.
            name: Its name within the group, for good: failed batches are kept under it.
            options: Those that follow.
            topics: As for :func:`subscribe`, as are the next five.
            entity_types: Kinds of sources; all where it is left out, or ``ALL_TYPES``.
            contains: What the payload must contain.
            condition: A boolean SQL expression over ``e`` and ``s``.
            params: Values for the condition.
            expires_after: Remove the subscription when no consumer has run for this long.
            start: From which time on the subscription gets events, where it is new, by default as its group was made
                with; one that is known goes on.
            retries: Pauses, in seconds or as timedeltas, or a :class:`projections.Retries`: a batch that failed is
                kept, handled again after the first, then after the second, and so on; when they are used up it is a
                dead letter. Meanwhile everything else goes on. Without them the range starts again where its cursor
                is, and waits for this handler.
            timeout: How long a call may take; by default as the settings say.
            split_by: A function from a batch to its parts, which are handled one after another; with ``retries`` only
                a part that failed is handled again.
            batch: The largest number of events in a call.

        Raises:
            InvalidHandler: It cannot be; the message says why.
        """
        if handler is None:
            return partial(self._register, name, options)
        return self._register(name, options, handler)

    def _register(self, name: str, options: HandlerOptions, handler: H) -> H:
        registered = register(name, handler, options, self._settings.handler_timeout)
        if registered.name in self._handlers:
            raise InvalidHandler(f"handler {name!r} is registered twice: give each a name of its own")
        if self._running:
            raise InvalidHandler(f"handler {name!r} comes too late: the consumer runs")
        self._handlers[registered.name] = self._surrounded(registered)
        return handler

    def _surrounded(self, handler: RegisteredHandler) -> RegisteredHandler:
        around = self._around
        if around is None:
            return handler

        async def call(batch: Sequence[MatchedEvent]) -> None:
            with around(self._group, handler.name, batch):
                await handler.call(batch)

        return replace(handler, call=call)

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """
        Subscribe the handlers, and read until told to stop, or cancelled.

        Told to stop, it finishes what handlers have begun with, stores how far they are, and gives its ranges to others
        at once. While it runs, no failure of a handler, and none of the database, ends it: both are logged.

        Args:
            stop: Set it to stop.

        Raises:
            InvalidHandler: No handler is registered, it runs already, or two handlers ask for the same events from
                different times.
            InvalidValue: What a handler asks for, its condition or the name of the group, cannot be.
            DatabaseUnavailable: There was no database when it started.
            SchemaError: The schema was upgraded meanwhile, or an older one restored.
        """
        if not self._handlers:
            raise InvalidHandler(f"the consumer of group {self._group!r} has no handler: register one first")
        if self._running:
            raise InvalidHandler(f"the consumer of group {self._group!r} runs already: make another")
        self._running = True
        owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        consuming = ConsumerLoop(self._database, self._group, owner, self._subscribe, self._settings)
        try:
            await consuming.run(stop or asyncio.Event())
        finally:
            self._running = False

    async def _subscribe(self) -> dict[str, HandlerSubscription]:
        """All of them or none."""
        async with self._database.session() as session, session.transaction():
            subscribed: dict[str, HandlerSubscription] = {}
            for name, registered in self._handlers.items():
                wanted = await subscribe(session, self._group, **registered.filters)
                _check_start(registered, wanted, subscribed.values())
                number = await register_handler(session, self._group, name, wanted)
                subscribed[name] = HandlerSubscription(registered, wanted, number)
            if not await is_reliable(session, self._group):
                raise InvalidSubscription(
                    f"group {self._group!r} only listens, and nothing is kept for it: consume for another"
                )
            return subscribed


def _check_start(
    handler: RegisteredHandler, subscription_id: int, others: Iterable[HandlerSubscription]
) -> None:
    """Which of them made the subscription would decide from when on both get events."""
    group = "the start of the group"
    for other in others:
        if other.subscription_id == subscription_id and other.handler.start != handler.start:
            starts = f"{other.handler.start or group} and {handler.start or group}"
            raise InvalidHandler(
                f"handlers {other.handler.name!r} and {handler.name!r} share a subscription, as they ask for the same "
                f"events, and start at {starts}: give one of them params of its own, such as "
                f"params={{'for': {handler.name!r}}}"
            )
