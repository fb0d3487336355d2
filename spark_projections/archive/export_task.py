"""
One file of an archive: what a task of Spark or a process writes.

It has a name of its own for each attempt, so a task may be tried again, or run twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from journal import EntityTypes, SliceRange
from spark_projections.archive.event_checksums import content_of
from spark_projections.archive.files import (
    ArchivedFile,
    ArchiveError,
    Bounds,
    directory_of,
    open_file,
    sha256_of,
    to_footer,
)
from spark_projections.reading.batches import SCHEMA, Reading, read_batches

KEYS = ("source_id", "seq_nr")
"""What names an event."""

ATTEMPTS = "_attempts"
"""The directory in the archive where attempts lie until the export names them."""

V = TypeVar("V", bound=Any)
_ROW_GROUP = 32_768
_ROW_GROUP_BYTES = 32 << 20


class ArchivedPartition(NamedTuple):
    """A time partition of the journal."""

    name: str
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class Part:
    """
    What one task exports of a partition, a type and a day in UTC: picklable, and holds no DSN.

    ``rows`` is how many events that were when it was planned, ``import_id`` the last import then. Only events are
    written that the ``known`` files, of that time, have not.
    """

    partition: ArchivedPartition
    entity_type: str
    day: Bounds
    slices: SliceRange
    rows: int
    import_id: int
    known: tuple[str, ...] = ()

    @property
    def date(self) -> date:
        """The day, in UTC."""
        return self.day.from_timestamp.astimezone(UTC).date()


class WrittenPart(NamedTuple):
    """What a task has written, and under which name."""

    part: Part
    attempt: Path
    file: ArchivedFile | None
    """None when there was nothing to write."""


def export_part(dsn: str, directory: Path, part: Part) -> WrittenPart:
    """Write one file of an archive, under a name that no other attempt has; rows in (slice, source, number) order."""
    token = uuid4().hex
    attempt = directory / ATTEMPTS / f"{token}.parquet"
    batches = _sorted_batches(dsn, directory, part)
    return WrittenPart(
        part, attempt, write_file(attempt, batches, part.slices, lambda tally: _described(part, tally, token))
    )


def write_file(
    attempt: Path,
    batches: Iterable[pa.RecordBatch],
    slices: SliceRange,
    described: Callable[[Tally], ArchivedFile],
) -> ArchivedFile | None:
    """Write batches of all columns, in their order, as ``described``; None, and no file, when there are no rows."""
    try:
        attempt.parent.mkdir(parents=True, exist_ok=True)
        tally = Tally(slices)
        options = {"compression": "zstd", "write_page_checksum": True, "version": "2.6"}
        with attempt.open("wb") as file, pq.ParquetWriter(file, SCHEMA, **options) as writer:
            for batch in batches:
                tally.add(batch)
                writer.write_table(pa.Table.from_batches([batch]), row_group_size=_ROW_GROUP)
            found = described(tally) if tally.rows else None
            if found is not None:
                writer.add_key_value_metadata(to_footer(found))
            writer.close()
            file.flush()
            os.fsync(file.fileno())
        if found is None:
            attempt.unlink()
            return None
        return replace(found, bytes=attempt.stat().st_size, sha256=sha256_of(attempt))
    except OSError as error:
        attempt.unlink(missing_ok=True)
        raise ArchiveError(f"{attempt} cannot be written: {error.strerror or error}") from error


def _sorted_batches(dsn: str, directory: Path, part: Part) -> Iterator[pa.RecordBatch]:
    reading = Reading(
        EntityTypes((part.entity_type,)),
        part.slices,
        since=part.day.from_timestamp,
        until=part.day.last,
        order="source",
    )
    if part.slices.min_slice == part.slices.max_slice and not part.known:
        yield from read_batches(dsn, reading)
        return
    table = pa.Table.from_batches(read_batches(dsn, replace(reading, order="none")), SCHEMA)
    if part.known:
        table = _without(table, [directory / path for path in part.known])
    width = table.nbytes // max(1, table.num_rows) + 1
    rows = min(_ROW_GROUP, _ROW_GROUP_BYTES // width + 1)
    yield from sorted_batches(table, ("slice", "source_id", "seq_nr"), rows)


def _without(table: pa.Table, files: Sequence[Path]) -> pa.Table:
    """The events of a table that no file has, by source and number."""
    known = pa.concat_tables([keys_of(path) for path in files])
    # Acero joins no lists: the keys are joined, and say which rows to take.
    keys = table.select(KEYS).append_column("row", pa.array(range(table.num_rows), pa.int64()))
    new = keys.join(known, list(KEYS), join_type="left anti").column("row")
    return table.take(new.combine_chunks())


def keys_of(path: Path) -> pa.Table:
    """Source and number of the events of a file; ArchiveError: it cannot be read."""
    with open_file(path) as opened:
        try:
            return opened.read(list(KEYS)).select(list(KEYS))
        except (pa.ArrowException, OSError) as error:
            raise ArchiveError(f"{path} cannot be read, {error}: restore it from a backup") from error


def sorted_batches(table: pa.Table, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Sort an Arrow table in memory by these columns, texts by their bytes; a batch has a limited number of rows."""
    # Sorting puts the chunks of a column together, and a column of `string` holds 2 GiB at most.
    wide = [f.with_type(pa.large_string()) if f.type == pa.string() else f for f in table.schema]
    whole = table.cast(pa.schema(wide)).combine_chunks()
    order = pc.sort_indices(whole, [(name, "ascending") for name in columns])
    for start in range(0, len(order), rows):
        # Taken, not sliced: a slice still has all of the text behind it, which no `string` holds.
        page = whole.take(order.slice(start, rows)).cast(table.schema)
        yield from page.combine_chunks().to_batches()


