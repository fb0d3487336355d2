"""
Projections that are handled in the transaction that appends.

An event is handled once, by its append or by a worker, whichever is allowed to: the offset of its source says so. While
the append has not committed, nobody else sees the event; and unless all events of the source before it are handled,
it is left to a worker. So whoever appends without handling inline loses nothing, and neither does a change of mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

import offsets
from journal import (
    AppendedEvents,
    DatabaseError,
    Event,
    EventEnvelope,
    MissingPrivilege,
    Session,
    UnknownEventType,
    append,
    append_sync,
    decode,
    event_row,
    slice_of,
)
from journal.database import (
    Fault,
    at_once,
    driver_of,
    driver_of_sync,
    quote,
    session_on,
    spoil,
    sqlstate_of,
)
from projections.defining import Batch, ExactlyOnce, Kind, Projection, Table, projection_of
from projections.errors import HandlerFailed, InvalidHandler, describe, text_of
from projections.running.blame import blame, comes_from_outside
from projections.running.given_events import write_given
from projections.running.read_model_writer import ReadModelWriter
from projections.running.table_writer import TableWriter

# A table's name may mean another one where the caller has other schemas: by its search_path, or as another role.
_BEGIN = """
SELECT
    projection, source_id,
    pg_catalog.concat_ws(' ', pg_catalog.current_database(), pg_catalog.current_schemas(false)::text) AS place
FROM projections._begin_inline_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
_DEADLOCK = "40P01"
_ATTEMPTS = 5
"""To handle events by statements, which lock rows in any order: a savepoint gives the locks of a failed one back."""
_PAUSE = 0.02
_NOT_OF_THE_HANDLER = {Fault.BATCH, Fault.DATABASE}
_PLACES = 1_000
"""The number of places, such as schemas of tenants, whose tables are remembered."""
_LACKED = """
SELECT current_user::text AS role, pg_catalog.string_agg(p.privilege, ', ' ORDER BY p.ordinal) AS lacked
FROM pg_catalog.unnest('{SELECT,INSERT,UPDATE}'::text[]) WITH ORDINALITY AS p (privilege, ordinal)
WHERE NOT pg_catalog.has_any_column_privilege(pg_catalog.to_regclass($1), p.privilege)
"""
_SET_WISE = {Kind.TABLE, Kind.STATEMENT}
"""Kinds that need no asynchronous connection, and lock rows in one order."""
_KINDS = {*_SET_WISE, Kind.EVENT}


class _Writers(NamedTuple):
    """What knows the tables of a place."""

    tables: TableWriter
    read_models: ReadModelWriter


