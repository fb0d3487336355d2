"""A log as processes read it that have connections of their own: in batches, in the order of its sources or in none."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from uuid import UUID

import pyarrow as pa

from journal import (
    CLOCK_MARGIN,
    JOURNAL,
    EntityTypes,
    EventEnvelope,
    InvalidPayload,
    InvalidValue,
    Log,
    Origin,
    Queries,
    Unreadable,
)
from journal.database import (
    NO_FUNCTION_OF_OTHERS,
    OF_A_FOREIGN_JOURNAL,
    SyncConnection,
    connect_sync,
    fetch_on_sync,
)
from spark_projections.reading.batches import (
    COLUMNS,
    SCHEMA,
    Reading,
    Relations,
    read_batches,
    select_batches,
    statement,
)
from spark_projections.reading.envelopes import envelopes
from spark_projections.reading.literals import literal
from spark_projections.reading.splits import slice_counts

UNREADABLE = "unreadable"
"""The column that says why a payload or metadata could not be decoded."""
_DECODED_BY = ("serializer_id", "manifest", "metadata_serializer_id", "metadata_manifest")
"""What a decoder gets besides the columns of an event."""
_PACKED = ("payload", "metadata")
_FIELDS = {name: f"{name}_json" if name in _PACKED else name for name in COLUMNS}
"""By column, the field of an envelope."""


@dataclass(frozen=True, slots=True)
class ReadLog:
    """
    How to reach a log, and what it is asked.

    Picklable by cloudpickle, where what its decoder was made of is.

    Args:
        dsn: The database; not shown. None: each process asks its environment.
        variable: The environment variable that has it there.
        queries: What it is asked, where it is not a journal of this library.
        by_number: Whether it is ordered by numbers; see :attr:`journal.Log.is_by_number`.
        margin: How long before what is in flight everything is settled.
    """

    dsn: str | None = field(default=None, repr=False)
    variable: str | None = None
    queries: Queries | None = field(default=None, repr=False)
    by_number: bool = False
    margin: timedelta = CLOCK_MARGIN

    @classmethod
    def of(cls, log: Log) -> ReadLog:
        """What other processes need to read a log."""
        if log.has_tokens:
            return cls(log.database.dsn)
        margin = getattr(log.bound, "settles_after", CLOCK_MARGIN)
        return cls(log.database.dsn, None, log.queries, log.is_by_number, margin)

    def address(self) -> str:
        """
        The DSN to use in this process.

        Raises:
            InvalidValue: Neither the log nor the environment of this process has one.
        """
        if dsn := self.dsn or os.environ.get(self.variable or ""):
            return dsn
        option = ", or the option dsn" if self.queries is None else ""
        raise InvalidValue(
            f"no DSN: set {self.variable} in the environment of the driver and of the executors{option}"
        )

    @property
    def asked(self) -> Queries:
        """What it is asked."""
        return self.queries or JOURNAL

    @property
    def has_gaps(self) -> bool:
        """Whether events between others may have been deleted: what another system keeps is its own business."""
        return self.queries is not None

    @property
    def relations(self) -> Relations | None:
        """What stands after FROM, where it is not a journal of this library."""
        if self.queries is None:
            return None
        sources = None if self.queries.stores_slices else self.queries.sources
        return Relations(self.queries.relation, sources, self.by_number)

    @contextmanager
    def connected(self) -> Iterator[SyncConnection]:
        """A connection in autocommit mode, on which a few rows are looked up."""
        with connect_sync(self.address()) as connection:
            connection.autocommit = True
            if self.queries is not None:
                for name, value in OF_A_FOREIGN_JOURNAL.items():
                    connection.execute("SELECT pg_catalog.set_config(%s, %s, FALSE)", (name, value))
            yield connection

    def counts(self, entity_types: EntityTypes) -> dict[int, int]:
        """Events per slice that has any, about."""
        if self.queries is None:
            return slice_counts(self.address(), entity_types)
        with connect_sync(self.address()) as connection:
            connection.execute(NO_FUNCTION_OF_OTHERS.encode())
            connection.execute("SET LOCAL statement_timeout = 0")
            rows = fetch_on_sync(connection, self.queries.counts, [entity_types.sql])
        return {number: events for number, events, _ in rows}

    def pages(self, reading: Reading, size: int) -> Generator[list[EventEnvelope], None, None]:
        """
        All of a reading, up to so many events at a time, as of one moment.

        Raises:
            DatabaseError: The database refused, or cannot be reached.
        """
        stored = read_batches(self.address(), reading) if self.queries is None else self._stored(reading)
        with closing(stored) as batches:  # type: ignore[type-var]  # a generator
            for batch in batches:
                for start in range(0, batch.num_rows, size):
                    yield self._events(batch.slice(start, size))

    def batches(self, reading: Reading, *, permissive: bool = False) -> Iterator[pa.RecordBatch]:
        """
        All of a reading as Arrow batches, typed as in :data:`SCHEMA`.

        Args:
            reading: The events, and which columns.
            permissive: Have one more column, :data:`UNREADABLE`, which says why a payload cannot be decoded.

        Raises:
            InvalidPayload: One cannot be decoded, and it is not permissive.
            DatabaseError: The database refused, or cannot be reached.
        """
        if self.queries is None:
            for batch in read_batches(self.address(), reading):
                nothing = pa.nulls(batch.num_rows, pa.string())
                yield batch.append_column(UNREADABLE, nothing) if permissive else batch
            return
        with closing(self._stored(reading)) as batches:  # type: ignore[type-var]  # a generator
            for batch in batches:
                yield _decoded(self._events(batch), reading.columns, permissive=permissive)

    def _stored(self, reading: Reading) -> Iterator[pa.RecordBatch]:
        """All columns, as they are stored; of what is packed, that which is wanted."""
        left_out = [name for name in _PACKED if name not in reading.columns]
        columns = [f"NULL::text AS {name}" if name in left_out else f"e.{name}" for name in COLUMNS]
        columns[COLUMNS.index("event_id")] = "e.event_id::text AS event_id"
        sql = statement(reading, self.relations, [*columns, *(f"e.{name}" for name in _DECODED_BY)])
        first = None if reading.snapshot is None else f"SET TRANSACTION SNAPSHOT {literal(reading.snapshot)}"
        return select_batches(self.address(), sql, first, reading.batch_bytes, foreign=True)

    def _events(self, batch: pa.RecordBatch) -> list[EventEnvelope]:
        if self.queries is None:
            return list(envelopes(batch))
        return list(self.queries.decode(_rows(batch), Origin.QUERY))


def _rows(batch: pa.RecordBatch) -> Sequence[Mapping[str, object]]:
    """As a session would have them, but for the ids, which are read as text."""
    rows: list[dict[str, object]] = batch.rename_columns([*COLUMNS, *_DECODED_BY]).to_pylist()
    for row in rows:
        if row["event_id"] is not None:
            row["event_id"] = UUID(str(row["event_id"]))
    return rows


def _decoded(events: Sequence[EventEnvelope], columns: Sequence[str], *, permissive: bool) -> pa.RecordBatch:
    """Columns of events; what cannot be decoded is NULL, and says why, or an error."""
    packed = [_FIELDS[name] for name in columns if name in _PACKED]
    wrong = [next(filter(_is_unreadable, map(partial(getattr, e), packed)), None) for e in events]
    if not permissive and (first := next(filter(None, wrong), None)) is not None:
        raise InvalidPayload(first)
    made = {name: [_value(e, name) for e in events] for name in columns}
    arrays = [pa.array(made[name], SCHEMA.field(name).type) for name in columns]
    if permissive:
        arrays.append(pa.array(wrong, pa.string()))
    return pa.RecordBatch.from_arrays(arrays, names=[*columns, UNREADABLE][: len(arrays)])


def _is_unreadable(value: object) -> bool:
    return isinstance(value, Unreadable)


def _value(event: EventEnvelope, column: str) -> object:
    value = getattr(event, _FIELDS[column])
    if column == "event_id":
        return str(value)
    return None if _is_unreadable(value) else value
