"""
Archive and journal read as one: every event once, none missing.

Where both have a time, the archive is read: it can not be detached, or restored, while somebody reads, and spares
the database the work. Unless events of that time were imported since it was written: then the journal is read, and
the archive as well where the partition has left the journal, for what was imported since is not the same events.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from journal import ALL_SLICES, BEGINNING, SliceRange
from spark_projections.archive.export_task import sorted_batches
from spark_projections.archive.files import ArchivedFile, ArchiveError, Bounds, check_file, open_file
from spark_projections.archive.journal_queries import autocommit, newer_imports, stored
from spark_projections.archive.manifest import Manifest
from spark_projections.archive.planning import cut
from spark_projections.reading.batches import COLUMNS, SCHEMA, Reading, read_batches
from spark_projections.reading.splits import slice_counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ArchivedHistory", "plan_history", "read_archive", "read_history", "read_with_archive"]

BAND_ROWS = 250_000
"""Events that are sorted at a time: a range of slices, and at least one slice."""

_BATCH = 32_768
_SOURCE_ORDER = ("source_id", "seq_nr")
_BAND_BYTES = 256 << 20
_SAMPLES = 10
_PARQUET = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


@dataclass(frozen=True, slots=True)
class ArchivedHistory:
    """
    Where the events of a reading are.

    Args:
        files: Those of the archive that are to be read.
        journal: What is to be read from the journal: the same reading for the rest of the time.
    """

    files: tuple[ArchivedFile, ...]
    journal: tuple[Reading, ...]


def plan_history(dsn: str, directory: Path, reading: Reading) -> ArchivedHistory:
    """
    Decide what is read from where.

    Raises:
        ArchiveError: There is no manifest, or it can not be read.
        DatabaseError: The database refused, or can not be reached.
    """
    groups = _groups(Manifest.load(directory).files, reading)
    files: list[ArchivedFile] = []
    covered: list[Bounds] = []
    with autocommit(dsn) as connection:
        for bounds, group in sorted(groups.items()):
            if newer_imports(connection, group):
                # A partition may have grown after it had left: each file is in the journal or not, by itself.
                files += [each for each in group if not stored(connection, each)]
            else:
                covered.append(bounds)
                files += group
    return ArchivedHistory(tuple(files), tuple(_rest(reading, covered)))


def _groups(files: Iterable[ArchivedFile], reading: Reading) -> dict[Bounds, list[ArchivedFile]]:
    found: dict[Bounds, list[ArchivedFile]] = {}
    for each in files:
        if (
            each.entity_type == reading.entity_type
            and (reading.since is None or each.bounds.to_timestamp > reading.since)
            and (reading.until is None or each.bounds.from_timestamp <= reading.until)
        ):
            found.setdefault(each.bounds, []).append(each)
    return found


def _rest(reading: Reading, covered: Sequence[Bounds]) -> Iterator[Reading]:
    """The reading for the time that is not covered; the bounds come in order, and do not overlap."""
    start = reading.since
    for bounds in covered:
        if (start or BEGINNING) < bounds.from_timestamp:
            yield replace(reading, since=start, until=Bounds(BEGINNING, bounds.from_timestamp).last)
        start = bounds.to_timestamp
    if reading.until is None or start is None or start <= reading.until:
        yield replace(reading, since=start)


def read_archive(directory: Path, reading: Reading) -> Iterator[pa.RecordBatch]:
    """
    Read the archive alone: whatever of the reading it has.

    Args:
        directory: The archive.
        reading: What to read. ``order="source"`` gives each source's events together and in the order of their
            numbers, the sources of one range of slices after those of the range before it; ``after`` is not
            for archives.

    Yields:
        Batches with the asked columns, as :func:`spark_projections.reading.batches.read_batches` does.

    Raises:
        ArchiveError: A file is gone, or not what was written.
        ValueError: ``after`` was given.
    """
    files = [each for group in _groups(Manifest.load(directory).files, reading).values() for each in group]
    yield from _read(directory, ArchivedHistory(tuple(files), ()), reading, None)


def read_with_archive(
    dsn: str, directory: Path, reading: Reading, *, band_rows: int = BAND_ROWS
) -> Iterator[pa.RecordBatch]:
    """
    Read archive and journal as one; see :func:`read_archive` for the order.

    A source's archived events come before its present ones. Memory holds a band: the slices that have up to
    ``band_rows`` events together, or one slice.

    Raises:
        ArchiveError: A file is gone, or not what was written.
        DatabaseError: The database refused, or can not be reached.
        ValueError: ``after`` was given.
    """
    yield from _read(directory, plan_history(dsn, directory, reading), reading, dsn, band_rows)


def _read(
    directory: Path, history: ArchivedHistory, reading: Reading, dsn: str | None, band_rows: int = BAND_ROWS
) -> Iterator[pa.RecordBatch]:
    if reading.after is not None:
        raise ValueError("an archive is read slice by slice: it can not begin after a source")
    paths = [(each, str(check_file(directory, each))) for each in history.files]
    if reading.order == "none":
        yield from _archived(paths, reading)
        for part in history.journal:
            yield from read_batches(_known(dsn), part)
        return
    band_rows = min(band_rows, max(1, _BAND_BYTES // _width(paths)))
    for slices in _bands(history, reading, dsn, band_rows):
        band = replace(
            reading, slices=slices, columns=tuple(dict.fromkeys((*reading.columns, "source_id", "seq_nr")))
        )
        batches = list(_archived(paths, band))
        for part in history.journal:
            batches += read_batches(
                _known(dsn), replace(part, slices=slices, columns=band.columns, order="none")
            )
        table = pa.Table.from_batches(batches, _schema(band))
        for batch in sorted_batches(table, _SOURCE_ORDER, _BATCH):
            yield batch.select(list(reading.columns))


def _width(paths: Sequence[tuple[ArchivedFile, str]]) -> int:
    """Bytes of an event, unpacked, in the file of a few where they are largest; 1 where nothing tells."""
    widths = [1]
    for file, path in paths[:: len(paths) // _SAMPLES + 1]:
        with open_file(Path(path)) as opened:
            groups = (opened.metadata.row_group(n) for n in range(opened.num_row_groups))
            widths.append(sum(group.total_byte_size for group in groups) // file.rows)
    return max(widths)


def _known(dsn: str | None) -> str:
    assert dsn is not None  # noqa: S101 - without one there is nothing to read from the journal
    return dsn


def _schema(reading: Reading) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in reading.columns])


def _bands(history: ArchivedHistory, reading: Reading, dsn: str | None, rows: int) -> Iterator[SliceRange]:
    """Ranges that tile the reading's slices, each with up to so many events, as far as whole slices allow."""
    counts = {} if dsn is None else dict(slice_counts(dsn, reading.entity_type))
    for each in history.files:
        for index, count in enumerate(each.slice_counts, each.slices.min_slice):
            # The sources of the journal count what is archived as well; those of no journal count nothing.
            counts[index] = counts.get(index, 0) + (count if dsn is None else 0)
    low, high = reading.slices
    starts = [part.min_slice for part, _ in cut({n: c for n, c in counts.items() if low <= n <= high}, rows)]
    edges = [low, *starts[1:], high + 1]
    for start, end in pairwise(edges):
        yield SliceRange(start, end - 1)