class Inline:
    """
    Appends events, and has projections handle them in the same transaction.

    It does so for projections whose mode is ``inline`` (``projections mode NAME inline``), and leaves the others to
    their workers. Workers of an inline projection run on: they handle what others append, what is imported, and the
    events of a source that is not handled up to where the append begins.

    Args:
        definitions: Classes of table handlers, of read models in SQL, or of handlers of single events; the last need
            an asynchronous connection.

    Raises:
        InvalidHandler: One handles lists of events, has reactions, ``start`` or ``stop``, or is handled at least once;
            or two have the same name.
    """

    def __init__(self, *definitions: Any) -> None:
        # In one order for all that append: rows are locked in it.
        self._projections = sorted(map(projection_of, definitions), key=lambda projection: projection.name)
        for projection in self._projections:
            _refuse(projection)
        for one, other in pairwise(self._projections):
            if one.name == other.name:
                raise InvalidHandler(
                    f"projection {one.name!r} is given twice: it would handle each event twice"
                )
        self._writers: dict[str, _Writers] = {}

    async def set_mode(self, session: Session, mode: Literal["inline", "live"]) -> None:
        """
        Make the projections inline or live, while they run: nothing is lost, and nothing is handled twice.

        It waits for transactions that are just handling events inline.

        Args:
            session: A session on the database, in a transaction or not.
            mode: ``inline`` to have what is appended handled here; ``live`` to leave all to workers.

        Raises:
            NotFound: No worker has run one of them on this database yet.
            DatabaseError: To be inline, the role of the session may not write one of these tables; the message has
                the GRANT. Call it as the role that appends.
            TableError: To be inline, it lacks a table, or one does not fit: each append would fail. Of table handlers,
                those are checked that the projection names (``tables=``).
        """
        for projection in self._projections:  # all are known, or none is changed
            await offsets.statuses(session, [projection.name])
            if mode == "inline":
                await _check_tables(session, projection)
        for projection in self._projections:
            await offsets.set_mode(session, projection.name, mode)

    async def append(
        self,
        connection: Any,
        events: Sequence[Event],
        *,
        expected_seq_nr: int | Mapping[str, int] | None = None,
    ) -> AppendedEvents:
        """
        Append events, and handle them.

        Args:
            connection: As for :func:`projections.append`; a transaction must be open on it.
            events: As for :func:`projections.append`.
            expected_seq_nr: As for :func:`projections.append`.

        Raises:
            ProjectionFailed: A handler raised, or its rows cannot be written; the transaction can only be rolled back.
            DatabaseError: No transaction is open, or the database refused. Of a deadlock, a serialization failure or a
                time limit (SQLSTATE 40P01, 40001, 55P03, 57014): roll back, and run the transaction again.
            DatabaseUnavailable: The connection was lost; nothing is committed.
            ProjectionsError: As :func:`projections.append`.
        """
        driver = await driver_of(connection)
        appended = await append(driver, events, expected_seq_nr=expected_seq_nr)
        await self._handle(driver, events, appended)
        return appended

    def append_sync(
        self,
        connection: Any,
        events: Sequence[Event],
        *,
        expected_seq_nr: int | Mapping[str, int] | None = None,
    ) -> AppendedEvents:
        """
        Append on a synchronous connection, and handle the events.

        Args:
            connection: As for :func:`projections.append_sync`; a transaction must be open on it.
            events: As for :func:`projections.append`.
            expected_seq_nr: As for :func:`projections.append`.

        Raises:
            InvalidHandler: Handlers of a projection are asynchronous.
            ProjectionFailed: A handler raised, or its rows cannot be written; the transaction can only be rolled back.
            ProjectionsError: Otherwise as for :meth:`append`.
        """
        for projection in self._projections:
            if projection.kind not in _SET_WISE:
                raise InvalidHandler(
                    f"the handlers of projection {projection.name!r} are asynchronous: append on an asynchronous "
                    "connection, or write table handlers"
                )
        driver = driver_of_sync(connection)
        appended = append_sync(driver, events, expected_seq_nr=expected_seq_nr)
        at_once(self._handle(driver, events, appended))
        return appended

    async def _handle(self, driver: Any, events: Sequence[Event], appended: AppendedEvents) -> None:
        envelopes = list(_envelopes(events, appended))
        if not envelopes or not self._projections:
            return
        async with session_on(driver) as session:
            try:
                ready, writers = await self._begin(session, envelopes)
                for projection in self._projections:
                    if taken := [e for e in envelopes if (projection.name, e.source_id) in ready]:
                        await self._handle_with(session, writers, projection, taken)
            except BaseException:  # the offsets are stored already
                await spoil(session)
                raise

    async def _begin(
        self, session: Session, envelopes: Sequence[EventEnvelope]
    ) -> tuple[set[tuple[str, str]], _Writers]:
        """The projections and sources whose events this transaction is to handle, and what knows the tables there."""
        sources: dict[str, list[EventEnvelope]] = {}
        for envelope in envelopes:
            sources.setdefault(envelope.source_id, []).append(envelope)
        columns = zip(*(_begun(of_source) for of_source in sources.values()), strict=True)
        projections = [(p.name, p.version, p.entity_types.literal) for p in self._projections]
        rows = await session.fetch(_BEGIN, *map(list, zip(*projections, strict=True)), *map(list, columns))
        place = rows[0]["place"] if rows else ""
        if len(self._writers) >= _PLACES:
            self._writers.clear()
        writers = self._writers.setdefault(place, _Writers(TableWriter(), ReadModelWriter()))
        return {(row["projection"], row["source_id"]) for row in rows}, writers

    @staticmethod
    async def _handle_with(
        session: Session, writers: _Writers, projection: Projection, envelopes: Sequence[EventEnvelope]
    ) -> None:
        if projection.kind in _SET_WISE:
            return await _handle(session, writers, projection, envelopes)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async with session.savepoint():
                    return await _handle(session, writers, projection, envelopes)
            except Exception as error:
                if sqlstate_of(error) != _DEADLOCK or attempt == _ATTEMPTS:
                    raise
            await asyncio.sleep(attempt * _PAUSE)  # or it has the row again before who waits for it
        return None


