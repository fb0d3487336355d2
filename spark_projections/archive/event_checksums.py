"""The checksum of events that PostgreSQL and Python both compute."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa

_ABSENT = "\x1e"
_BETWEEN = "\x1f"


def content_sql(row: str = "e") -> str:
    """
    SQL for the checksum of the rows of ``projections.events`` in a query: a number that adds up over parts.

    Each row counts with 56 bits of the SHA-256 of its columns, text as it is stored, so the order of rows and the
    cut into files do not matter. It is the same number on every version of PostgreSQL, and in :func:`content_of`.
    """
    text = ", ".join(
        (
            f"{row}.source_id, {row}.seq_nr, (extract(epoch FROM {row}.db_timestamp) * 1000000)::bigint, {row}.slice",
            f"{row}.event_id, {row}.entity_type, {row}.event_type, {row}.version, {row}.payload::text",
            f"coalesce({row}.metadata::text, E'\\x1e'), coalesce(array_to_string({row}.tags, E'\\x1f'), E'\\x1e')",
        )
    )
    digest = f"sha256(convert_to(concat_ws(E'\\n', {text}), 'UTF8'))"
    return f"coalesce(sum(('x' || encode(substring({digest} FROM 1 FOR 7), 'hex'))::bit(56)::bigint), 0)"


def content_of(batch: pa.RecordBatch | pa.Table) -> int:
    """The checksum of :func:`content_sql` for rows with all columns in their order."""
    columns = [batch.column(name) for name in batch.schema.names]
    columns[2] = columns[2].cast(pa.int64())
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return sum(
        int.from_bytes(hashlib.sha256("\n".join(map(_text, row)).encode()).digest()[:7], "big")
        for row in rows
    )


def _text(value: Any) -> str:
    if value is None:
        return _ABSENT
    return _BETWEEN.join(value) if isinstance(value, list) else str(value)