def _archived(paths: Sequence[tuple[ArchivedFile, str]], reading: Reading) -> Iterator[pa.RecordBatch]:
    wanted = [path for file, path in paths if file.count(reading.slices)]
    if not wanted:
        return
    schema = _schema(reading)
    try:
        files = ds.dataset(wanted, schema=SCHEMA, format=_PARQUET)
        scan = files.scanner(
            columns=list(reading.columns),
            filter=_filter(reading),
            batch_size=_BATCH,
            batch_readahead=2,
            fragment_readahead=1,
        )
        for batch in scan.to_batches():
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    except (pa.ArrowException, OSError) as error:
        raise ArchiveError(
            f"the archive can not be read, {error}: `projections archive verify` says which file"
        ) from error


def _filter(reading: Reading) -> Any:
    slices = pc.field("slice")
    found = (slices >= reading.slices.min_slice) & (slices <= reading.slices.max_slice)
    if reading.since is not None:
        found &= pc.field("db_timestamp") >= _at(reading.since)
    if reading.until is not None:
        found &= pc.field("db_timestamp") <= _at(reading.until)
    first, last = reading.seq_nrs
    found &= (pc.field("seq_nr") >= first) & (pc.field("seq_nr") <= last)
    if reading.event_types:
        found &= pc.field("event_type").isin(list(reading.event_types))
    if reading.source_ids:
        found &= pc.field("source_id").isin(list(reading.source_ids))
    return found


