"""Calling the handlers of a projection for a batch of events, and seeing what they should not do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel

from journal import (
    DatabaseError,
    DatabaseWentBack,
    EventEnvelope,
    InvalidPayload,
    OwnedSession,
    ProjectionsError,
    UnknownEventType,
    decoder,
)
from journal.database import Fault, sqlstate_of, translate
from offsets import TransactionEnded
from projections.defining import Batch, ExactlyOnce, Kind, Projection, TableError
from projections.errors import HandlerFailed, ProjectionFailed, describe, name_of, text_of
from projections.running.blame import before_it, blame, comes_from_outside
from projections.running.loop_monitor import LoopMonitor
from projections.running.reacting import find_reactions
from projections.running.read_model_writer import ReadModelWriter
from projections.running.table_writer import BatchWriter
from projections.running.watchdog import Watchdog

T = TypeVar("T")

_SILENCE = 1.0
"""Seconds, by the event loop's clock, after which the database hears something: it ends a silent transaction."""
_SPEAK = "SELECT 1"

_Handler = tuple[Callable[[EventEnvelope], BaseModel], Callable[..., Any]]
_Events = list[tuple[BaseModel, EventEnvelope]]


class Dispatcher:
    """
    Calls the handlers of one range's object.

    Args:
        projection: The projection whose handlers are called.
        target: The object whose methods are called.
        tables: Writes what table handlers return; shared by all ranges of a process.
        monitor: Gets what is being handled.
        timeout: How long a call of a handler may take.
        read_models: Runs the statements of read models in SQL; shared by all ranges of a process.
        reacts: The projection's number, by which it is known what was reacted to. None: no reaction is called, as in a
            rebuild.
        in_place: Whether the journal is ours, and in the database of the read models.
    """

    def __init__(
        self,
        projection: Projection,
        target: Any,
        tables: BatchWriter,
        monitor: LoopMonitor,
        timeout: timedelta,
        *,
        read_models: ReadModelWriter | None = None,
        reacts: int | None = None,
        in_place: bool = True,
    ) -> None:
        self._projection = projection
        self._handlers = _decoded(projection.handlers, target)
        self._reactions = {} if reacts is None else _decoded(projection.reactions, target)
        self._number = reacts
        self._tables = tables
        self._read_models = read_models or ReadModelWriter()
        self._in_place = in_place
        self._monitor = monitor
        self._timeout = timeout.total_seconds()
        self._in_transaction = isinstance(projection.delivery, ExactlyOnce)
        self._target = target
        self._handle = {
            Kind.EVENT: self._each,
            Kind.GROUP: self._group,
            Kind.TABLE: self._table,
            Kind.STATEMENT: self._statement,
            Kind.HEADS: self._whole,
            Kind.ENVELOPES: self._whole,
        }[projection.kind]

    async def handle(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        """
        Handle events in their order; exactly once, in the session's transaction.

        Raises:
            HandlerFailed: A handler raised, a payload does not fit, or the rows cannot be written.
            MemoryError: This process has too little left for these events.
            TransactionEnded: A handler committed or rolled back by itself.
        """
        # Handlers have limits of their own (handler_timeout).
        patience, session.patience = session.patience, None
        try:
            await self._handle(session, envelopes)
            if self._number is not None and self._reactions:
                find = await find_reactions(session, self._number, self._reactions, envelopes)
                if find is not None:
                    await self._call(session, envelopes, find)
        finally:
            session.patience = patience

    def _find(self, envelope: EventEnvelope) -> _Handler | None:
        found = self._handlers.get(envelope.event_type)
        if found is None and not self._projection.passes_over(envelope.event_type):
            known = ", ".join(sorted(self._handlers))
            raise UnknownEventType(
                f"{describe(envelope)}: no handler of projection {self._projection.name!r} takes it; "
                f"handled are: {known}"
            )
        return found

    async def _each(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        await self._call(session, envelopes, self._find)

    async def _call(
        self,
        session: OwnedSession,
        envelopes: Sequence[EventEnvelope],
        find: Callable[[EventEnvelope], _Handler | None],
    ) -> None:
        clock = asyncio.get_running_loop().time  # looked up once, and not for each event
        spoken_at = clock()
        with self._monitor.handling() as name, closing(Watchdog(self._timeout)) as watchdog:
            for index, envelope in enumerate(envelopes):
                try:
                    if (found := find(envelope)) is None:
                        continue
                    decode, method = found
                    event = decode(envelope)
                    name(envelope)
                    with watchdog:
                        await method(session, event, envelope)
                except BaseException as error:  # noqa: BLE001 - a poison event ends no process, nor looks like its end
                    await _raise(session, self._hung(watchdog, error), envelope, index)
                if self._in_transaction:
                    if _spoiled(session):
                        await _complain(session, envelope, index)
                    if clock() - spoken_at >= _SILENCE:
                        await session.fetchval(_SPEAK)
                        spoken_at = clock()
            await self._flush(session, envelopes, watchdog)

    async def _flush(
        self, session: OwnedSession, envelopes: Sequence[EventEnvelope], watchdog: Watchdog
    ) -> None:
        """Run what the handlers of these events have queued, within the time of one of them."""
        several = "" if len(envelopes) == 1 else "a batch from "
        try:
            with watchdog:
                await session.flush()
        except BaseException as error:  # noqa: BLE001 - as above
            await _raise(session, self._hung(watchdog, error), envelopes[0], None, several)

    async def _group(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        clock = asyncio.get_running_loop().time
        spoken_at = clock()
        for method, events in await self._lists(session, envelopes):
            first = events[0][1]
            several = f"a group of {len(events)} from " if len(events) > 1 else ""
            try:
                with self._monitor.handling() as name, closing(Watchdog(self._timeout)) as watchdog, watchdog:
                    name(first)
                    await method(session, events)
                    await session.flush()
            except BaseException as error:  # noqa: BLE001 - as above
                await _raise(session, self._hung(watchdog, error), first, None, several)
            if self._in_transaction:
                if _spoiled(session):
                    await _complain(session, first, None)
                if clock() - spoken_at >= _SILENCE:
                    await session.fetchval(_SPEAK)
                    spoken_at = clock()

    async def _whole(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        first = envelopes[0]
        try:
            with self._monitor.handling() as name, closing(Watchdog(self._timeout)) as watchdog, watchdog:
                name(first)
                await self._target.handle(session, envelopes)
        except BaseException as error:  # noqa: BLE001 - as above
            await _raise(session, self._hung(watchdog, error), first, None)

    def _hung(self, watchdog: Watchdog, error: BaseException) -> BaseException:
        if not isinstance(error, TimeoutError) or not watchdog.expired():
            return error  # the handler's own
        hung = TimeoutError(f"the handler was cancelled after {self._timeout:g} s (handler_timeout)")
        hung.__cause__ = error  # knows where it was waiting
        return hung

    async def _lists(
        self, session: OwnedSession, envelopes: Sequence[EventEnvelope]
    ) -> list[tuple[Callable[..., Any], _Events]]:
        """The list of each method; cut where a source goes on with another method, to keep its order."""
        lists: list[tuple[Callable[..., Any], _Events]] = []
        growing: dict[Callable[..., Any], _Events] = {}
        taken_by: dict[str, Callable[..., Any]] = {}
        for index, envelope in enumerate(envelopes):
            try:
                if (found := self._find(envelope)) is None:
                    continue
                event = found[0](envelope)
            except BaseException as error:  # noqa: BLE001 - of a validator or an upcast
                await _raise(session, error, envelope, index)
            method = found[1]
            if taken_by.get(envelope.source_id, method) != method:
                growing, taken_by = {}, {}
            if method not in growing:
                growing[method] = []
                lists.append((method, growing[method]))
            growing[method].append((event, envelope))
            taken_by[envelope.source_id] = method
        return lists

    async def _table(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        batch, handlers, passes_over = Batch(), self._handlers, self._projection.passes_over
        collect = batch.collect
        with self._monitor.handling() as name:
            name(envelopes[0])
            for index, envelope in enumerate(envelopes):
                found = handlers.get(envelope.event_type)
                if found is None and passes_over(envelope.event_type):
                    continue
                try:
                    decode, method = found or self._find(envelope)  # type: ignore[misc]
                    collect(envelope.source_id, method(decode(envelope), envelope))
                except BaseException as error:  # noqa: BLE001 - as above
                    await _raise(session, error, envelope, index)
        await self._tables.prepare(
            session, *batch.tables
        )  # a table that does not fit is nobody's event's fault
        await self._write(session, envelopes, self._tables.write(session, batch))

    async def _statement(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        plans = await self._read_models.prepare(session, self._projection)  # as above
        write = self._read_models.write if self._in_place else self._read_models.write_given
        with self._monitor.handling() as name:
            name(envelopes[0])
            await self._write(session, envelopes, write(session, plans, envelopes))

    async def _write(
        self, session: OwnedSession, envelopes: Sequence[EventEnvelope], writing: Awaitable[None]
    ) -> None:
        try:
            await self.within_time(writing)
        except (ProjectionFailed, DatabaseWentBack):
            raise
        except BaseException as error:  # noqa: BLE001 - as above
            await _raise(session, error, envelopes[0], None, "" if len(envelopes) == 1 else "a batch from ")

    async def within_time(self, writing: Awaitable[T]) -> T:
        """
        Write, but not longer than a handler may take.

        Raises:
            HandlerFailed: It took longer; less may pass.
        """
        try:
            async with asyncio.timeout(self._timeout):
                return await writing
        except TimeoutError as error:
            raise HandlerFailed(
                f"projection {self._projection.name!r}: writing a batch was cancelled after {self._timeout:g} s "
                "(handler_timeout): something else has its tables or rows locked, or an event takes so long",
                fault=Fault.BATCH,
            ) from error


def _decoded(methods: Mapping[str, tuple[type[BaseModel], str]], target: Any) -> dict[str, _Handler]:
    return {name: (decoder(model), getattr(target, method)) for name, (model, method) in methods.items()}


def _reason(error: BaseException) -> str:
    named = isinstance(error, DatabaseError | InvalidPayload | TableError)
    return text_of(error) if named else f"{name_of(error)}: {text_of(error)}"


async def _raise(
    session: OwnedSession, error: BaseException, envelope: EventEnvelope, index: int | None, prefix: str = ""
) -> NoReturn:
    """Raise what a handler's error is: the event's failure, or an error that is not the event's."""
    if comes_from_outside(error):
        if isinstance(error, Exception | KeyboardInterrupt | GeneratorExit | asyncio.CancelledError):
            raise error
        raise asyncio.CancelledError from error  # what the handler made of it
    if (before := await before_it(session, error)) is not None:
        raise before from error
    fault = await blame(session, error)
    if fault in {Fault.BATCH, Fault.DATABASE}:
        if isinstance(error, ProjectionsError) or sqlstate_of(error) is None:
            raise error
        failure = translate(error)  # the driver's own, or the user's about it
        failure.origin = session.origin
        raise failure from error
    # What does not fit its model, or has none, names the event already.
    what = text_of(error) if isinstance(error, InvalidPayload) else f"{describe(envelope)}: {_reason(error)}"
    raise HandlerFailed(prefix + what, index, fault) from error


def _spoiled(session: OwnedSession) -> bool:
    return session.failure is not None or session.queue_failed or not session.in_transaction


async def _complain(session: OwnedSession, envelope: EventEnvelope, index: int | None) -> None:
    """Say what a handler has done to its transaction."""
    fault = Fault.EVENT if session.failure is None else await blame(session, session.failure)
    if session.failure is not None and fault in {Fault.BATCH, Fault.DATABASE}:
        raise session.failure
    if not session.in_transaction:
        await session.fetchval(_SPEAK)  # raises when it is the connection that has ended
        raise TransactionEnded(
            f"the handler of {describe(envelope)} ended the transaction by itself: its effects are committed without "
            "their offset. Leave COMMIT and ROLLBACK to the library; session.savepoint() undoes a part"
        )
    failure = session.failure or "a statement that was queued has not ended"
    raise HandlerFailed(
        f"{describe(envelope)}: the handler caught an error of the database, which spoils the transaction: "
        f"{failure}. Wrap the statement in session.savepoint()",
        index,
        fault,
    ) from session.failure
