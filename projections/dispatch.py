"""Calling the handlers of a projection for a batch of events, and seeing what they should not do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel

from journal import DatabaseError, DatabaseUnavailable, EventEnvelope, InvalidPayload, OwnedSession, UnknownEventType, decode
from offsets import TransactionEnded
from projections.errors import HandlerFailed, describe
from projections.handlers import ExactlyOnce, Kind, Projection
from projections.loop_monitor import LoopMonitor
from projections.table_writer import TableWriter
from projections.tables import Batch

_Handler = tuple[type[BaseModel], Callable[..., Any]]


class Dispatcher:
    """
    Calls the handlers of one range's object.

    Args:
        projection: What to run.
        target: The object whose methods are called.
        tables: Writes what table handlers return; shared by all ranges of a process.
        monitor: Is told what is being handled.
    """

    def __init__(self, projection: Projection, target: object, tables: TableWriter, monitor: LoopMonitor) -> None:
        self._projection = projection
        self._handlers: dict[str, _Handler] = {
            event_type: (model, getattr(target, method)) for event_type, (model, method) in projection.handlers.items()
        }
        self._tables = tables
        self._monitor = monitor
        self._in_transaction = isinstance(projection.delivery, ExactlyOnce)
        self._handle = {Kind.EVENT: self._each, Kind.GROUP: self._group, Kind.TABLE: self._table}[projection.kind]

    async def handle(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        """
        Handle events in their order; exactly once, in the session's transaction.

        Raises:
            HandlerFailed: A handler raised, a payload does not fit, or the rows can not be written.
            TransactionEnded: A handler committed or rolled back by itself.
        """
        await self._handle(session, envelopes)

    def _find(self, envelope: EventEnvelope) -> _Handler | None:
        found = self._handlers.get(envelope.event_type)
        if found is None and self._projection.unhandled == "fail":
            known = ", ".join(sorted(self._handlers))
            raise UnknownEventType(f"no handler of projection {self._projection.name!r} takes it; handled are: {known}")
        return found

    async def call(self, session: OwnedSession, envelope: EventEnvelope) -> None:
        """Call the handler of one event."""
        if (found := self._find(envelope)) is None:
            return
        model, method = found
        event = decode(model, envelope)
        with self._monitor.handling(envelope):
            await method(session, event, envelope)

    async def _each(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        for index, envelope in enumerate(envelopes):
            try:
                await self.call(session, envelope)
            except Exception as error:
                raise _failed(error, envelope, index) from error
            if self._in_transaction:
                _check_transaction(session, envelope, index)

    async def _group(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        groups: dict[Callable[..., Any], list[tuple[BaseModel, EventEnvelope]]] = {}
        for index, envelope in enumerate(envelopes):
            try:
                if (found := self._find(envelope)) is not None:
                    groups.setdefault(found[1], []).append((decode(found[0], envelope), envelope))
            except (UnknownEventType, InvalidPayload) as error:
                raise _failed(error, envelope, index) from error
        for method, events in groups.items():
            try:
                with self._monitor.handling(events[0][1]):
                    await method(session, events)
            except DatabaseUnavailable:
                raise
            except Exception as error:
                where = f"a group of {len(events)} from {describe(events[0][1])}"
                raise HandlerFailed(f"{where}: {_reason(error)}") from error
            if self._in_transaction:
                _check_transaction(session, events[0][1], None)

    async def _table(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        batch, handlers, collect_all = Batch(), self._handlers, self._projection.unhandled == "fail"
        collect = batch.collect
        with self._monitor.handling(envelopes[0]):
            for index, envelope in enumerate(envelopes):
                found = handlers.get(envelope.event_type)
                if found is None and not collect_all:
                    continue
                try:
                    model, method = found or self._find(envelope)  # type: ignore[misc]
                    collect(envelope.source_id, method(decode(model, envelope), envelope))
                except Exception as error:
                    raise _failed(error, envelope, index) from error
        await self._tables.write(session, batch)


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, DatabaseError | InvalidPayload | UnknownEventType) else f"{type(error).__name__}: {error}"


def _failed(error: Exception, envelope: EventEnvelope, index: int) -> Exception:
    """What to raise for a handler's error: the event's failure, or an error that is not the event's."""
    if isinstance(error, DatabaseUnavailable | TransactionEnded):
        return error
    if isinstance(error, DatabaseError) and error.sqlstate in {"40001", "40P01"}:
        return error
    return HandlerFailed(f"{describe(envelope)}: {_reason(error)}", index)


def _check_transaction(session: OwnedSession, envelope: EventEnvelope, index: int | None) -> None:
    if not session.in_transaction:
        raise TransactionEnded(
            f"the handler of {describe(envelope)} ended the transaction by itself: its effects are committed without "
            "their offset. Leave COMMIT and ROLLBACK to the library; session.savepoint() undoes a part"
        )
    if session.failure is not None:
        raise HandlerFailed(
            f"{describe(envelope)}: the handler caught an error of the database, which spoils the transaction: "
            f"{session.failure}. Wrap the statement in session.savepoint()",
            index,
        ) from session.failure
