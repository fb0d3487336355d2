"""
History from files into the journal, by the import path and under its checks.

Rows are brought together by their sources and sorted; then chunks are imported, each a transaction. Imports follow
one another in a database, so a second task gains only what it does before its turn: reading, checking, staging.
Running the same files again skips what is stored and equal, and goes on.
"""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from journal import (
    NUMBER_OF_SLICES,
    ConnectionSettings,
    Database,
    EventIdConflict,
    InvalidEvent,
    import_events,
    slice_of,
)
from journal.database import connect
from spark_projections.backfill.formats import (
    BadRow,
    FilePart,
    HistoricRow,
    event_of,
    file_parts,
    read_rows,
)
from spark_projections.backfill.mapping import CHUNK, Mapped
from spark_projections.backfill.numbering import Numbering
from spark_projections.backfill.spill import spill_directory
from spark_projections.engine.parallel import PartFailed, parallelism, spark_failures, spread

if TYPE_CHECKING:
    from pyspark import SparkContext

_BYTES_PER_BUCKET = 32 << 20
_MOST_BUCKETS = 256
_SPILL_ROWS = 20_000
_IMPORTERS = 2
"""One imports while another prepares; more would wait."""


class Backfilled(NamedTuple):
    """What a backfill did, or with ``dry_run`` would do."""

    events: int
    skipped: int
    sources: int


