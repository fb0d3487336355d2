"""
Archive and journal read as one: every event once, none missing.

Where both have a time, the archive is read: it cannot be detached, or restored, while somebody reads, and spares
the database the work. Unless events of that time were imported since it was written: then the journal is read, and
the archive as well where the partition has left the journal, for what was imported since is not the same events.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pydantic import BaseModel

from journal import ALL_SLICES, BEGINNING, LIBRARY_TYPES, EntityTypes, SliceRange
from spark_projections.archive.erasing import MESSAGE, NEEDED, Erased, erased_messages, without_payloads
from spark_projections.archive.export_task import sorted_batches
from spark_projections.archive.files import ArchivedFile, ArchiveError, Bounds, check_file, open_file
from spark_projections.archive.journal_queries import autocommit, newer_imports, stored, types_ever
from spark_projections.archive.manifest import Manifest
from spark_projections.archive.planning import cut
from spark_projections.reading.batches import ALL_SEQ_NRS, COLUMNS, SCHEMA, Reading, read_batches, schema_of
from spark_projections.reading.splits import slice_counts
from spark_projections.source.newest import NewestVersions
from spark_projections.source.options import options_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BAND_ROWS = 250_000
"""Events that are sorted at a time: a range of slices, and at least one slice."""

_BATCH = 32_768
_SOURCE_ORDER = ("source_id", "seq_nr")
_BAND_BYTES = 256 << 20
_SAMPLES = 10
_ERASED_ID, _OWNERS = "_erased_id", "_erased_owners"
_PARQUET = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


@dataclass(frozen=True, slots=True)
class ArchivedHistory:
    """Where the events of a reading are: in files of the archive, and in the journal for the rest of the time."""

    files: tuple[ArchivedFile, ...]
    journal: tuple[Reading, ...]
    erased: Erased
    """Messages whose payloads are not to be read, whatever the files have."""


def plan_history(dsn: str, directory: Path, reading: Reading) -> ArchivedHistory:
    """Decide what is read from where."""
    kept = Manifest.load(directory).files
    files: list[ArchivedFile] = []
    journal: list[Reading] = []
    with autocommit(dsn) as connection:
        names = reading.entity_type.names
        for name in (
            sorted({each.entity_type for each in kept}.union(types_ever(connection)))
            if names is None
            else names
        ):
            one = replace(reading, entity_type=EntityTypes((name,)))
            covered: list[Bounds] = []
            for bounds, group in sorted(_groups(kept, one).items()):
                if newer_imports(connection, group):
                    # A partition may have grown after it had left: each file is in the journal or not, by itself.
                    files += [each for each in group if not stored(connection, each)]
                else:
                    covered.append(bounds)
                    files += group
            journal += _rest(one, covered)
        reads = "payload" in reading.columns and any(each.entity_type == MESSAGE for each in files)
        erased = erased_messages(connection) if reads else {}
    return ArchivedHistory(tuple(files), tuple(journal), erased)


def _groups(files: Iterable[ArchivedFile], reading: Reading) -> dict[Bounds, list[ArchivedFile]]:
    found: dict[Bounds, list[ArchivedFile]] = {}
    for each in files:
        if (
            each.entity_type in reading.entity_type
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


def read_with_archive(
    dsn: str, directory: Path, reading: Reading, *, band_rows: int = BAND_ROWS
) -> Iterator[pa.RecordBatch]:
    """
    Read archive and journal as one.

    A source's archived events come before its present ones. Memory holds a band: the slices that have up to
    ``band_rows`` events together, or one slice.

    Args:
        dsn: The journal.
        directory: The archive.
        reading: What to read. ``order="source"`` gives each source's events together and in the order of their
            numbers, the sources of one range of slices after those of the range before it; ``after`` is not
            for archives.
        band_rows: See above.

    Yields:
        Batches with the asked columns, as :func:`spark_projections.reading.batches.read_batches` does.

    Raises:
        ArchiveError: A file is gone, or not what was written.
        DatabaseError: The database refused, or cannot be reached.
        ValueError: ``after`` was given.
    """
    if reading.after is not None:
        raise ValueError("an archive is read slice by slice: it cannot begin after a source")
    history = plan_history(dsn, directory, reading)
    paths = [(each, str(check_file(directory, each))) for each in history.files]
    if reading.order == "none":
        yield from _archived(paths, reading, history.erased)
        for part in history.journal:
            yield from read_batches(dsn, part)
        return
    columns = tuple(dict.fromkeys((*reading.columns, "source_id", "seq_nr")))
    for slices in _bands(dsn, reading, min(band_rows, max(1, _BAND_BYTES // _width(paths)))):
        band = replace(reading, slices=slices, columns=columns)
        batches = list(_archived(paths, band, history.erased))
        for part in history.journal:
            batches += read_batches(dsn, replace(part, slices=slices, columns=columns, order="none"))
        table = pa.Table.from_batches(batches, schema_of(columns))
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


def _bands(dsn: str, reading: Reading, rows: int) -> Iterator[SliceRange]:
    """Ranges that tile the reading's slices, each with up to a number of events, as far as whole slices allow."""
    # The sources of the journal count what is archived as well.
    counts = slice_counts(dsn, reading.entity_type)
    parts = cut({number: count for number, count in counts.items() if number in reading.slices}, rows)
    low, high = reading.slices
    edges = [low, *[part.min_slice for part, _ in parts][1:], high + 1]
    for start, end in pairwise(edges):
        yield SliceRange(start, end - 1)


