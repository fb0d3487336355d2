"""Arrow batches as the envelopes that handlers get."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import starmap
from uuid import UUID

import pyarrow as pa

from journal import EventEnvelope

__all__ = ["envelopes"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def envelopes(batch: pa.RecordBatch) -> Iterator[EventEnvelope]:
    """
    The events of a batch.

    Args:
        batch: All columns of :data:`spark_projections.reading.SCHEMA`, in its order.
    """
    columns = [column.to_pylist() for column in batch.columns]
    # As numbers: making datetimes from Arrow's own is several times slower.
    columns[2] = [
        _EPOCH + timedelta(microseconds=time) for time in batch.column(2).cast(pa.int64()).to_pylist()
    ]
    columns[4] = [UUID(text) for text in columns[4]]
    return starmap(EventEnvelope, zip(*columns, strict=True))