async def _handle(
    session: Session, writers: _Writers, projection: Projection, envelopes: Sequence[EventEnvelope]
) -> None:
    target, batch, at = projection.make(), Batch(), envelopes[0]
    try:
        if projection.kind is Kind.STATEMENT:
            return await write_given(session, writers.read_models, projection, envelopes)
        for at in envelopes:
            if (found := _find(projection, at)) is None:
                continue
            event, call = decode(found[0], at), getattr(target, found[1])
            if projection.kind is Kind.TABLE:
                batch.collect(at.source_id, call(event, at))
                continue
            await call(session, event, at)
            await session.flush()  # an error of what it has queued names it
            _check_unspoiled(session)
        await writers.tables.write(session, batch)
    except BaseException as error:
        if comes_from_outside(error) or (await blame(session, error)) in _NOT_OF_THE_HANDLER:
            raise
        where = f"inline, projection {projection.name!r}, {describe(at)}"
        raise HandlerFailed(f"{where}: {text_of(error)}") from error


async def _check_tables(session: Session, projection: Projection) -> None:
    tables = [one.table for one in projection.read_models]
    if projection.kind is Kind.TABLE:
        tables += [table for table in projection.tables or () if isinstance(table, Table)]
    for table in tables:
        await _check_rights(session, projection, quote(*table.qualified_name))
    await ReadModelWriter().plans(session, projection, creates=False)
    if projection.kind is Kind.TABLE:
        await TableWriter().prepare(session, *tables)


async def _check_rights(session: Session, projection: Projection, table: str) -> None:
    row = await session.fetchrow(_LACKED, table)
    if row is not None and row["lacked"]:
        raise MissingPrivilege(
            f"projection {projection.name!r} cannot be inline for role {row['role']!r}, whose appends would fail: "
            f"GRANT {row['lacked']} ON {table} TO {quote(row['role'])}",
            sqlstate="42501",
        )


def _find(projection: Projection, envelope: EventEnvelope) -> tuple[type[BaseModel], str] | None:
    found = projection.handlers.get(envelope.event_type)
    if found is None and not projection.passes_over(envelope.event_type):
        raise UnknownEventType(f"no handler of projection {projection.name!r} takes it")
    return found


def _check_unspoiled(session: Session) -> None:
    """A handler that catches an error of the database spoils the transaction; not all drivers say so at its commit."""
    failure = getattr(session, "failure", None)
    if failure is not None or getattr(session, "queue_failed", False):
        reason = failure or "a statement that was queued has not ended"
        raise DatabaseError(
            f"the handler caught an error of the database, which spoils the transaction: {reason}. Wrap the statement "
            "in session.savepoint()"
        ) from failure


def _refuse(projection: Projection) -> None:
    """Refuse what only workers can do."""
    reasons = {
        "handlers of lists of events wait for more of them": projection.kind not in _KINDS,
        "it is handled at least once": not isinstance(projection.delivery, ExactlyOnce),
        "reactions run in workers": bool(projection.reactions),
        "start() and stop() are called around the work of a worker": any(
            hasattr(projection.make, hook) for hook in ("start", "stop")
        ),
    }
    for reason, applies in reasons.items():
        if applies:
            raise InvalidHandler(f"projection {projection.name!r} cannot be inline: {reason}")


def _envelopes(events: Sequence[Event], appended: AppendedEvents) -> Iterator[EventEnvelope]:
    """What a reader would get of the events that are new."""
    for event, stored, is_new in zip(events, appended, appended.are_new, strict=True):
        if is_new:
            source_id, entity_type, event_type, payload, version, metadata, *_ = event_row(event)
            yield EventEnvelope(
                source_id, stored.seq_nr, stored.db_timestamp, slice_of(source_id), stored.event_id, entity_type,
                event_type, version, payload, metadata, list(event.tags) or None,
            )  # fmt: skip


def _begun(of_source: Sequence[EventEnvelope]) -> tuple[Any, ...]:
    first, last = of_source[0], of_source[-1]
    return (
        first.source_id,
        first.entity_type,
        first.seq_nr,
        last.seq_nr,
        first.db_timestamp,
        last.db_timestamp,
    )
