"""
Closed time partitions of the journal as Parquet files.

Nothing leaves the journal here. A file gets its final name, and then its line in the manifest, from the one process
that leads the export; what tasks write before that has a name of its own for each attempt.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from journal import SliceRange
from journal.drivers.sync import SyncConnection
from spark_projections.archive.lookup import (
    archived_by_day,
    autocommit,
    content_by_day,
    newer_imports,
    stored,
    types_in,
)
from spark_projections.archive.manifest import (
    ArchivedFile,
    ArchiveError,
    Bounds,
    Manifest,
    locked,
    sync_directory,
)
from spark_projections.archive.part import ATTEMPTS, Part, Partition, Written, export_part
from spark_projections.archive.still_there import check_archived, check_exported
from spark_projections.engine.spread import parallelism, spread
from spark_projections.reading.horizon import MARGIN, Pause, look, still_open

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Exported", "cut", "export_archive", "wait_for_writers"]

ROWS_PER_FILE = 500_000
BYTES_PER_FILE = 256 << 20
"""A file with several slices is sorted in memory; one slice alone comes sorted from the database."""

_PAUSE = 0.1
"""Seconds between two looks at writers that are waited for."""

_NO_IMPORTS = 2**63 - 1
_WHO = """
SELECT CASE WHEN pid IS NULL THEN 'a prepared transaction' ELSE format('pid %s (%s)', pid, application_name) END
FROM projections.writers_in_flight_v1()
"""
_PARTITIONS = """
SELECT name, from_timestamp, to_timestamp FROM projections.partitions
WHERE table_name = 'events' AND to_timestamp IS NOT NULL AND from_timestamp IS NOT NULL ORDER BY from_timestamp
"""
_IMPORT_ID = "SELECT coalesce(max(import_id), 0) FROM projections.imports"
_COUNTS = """
SELECT e.slice, count(*) FROM projections.events AS e
WHERE e.entity_type = %s AND e.db_timestamp >= %s AND e.db_timestamp < %s GROUP BY e.slice
"""
_WIDTH = """
SELECT coalesce(avg(octet_length(e.payload::text) + coalesce(octet_length(e.metadata::text), 0)), 0)::bigint FROM (
    SELECT e.payload, e.metadata FROM projections.events AS e
    WHERE e.entity_type = %s AND e.db_timestamp >= %s AND e.db_timestamp < %s LIMIT 1000
) AS e
"""
_OTHER_COLUMNS = 200  # bytes of a row beside payload and metadata, roughly
# An unfinished rebuild folds and verifies from the first event on; swapped in, workers go on from its fence.
_BEHIND = """
SELECT p.name FROM projections.projections AS p
WHERE p.entity_type = ANY (%(types)s) AND (
    EXISTS (
        SELECT FROM projections.projection_ranges AS r
        WHERE r.projection_id = p.projection_id AND r.horizon < %(end)s
    )
    OR EXISTS (
        SELECT FROM projections.rebuilds AS b
        WHERE b.projection_id = p.projection_id AND b.state IN ('folding', 'verified')
    )
)
ORDER BY p.name
"""


@dataclass(frozen=True, slots=True)
class Exported:
    """
    What an export did.

    Args:
        partitions: Names of the partitions of which something was written, in the order of time.
        again: Those of them that were in the archive already, and have changed since by an import.
        unchanged: Names of those that were in the archive already.
        files: How many files were written.
        rows: How many events.
        detachable: Partitions of which every event is in the archive, and that no projection still has to read.
        behind: Partitions that are in the archive whole, by the projections that have not passed them yet, or that
            are being rebuilt.
    """

    partitions: tuple[str, ...]
    again: tuple[str, ...]
    unchanged: tuple[str, ...]
    files: int
    rows: int
    detachable: tuple[str, ...]
    behind: Mapping[str, tuple[str, ...]]


_Run = Callable[[Sequence[Part]], Iterator[Written]]


@dataclass(slots=True)
class _Plan:
    manifest: Manifest
    parts: dict[tuple[Partition, str], list[Part]] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)
    unchanged: set[str] = field(default_factory=set)

    @property
    def rows(self) -> int:
        return sum(part.rows for parts in self.parts.values() for part in parts)


def export_archive(
    dsn: str,
    directory: Path,
    *,
    entity_types: Sequence[str] = (),
    before: datetime | None = None,
    spark: SparkContext | None = None,
    processes: int | None = None,
    rows_per_file: int = ROWS_PER_FILE,
    say: Callable[[str], None] = lambda _: None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Exported:
    """
    Write the closed partitions that an archive does not hold yet, or no longer as they are.

    A partition is closed when its time is past and no append is in flight that could still write there. An export
    that broke goes on with the next one: the manifest grows by whole partitions.

    Args:
        dsn: The journal; the role needs projections_reader.
        directory: The archive, made when it is missing. With ``spark``, every executor must see it there.
        entity_types: Only these; by default all.
        before: Only partitions that end by this time.
        spark: Where to run; by default in processes of this machine.
        processes: At most so many of those.
        rows_per_file: Slices are put together into files of up to so many events.
        say: Told who is waited for, and what is exported again.
        progress: Told how many events are done, of how many.

    Raises:
        ArchiveError: Another export is at work, or a partition lacks events that its archive holds.
        NoHorizon: The database is a standby, and can not tell what is in flight.
        DatabaseError: The database refused, or can not be reached.
    """
    with locked(directory):
        shutil.rmtree(directory / ATTEMPTS, ignore_errors=True)
        manifest = Manifest.load_or_new(directory)
        _remove_unknown(directory, manifest)
        with autocommit(dsn) as connection:
            now = wait_for_writers(connection, say)
            closed = _closed(connection, now, before)
            plan = _plan(connection, manifest, closed, entity_types, rows_per_file)
            for name in sorted(plan.again):
                say(f"partition {name} has changed since it was exported (an import): it is exported again")
            with _written(directory):
                plan.manifest.save(directory)
                work = partial(export_part, dsn, directory)
                run = partial(spread, work, spark=spark, processes=processes)
                written = _write(connection, plan, directory, run, parallelism(spark), progress)
            return _outcome(connection, plan, closed, written)


@contextmanager
def _written(directory: Path) -> Iterator[None]:
    """Say what could not be written; the connection around it would blame the network."""
    try:
        yield
    except OSError as error:
        raise ArchiveError(f"{directory} can not be written: {error}") from error


def wait_for_writers(
    connection: SyncConnection, say: Callable[[str], None], pause: Pause = time.sleep
) -> datetime:
    """
    Wait for the appends in flight, however long: what begins later is stamped later, come a small step of the clock.

    Args:
        connection: In autocommit mode, on the primary.
        say: Told once who is waited for.
        pause: Waits so many seconds.

    Returns:
        The database's time when the wait began.

    Raises:
        NoHorizon: The database is a standby.
    """
    first = look(connection, _NO_IMPORTS)
    waiting = first.holders
    if waiting:
        who = ", ".join(name for (name,) in connection.execute(_WHO).fetchall())
        say(f"waiting for transactions that have appended and are open: {who or 'about to end'}")
    while waiting:
        pause(_PAUSE)
        waiting = still_open(waiting, look(connection, _NO_IMPORTS).holders)
    return first.at


def _closed(connection: SyncConnection, now: datetime, before: datetime | None) -> list[Partition]:
    end = now - MARGIN if before is None else min(before, now - MARGIN)
    found = [Partition(name, Bounds(low, high)) for name, low, high in connection.execute(_PARTITIONS)]
    return [partition for partition in found if partition.bounds.to_timestamp <= end]


def _plan(
    connection: SyncConnection,
    manifest: Manifest,
    closed: Sequence[Partition],
    entity_types: Sequence[str],
    rows_per_file: int,
) -> _Plan:
    # Before anything is read: what is imported from here on has a higher number.
    import_id = int(connection.execute(_IMPORT_ID).fetchall()[0][0])
    plan = _Plan(manifest)
    for partition in closed:
        for entity_type in types_in(connection, partition.bounds):
            if entity_types and entity_type not in entity_types:
                continue
            files = manifest.of(partition.bounds, entity_type)
            check_archived(connection, partition, files)
            if files and not _changed(connection, partition, files):
                plan.unchanged.add(partition.name)
                looked_at = [replace(each, import_id=import_id) for each in files]
                plan.manifest = plan.manifest.replaced(partition.bounds, entity_type, looked_at)
                continue
            if files:
                plan.again.add(partition.name)
            else:
                _check_free(manifest, partition, entity_type)
            parts = list(_parts(connection, partition, entity_type, import_id, rows_per_file))
            plan.parts[partition, entity_type] = parts
    return plan


def _changed(connection: SyncConnection, partition: Partition, files: Sequence[ArchivedFile]) -> bool:
    if not newer_imports(connection, files):
        return False
    if not all(stored(connection, each) for each in files):
        raise ArchiveError(
            f"partition {partition.name} is another one than the archive's of the same time, {partition.bounds}: it "
            f"lacks events of type {files[0].entity_type!r} that the archive holds. "
            "Export it to another directory, with --before where needed"
        )
    return content_by_day(connection, files[0].entity_type, files[0].bounds) != archived_by_day(files)


def _check_free(manifest: Manifest, partition: Partition, entity_type: str) -> None:
    for each in manifest.files:
        if each.entity_type == entity_type and each.bounds.overlaps(partition.bounds):
            raise ArchiveError(
                f"partition {partition.name}, {partition.bounds}, overlaps {each.partition}, {each.bounds}, "
                "which is in the archive: export to another directory"
            )


def _parts(
    connection: SyncConnection, partition: Partition, entity_type: str, import_id: int, rows_per_file: int
) -> Iterator[Part]:
    span = partition.bounds.from_timestamp, partition.bounds.to_timestamp
    width = connection.execute(_WIDTH, (entity_type, *span)).fetchall()[0][0] + _OTHER_COLUMNS
    limit = min(rows_per_file, max(1, BYTES_PER_FILE // width))
    for day in partition.bounds.days():
        found = connection.execute(_COUNTS, (entity_type, day.from_timestamp, day.to_timestamp))
        counts: dict[int, int] = dict(found.fetchall())
        for slices, rows in cut(counts, limit):
            yield Part(partition, entity_type, day, slices, rows, import_id)


def cut(counts: Mapping[int, int], limit: int) -> Iterator[tuple[SliceRange, int]]:
    """Ranges that hold up to ``limit`` events together, or one slice with more; and how many they hold."""
    taken: list[int] = []
    rows = 0
    for number in sorted(counts):
        if taken and rows + counts[number] > limit:
            yield SliceRange(taken[0], taken[-1]), rows
            taken, rows = [], 0
        taken.append(number)
        rows += counts[number]
    if taken:
        yield SliceRange(taken[0], taken[-1]), rows


def _write(  # noqa: PLR0917 - all of one export
    connection: SyncConnection,
    plan: _Plan,
    directory: Path,
    run: _Run,
    width: int,
    progress: Callable[[int, int], None],
) -> list[ArchivedFile]:
    manifest, files, done = plan.manifest, [], 0
    progress(0, plan.rows)
    for wave in _waves(plan.parts, 2 * width):
        parts = [part for key in wave for part in plan.parts[key]]
        results = []
        for written in run(parts):
            results.append(written)
            done += written.part.rows
            progress(done, plan.rows)
        for partition, entity_type in wave:
            mine = [r for r in results if (r.part.partition, r.part.entity_type) == (partition, entity_type)]
            check_exported(connection, partition, entity_type, [r.file for r in mine if r.file is not None])
            new = [_named(directory, written) for written in mine if written.file is not None]
            manifest = _kept(directory, manifest, partition.bounds, entity_type, new)
            files += new
    shutil.rmtree(directory / ATTEMPTS, ignore_errors=True)
    return files


def _waves(
    parts: Mapping[tuple[Partition, str], Sequence[Part]], size: int
) -> Iterator[list[tuple[Partition, str]]]:
    """Whole partitions, together at least so many parts: after each the manifest is written."""
    wave: list[tuple[Partition, str]] = []
    for key in parts:
        wave.append(key)
        if sum(len(parts[each]) for each in wave) >= size:
            yield wave
            wave = []
    if wave:
        yield wave


def _named(directory: Path, written: Written) -> ArchivedFile:
    assert written.file is not None  # noqa: S101 - asked by the caller
    path = directory / written.file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    written.attempt.replace(path)
    sync_directory(path.parent)
    return written.file


def _kept(
    directory: Path, manifest: Manifest, bounds: Bounds, entity_type: str, files: Sequence[ArchivedFile]
) -> Manifest:
    old = manifest.of(bounds, entity_type)
    manifest = manifest.replaced(bounds, entity_type, files)
    manifest.save(directory)
    for each in old:
        (directory / each.path).unlink(missing_ok=True)
    return manifest


def _remove_unknown(directory: Path, manifest: Manifest) -> None:
    """Files that an export had named when it broke, before the manifest knew them."""
    known = {each.path for each in manifest.files}
    for path in directory.glob("entity_type=*/date=*/part-*.parquet"):
        if str(path.relative_to(directory)) not in known:
            path.unlink()


def _outcome(
    connection: SyncConnection, plan: _Plan, closed: Sequence[Partition], files: Sequence[ArchivedFile]
) -> Exported:
    archived = {(each.bounds, each.entity_type) for each in (*plan.manifest.files, *files)}
    detachable, behind = [], {}
    for partition in closed:
        types = types_in(connection, partition.bounds)
        if not all((partition.bounds, each) in archived for each in types):
            continue
        asked = {"types": types, "end": partition.bounds.to_timestamp}
        late = connection.execute(_BEHIND, asked).fetchall()
        if late:
            behind[partition.name] = tuple(name for (name,) in late)
        else:
            detachable.append(partition.name)
    return Exported(
        tuple(dict.fromkeys(partition.name for partition, _ in plan.parts)),
        tuple(sorted(plan.again)),
        tuple(sorted(plan.unchanged)),
        len(files),
        sum(each.rows for each in files),
        tuple(detachable),
        behind,
    )