def _archived(
    paths: Sequence[tuple[ArchivedFile, str]], reading: Reading, erased: Erased
) -> Iterator[pa.RecordBatch]:
    wanted = [path for file, path in paths if file.count(reading.slices)]
    if not wanted:
        return
    columns = tuple(dict.fromkeys((*reading.columns, *(NEEDED if erased else ()))))
    try:
        files = ds.dataset(wanted, schema=SCHEMA, format=_PARQUET)
        scan = files.scanner(
            columns=list(columns),
            filter=_wanted(reading, pc.field, _instant),
            batch_size=_BATCH,
            batch_readahead=2,
            fragment_readahead=1,
        )
        for batch in scan.to_batches():
            if batch.num_rows:
                found = pa.RecordBatch.from_arrays(batch.columns, schema=schema_of(columns))
                yield (without_payloads(found, erased)[0] if erased else found).select(list(reading.columns))
    except (pa.ArrowException, OSError) as error:
        raise ArchiveError(
            f"the archive cannot be read, {error}: `projections archive verify` says which file"
        ) from error


def _wanted(reading: Reading, column: Callable[[str], Any], instant: Callable[[datetime], Any]) -> Any:
    """The rows of a reading, as an expression of pyarrow or of Spark."""
    slices, times, numbers = column("slice"), column("db_timestamp"), column("seq_nr")
    found = (slices >= reading.slices.min_slice) & (slices <= reading.slices.max_slice)
    if reading.since is not None:
        found &= times >= instant(reading.since)
    if reading.until is not None:
        found &= times <= instant(reading.until)
    if reading.seq_nrs != ALL_SEQ_NRS:
        found &= (numbers >= reading.seq_nrs[0]) & (numbers <= reading.seq_nrs[1])
    if reading.event_types:
        found &= column("event_type").isin(list(reading.event_types))
    if reading.source_ids:
        found &= column("source_id").isin(list(reading.source_ids))
    return found


def _instant(time: datetime) -> pa.Scalar:
    return pa.scalar(time, SCHEMA.field("db_timestamp").type)