def backfill(
    dsn: str,
    files: Sequence[Path],
    mapped: Mapped,
    *,
    spark: SparkContext | None = None,
    processes: int | None = None,
    chunk: int = CHUNK,
    dry_run: bool = False,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Backfilled:
    """
    Import the events of files; readers go back to them as they do for every import.

    Rows without a ``seq_nr`` are numbered by their times, after what the source has. A break leaves whole chunks;
    running it again goes on behind them.

    Args:
        dsn: The journal; the role needs projections_writer and TEMPORARY on the database.
        files: What to import, in any order.
        mapped: The columns and constants that make events of rows.
        spark: Where to run; by default in processes of this machine. Every executor must see the files.
        processes: The most of those at a time.
        chunk: Events of a transaction.
        dry_run: Check all rows, also against the journal, and import none.
        progress: Told how many rows are done, of how many.

    Raises:
        ValueError: ``chunk`` is below 1.
        BadRow: A file cannot be read, or lacks a column.
        PartFailed: A row is not an event, does not follow the one before it, or differs from what is stored; says
            which, and what to do.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, not {chunk}")
    parts = [part for path in files for part in file_parts(path, mapped)]
    size = sum(path.stat().st_size for path in files)
    buckets = max(1, min(_MOST_BUCKETS, size // _BYTES_PER_BUCKET + 1))
    if spark is not None:
        return _on_spark(spark, parts, mapped, buckets, partial(_import, dsn, mapped, chunk, dry_run))
    importing = partial(_import, dsn, mapped, chunk, dry_run)
    with spill_directory() as spill:
        spilling = partial(_spill, spill, mapped, buckets)
        total = sum(spread(spilling, parts, processes=processes))
        done = Backfilled(0, 0, 0)
        count = min(_IMPORTERS, processes or parallelism(None))
        loading = partial(_import_bucket, spill, importing)
        for result in spread(loading, range(buckets), processes=count):
            done = _sum((done, result))
            progress(done.events + done.skipped, total)
    return done


def _sum(results: Iterable[Backfilled]) -> Backfilled:
    return Backfilled(*map(sum, zip(Backfilled(0, 0, 0), *results, strict=True)))


def _bucket(slice_number: int, buckets: int) -> int:
    return slice_number * buckets // NUMBER_OF_SLICES


def _on_spark(
    spark: SparkContext,
    parts: Sequence[FilePart],
    mapped: Mapped,
    buckets: int,
    importing: Callable[[Iterator[HistoricRow]], Backfilled],
) -> Backfilled:
    if not parts:
        return Backfilled(0, 0, 0)
    width = max(buckets, spark.defaultParallelism)
    with spark_failures():
        rows = spark.parallelize(parts, len(parts)).flatMap(partial(_keyed, mapped))
        ordered = rows.repartitionAndSortWithinPartitions(width, partial(_place, width))
        return _sum(ordered.mapPartitions(partial(_import_pairs, importing)).collect())


def _keyed(mapped: Mapped, part: FilePart) -> Iterator[tuple[tuple[Any, ...], HistoricRow]]:
    return ((row.key(), row) for row in read_rows(part, mapped))


def _place(buckets: int, key: tuple[Any, ...]) -> int:
    return _bucket(key[0], buckets)


def _import_pairs(
    importing: Callable[[Iterator[HistoricRow]], Backfilled], pairs: Iterator[tuple[Any, HistoricRow]]
) -> Iterator[Backfilled]:
    yield importing(row for _, row in pairs)


def _spill(directory: Path, mapped: Mapped, buckets: int, part: FilePart) -> int:
    """Sort the rows of a part into files by their slices; returns how many there are."""
    number = 0
    rows = read_rows(part, mapped)
    while page := list(islice(rows, _SPILL_ROWS)):
        found: dict[int, list[HistoricRow]] = {}
        for row in page:
            found.setdefault(_bucket(slice_of(row.source_id), buckets), []).append(row)
        for bucket, mine in found.items():
            # A file for each process, so that nobody writes into another's page.
            _append(directory / f"{bucket}-{os.getpid()}", mine)
        number += len(page)
    return number


def _append(path: Path, rows: list[HistoricRow]) -> None:
    try:
        with path.open("ab") as file:
            pickle.dump(rows, file, pickle.HIGHEST_PROTOCOL)
    except OSError as error:
        raise PartFailed(
            f"temporary files cannot be written to {path.parent}: {error.strerror}. Nothing was imported; let TMPDIR "
            "name a place that has room for the files' content"
        ) from error


def _import_bucket(
    directory: Path, importing: Callable[[Iterator[HistoricRow]], Backfilled], bucket: int
) -> Backfilled:
    rows: list[HistoricRow] = []
    for path in directory.glob(f"{bucket}-*"):
        with path.open("rb") as file:
            while file.peek(1):
                rows += pickle.load(file)  # noqa: S301 - written by this run, in a directory of its own
        path.unlink()
    rows.sort(key=HistoricRow.key)
    return importing(iter(rows))


def _import(
    dsn: str,
    mapped: Mapped,
    chunk: int,
    dry_run: bool,  # noqa: FBT001 - bound by a partial, which pickles
    rows: Iterator[HistoricRow],
) -> Backfilled:
    # In a thread of its own: the caller's may run an event loop, as a notebook's does.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(_load(dsn, mapped, chunk, rows, dry_run=dry_run))).result()


async def _load(
    dsn: str, mapped: Mapped, chunk: int, rows: Iterator[HistoricRow], *, dry_run: bool
) -> Backfilled:
    done = Backfilled(0, 0, 0)
    async with connect(dsn, ConnectionSettings(max_connections=1)) as database:
        place = Numbering(mapped.entity_type)
        while page := list(islice(rows, chunk)):
            await place.look(database, page)
            before = place.sources
            new = [row for row in page if place.is_new(row)]
            if not dry_run:
                await _import_page(database, mapped, place, new)
            done = _sum((done, Backfilled(len(new), len(page) - len(new), place.sources - before)))
    return done


async def _import_page(
    database: Database, mapped: Mapped, place: Numbering, rows: Sequence[HistoricRow]
) -> None:
    events = [
        event_of(row, mapped.entity_type, place.numbers[row.source_id, row.db_timestamp]) for row in rows
    ]
    try:
        await import_events(database, events, chunk=max(1, len(events)))
    except (InvalidEvent, EventIdConflict) as error:
        files = ", ".join(sorted({row.file for row in rows}))
        raise BadRow(f"{error} (in {files})") from error