def _at(time: datetime) -> pa.Scalar:
    return pa.scalar(time, SCHEMA.field("db_timestamp").type)


def read_history(
    spark: SparkSession,
    archive: str | Path,
    entity_type: str,
    *,
    dsn: str | None = None,
    slices: SliceRange = ALL_SLICES,
    since: datetime | None = None,
    until: datetime | None = None,
    event_types: Sequence[str] = (),
    source_ids: Sequence[str] = (),
    columns: Sequence[str] = COLUMNS,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """
    Archive and journal as one DataFrame; Spark reads the files, the data source ``journal`` reads the rest.

    Args:
        spark: Where to read.
        archive: The directory, which every executor must see.
        entity_type: Whose events.
        dsn: The journal, without a password; by default PROJECTIONS_DSN, here and on the executors.
        slices: Of which slices.
        since: Events of this time or later.
        until: Events of this time or earlier.
        event_types: Only of these types.
        source_ids: Only of these sources.
        columns: Which columns, in which order.
        options: More options of the data source, such as ``splits``.

    Raises:
        ArchiveError: There is no archive, or one of its files is gone.
        DatabaseError: The database refused, or can not be reached.
    """
    from spark_projections.source.source import register  # noqa: PLC0415 - imports pyspark

    register(spark)
    reading = Reading(
        entity_type,
        slices,
        since=since,
        until=until,
        event_types=tuple(event_types),
        source_ids=tuple(source_ids),
        columns=tuple(columns),
    )
    directory = Path(archive).absolute()
    history = plan_history(dsn or os.environ.get("PROJECTIONS_DSN", ""), directory, reading)
    more = {**({} if dsn is None else {"dsn": dsn}), **(options or {})}
    frames = [
        spark.read.format("journal").options(**_options(part), **more).load() for part in history.journal
    ]
    if paths := [str(check_file(directory, each)) for each in history.files if each.count(slices)]:
        frames.insert(0, spark.read.parquet(*paths).where(_where(reading)).select(*columns))
    result = frames[0]
    for frame in frames[1:]:
        result = result.unionByName(frame)
    return result


def _options(reading: Reading) -> dict[str, str]:
    given = {
        "entitytype": reading.entity_type,
        "slices": str(reading.slices),
        "columns": ",".join(reading.columns),
        "since": reading.since and reading.since.isoformat(),
        "until": reading.until and reading.until.isoformat(),
        "eventtypes": reading.event_types and json.dumps(reading.event_types),
        "sourceids": reading.source_ids and json.dumps(reading.source_ids),
    }
    return {name: value for name, value in given.items() if value}


def _where(reading: Reading) -> Any:
    from pyspark.sql import functions as f  # noqa: PLC0415 - only where Spark is

    found = f.col("slice").between(*reading.slices)
    if reading.since is not None:
        found &= f.col("db_timestamp") >= f.lit(reading.since)
    if reading.until is not None:
        found &= f.col("db_timestamp") <= f.lit(reading.until)
    if reading.event_types:
        found &= f.col("event_type").isin(*reading.event_types)
    if reading.source_ids:
        found &= f.col("source_id").isin(*reading.source_ids)
    return found