def read_history(
    spark: SparkSession,
    archive: str | Path,
    entity_type: str | Collection[str] | EntityTypes,
    *,
    dsn: str | None = None,
    slices: SliceRange = ALL_SLICES,
    since: datetime | None = None,
    until: datetime | None = None,
    event_types: Sequence[str] = (),
    source_ids: Sequence[str] = (),
    columns: Sequence[str] = COLUMNS,
    models: Iterable[type[BaseModel]] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """
    Archive and journal as one DataFrame; Spark reads the files, the data source ``journal`` reads the rest.

    Args:
        spark: The session whose executors read.
        archive: The directory, which every executor must see.
        entity_type: Whose events: one type, several, or ``ALL_TYPES``.
        dsn: The journal, without a password; by default PROJECTIONS_DSN, here and on the executors.
        slices: Events of sources in this range of slices.
        since: Events of this time or later.
        until: Events of this time or earlier.
        event_types: Events of these types; none for all.
        source_ids: Events of these sources; none for all.
        columns: The columns, in order: what is left out is not read.
        models: Payload models: events of older versions are converted to theirs. Default: those that the program
            declares. ``()``: payloads are as they are stored.
        options: More options of the data source, such as ``splits``.

    Raises:
        ProjectionsError: There is no archive, or one of its files is gone.
        DatabaseError: The database refused, or cannot be reached.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - only where Spark is

    from spark_projections.source.source import load_journal  # noqa: PLC0415 - imports pyspark

    reading = Reading(
        EntityTypes.of(entity_type),
        slices,
        since=since,
        until=until,
        event_types=tuple(event_types),
        source_ids=tuple(source_ids),
        columns=tuple(columns),
    )
    directory = Path(archive).absolute()
    history = plan_history(dsn or os.environ.get("PROJECTIONS_DSN", ""), directory, reading)
    newest = NewestVersions.of(models)
    more = options_of(dsn=dsn, models=newest) | dict(options or {})
    asked = "entity_type", "slices", "since", "until", "event_types", "source_ids", "columns"
    frames = [
        load_journal(spark, options_of(**{name: getattr(part, name) for name in asked}) | more)
        for part in history.journal
    ]
    files = [each for each in history.files if each.count(slices)]
    if not frames and not files:  # nothing to read; its columns are those of a file
        files = [*history.files]
    if paths := [str(check_file(directory, each)) for each in files]:
        rows = _wanted(reading, f.col, f.lit)
        frame = spark.read.parquet(*paths).where(rows)
        if history.erased:
            frame = _without_payloads(spark, frame, history.erased)
        frames.insert(0, _in_newest(frame, newest, columns).select(*columns))
    return reduce(lambda one, other: one.unionByName(other), frames)


def _in_newest(frame: DataFrame, newest: NewestVersions, columns: Sequence[str]) -> DataFrame:
    """The same rows; those of older versions apart, for only they cross over to Python."""
    if not newest.names or "payload" not in columns:
        return frame
    from pyspark.sql import functions as f  # noqa: PLC0415 - only where Spark is

    version = reduce(
        lambda found, one: found.when(f.col("event_type") == one[0], one[1]),
        zip(newest.names, newest.versions, strict=True),
        f.when(f.lit(False), 0),
    )
    is_older = f.coalesce(f.col("version") < version, f.lit(False))
    is_older &= ~f.col("entity_type").isin(*LIBRARY_TYPES)
    older = frame.where(is_older).withColumn("payload", f.udf(newest.upcast, useArrow=False)(*newest.UPCAST))
    return frame.where(~is_older).unionByName(older.withColumn("version", version))


def _without_payloads(spark: SparkSession, frame: DataFrame, erased: Erased) -> DataFrame:
    """
    A frame with null for the payloads of messages that were erased, as :func:`without_payloads` has it.

    By a join: a plan with each id in it could not be made for very many.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - only where Spark is

    rows = [(event_id, sorted(owners)) for event_id, owners in erased.items()]
    gone = spark.createDataFrame(rows, f"{_ERASED_ID} string, {_OWNERS} array<string>")
    tenant = f.get_json_object("metadata", "$.tenant")
    owners = f.col(_OWNERS)
    matches = tenant.isNotNull() & (f.array_contains(owners, tenant) | f.array_contains(owners, ""))
    payload = f.when(owners.isNotNull() & matches, f.lit("null")).otherwise(f.col("payload"))
    on = (f.col("event_id") == f.col(_ERASED_ID)) & (f.col("entity_type") == MESSAGE)
    return frame.join(f.broadcast(gone), on, "left").withColumn("payload", payload)