class Tally:
    """What the manifest says of a file's rows, batch by batch."""

    def __init__(self, slices: SliceRange) -> None:
        self._low = slices.min_slice
        self.counts = [0] * (slices.max_slice - slices.min_slice + 1)
        self.rows = self.content = 0
        self.numbers: list[int] = []
        self.times: list[datetime] = []
        self.first: tuple[str, int, datetime] | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of one more batch."""
        if not batch.num_rows:
            return
        if self.first is None:
            row = batch.slice(0, 1).to_pylist()[0]
            self.first = row["source_id"], row["seq_nr"], row["db_timestamp"]
        self.rows += batch.num_rows
        self.content += content_of(batch)
        for found in pc.value_counts(batch.column("slice")).to_pylist():
            self.counts[found["values"] - self._low] += found["counts"]
        self.numbers = _ends(batch.column("seq_nr"), self.numbers)
        self.times = _ends(batch.column("db_timestamp"), self.times)


def _ends(column: pa.Array, before: list[V]) -> list[V]:
    ends = pc.min_max(column).as_py()
    every = [*before, ends["min"], ends["max"]]
    return [min(every), max(every)]


def _described(part: Part, tally: Tally, token: str) -> ArchivedFile:
    assert tally.first is not None  # noqa: S101 - there are rows
    name = (
        f"part-{part.partition.bounds.from_timestamp.astimezone(UTC):%Y%m%dt%H%M%S}"
        f"-{part.slices.min_slice:04}-{part.slices.max_slice:04}-{token[:12]}.parquet"
    )
    return ArchivedFile(
        path=f"{directory_of(part.entity_type, part.date)}/{name}",
        partition=part.partition.name,
        bounds=part.partition.bounds,
        entity_type=part.entity_type,
        date=part.date,
        slices=part.slices,
        rows=tally.rows,
        min_seq_nr=tally.numbers[0],
        max_seq_nr=tally.numbers[1],
        min_timestamp=tally.times[0],
        max_timestamp=tally.times[1],
        slice_counts=tuple(tally.counts),
        first=tally.first[:2],
        first_at=tally.first[2],
        bytes=0,
        sha256="",
        content=tally.content,
        import_id=part.import_id,
    )
