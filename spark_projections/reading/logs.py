"""A log as processes read it that have connections of their own: in batches, in the order of its sources or in none."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from uuid import UUID

import pyarrow as pa

from journal import EventEnvelope, Log, Origin, Queries
from spark_projections.reading.batches import (
    COLUMNS,
    Reading,
    Relations,
    read_batches,
    select_batches,
    statement,
)
from spark_projections.reading.envelopes import envelopes

_DECODED_BY = ("serializer_id", "manifest", "metadata_serializer_id", "metadata_manifest")
"""What a decoder gets besides the columns of an event."""


@dataclass(frozen=True, slots=True)
class ReadLog:
    """
    How to reach a log, and what it is asked.

    Picklable by cloudpickle, where what its decoder was made of is.

    Args:
        dsn: The database; not shown.
        queries: What it is asked, where it is not a journal of this library.
        by_number: Whether it is ordered by numbers; see :attr:`journal.Log.is_by_number`.
    """

    dsn: str = field(repr=False)
    queries: Queries | None = field(default=None, repr=False)
    by_number: bool = False

    @classmethod
    def of(cls, log: Log) -> ReadLog:
        """What other processes need to read a log."""
        return cls(log.database.dsn, None if log.has_tokens else log.queries, log.is_by_number)

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

    def pages(self, reading: Reading, size: int) -> Generator[list[EventEnvelope], None, None]:
        """
        All of a reading, up to so many events at a time, as of one moment.

        Raises:
            DatabaseError: The database refused, or cannot be reached.
        """
        with closing(self._batches(reading)) as batches:  # type: ignore[type-var]  # a generator
            for batch in batches:
                for start in range(0, batch.num_rows, size):
                    yield self._events(batch.slice(start, size))

    def _batches(self, reading: Reading) -> Iterator[pa.RecordBatch]:
        if self.queries is None:
            return read_batches(self.dsn, reading)
        sql = statement(reading, self.relations, [f"e.{name}" for name in _DECODED_BY])
        return select_batches(self.dsn, sql, (), reading.batch_bytes)

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
