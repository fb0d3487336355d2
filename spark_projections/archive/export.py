"""
Closed time partitions of the journal as Parquet files.

Nothing leaves the journal here. A file gets its final name, and then its line in the manifest, from the one process
that leads the export; what tasks write before that has a name of its own for each attempt.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from journal import CLOCK_MARGIN
from journal.database import SyncConnection
from journal.partitions import Partition
from spark_projections.archive.check import check_archived_file
from spark_projections.archive.erasing import erase_files, remove_leftovers
from spark_projections.archive.export_task import ATTEMPTS, ArchivedPartition, Part, WrittenPart, export_part
from spark_projections.archive.files import ArchivedFile, ArchiveError, Bounds
from spark_projections.archive.journal_queries import autocommit, stored, types_in
from spark_projections.archive.locking import locked, sync_directory
from spark_projections.archive.manifest import NAME, Manifest
from spark_projections.archive.planning import ExportGroup, ExportPlan, plan_export
from spark_projections.archive.repair import take_in
from spark_projections.archive.still_there import check_exported, check_grown
from spark_projections.engine.parallel import parallelism, spread
from spark_projections.reading.horizon import look, wait_for_appends

if TYPE_CHECKING:
    from pyspark import SparkContext

ROWS_PER_FILE = 500_000

_PARTITIONS = """
SELECT name, from_timestamp, to_timestamp FROM projections.partitions
WHERE table_name = 'events' AND to_timestamp IS NOT NULL AND from_timestamp IS NOT NULL ORDER BY from_timestamp
"""
# An unfinished rebuild folds and verifies from the first event on; swapped in, workers go on from its fence.
_BEHIND = """
SELECT p.name FROM projections.projections AS p
WHERE p.journal IS NULL AND coalesce(p.entity_types && %(types)s::text[], TRUE) AND EXISTS (
    SELECT FROM projections.projection_ranges AS r
    WHERE r.projection_id = p.projection_id AND r.horizon < %(end)s
)
OR EXISTS (
    SELECT FROM projections.rebuilds AS b
    WHERE b.projection_id = p.projection_id AND b.state IN ('folding', 'verified')
    AND coalesce(b.entity_types && %(types)s::text[], TRUE)
)
ORDER BY p.name
"""


@dataclass(frozen=True, slots=True)
class Exported:
    """
    What an export did.

    Args:
        partitions: Names of the partitions of which something was written, in the order of time.
        again: Those of them that were in the archive already, and have grown since by an import.
        unchanged: Names of those that were in the archive already.
        files: How many files were written.
        rows: The number of events that were written.
        detachable: Partitions of which every event is in the archive, and that no projection still has to read.
        detach: For each of these the statement that detaches it, if it is still what the archive holds.
        behind: Partitions that are in the archive whole, by the projections that have not passed them yet, or that
            are being rebuilt.
        stuck: Partitions that were not exported as they are, and why, with what to do.
    """

    partitions: tuple[str, ...]
    again: tuple[str, ...]
    unchanged: tuple[str, ...]
    files: int
    rows: int
    detachable: tuple[str, ...]
    detach: tuple[str, ...]
    behind: Mapping[str, tuple[str, ...]]
    stuck: Mapping[str, str]


_Run = Callable[[Sequence[Part]], Iterator[WrittenPart]]


def export_archive(
    dsn: str,
    directory: Path,
    *,
    entity_types: Sequence[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    spark: SparkContext | None = None,
    processes: int | None = None,
    rows_per_file: int = ROWS_PER_FILE,
    say: Callable[[str], None] = lambda _: None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Exported:
    """
    Write the closed partitions that an archive does not hold yet, and what others have got since. Deletes nothing.

    A partition is closed when its time is past and no append is in flight that could still write there. An export
    that broke goes on with the next one: the manifest grows by whole partitions. One that is stuck holds up no other.

    Args:
        dsn: The journal; the role needs projections_reader.
        directory: The archive, made when it is missing. With ``spark``, every executor must see it there.
        entity_types: Only these; by default all.
        since: Only partitions that begin at this time or later.
        until: Only partitions that end by this time.
        spark: Where to run; by default in processes of this machine.
        processes: The most of those at a time.
        rows_per_file: Slices are put together into files of up to this number of events.
        say: Told who is waited for, and which partitions have grown.
        progress: Told how many events are done, of how many.

    Raises:
        ArchiveError: Another export is at work, the manifest is lost or damaged, or files that it does not name cannot
            be taken in.
        NoHorizon: The database is a standby, and cannot tell what is in flight.
        DatabaseError: The database refused, or cannot be reached.
    """
    with locked(directory):
        shutil.rmtree(directory / ATTEMPTS, ignore_errors=True)
        manifest = _taken_in(directory, processes, say)
        with autocommit(dsn) as connection:
            closed = _closed(connection, since, until, say)
            times = {each.bounds for each in closed}
            present = [each for each in manifest.files if each.bounds in times]
            with _written(directory):
                manifest, erased = erase_files(connection, directory, manifest, present)
            if erased.messages:
                say(f"payloads of erased messages taken out of the archive: {erased.messages:,}")
            plan = plan_export(connection, directory, manifest, closed, entity_types, rows_per_file)
            for name in sorted(plan.again):
                say(
                    f"partition {name} has grown since it was exported (an import): further files take what is new"
                )
            with _written(directory):
                if plan.manifest.files != manifest.files or not plan.manifest.version:
                    plan.manifest = plan.manifest.save(directory)
                work = partial(export_part, dsn, directory)
                run = partial(spread, work, spark=spark, processes=processes)
                written = _write(connection, plan, directory, run, parallelism(spark), progress)
            return _outcome(connection, plan, closed, written)


def _taken_in(directory: Path, processes: int | None, say: Callable[[str], None]) -> Manifest:
    """The manifest, with the files that an export had named when it broke, before the manifest knew them."""
    manifest = Manifest.load_or_new(directory)
    remove_leftovers(directory, manifest)
    manifest, paths, problems = take_in(directory, manifest, processes=processes)
    if problems:
        raise ArchiveError(
            f"{directory} has files that {NAME} does not name, and that may be the only copy: nothing is written. "
            + ". ".join(problems)
        )
    if paths:
        say(f"{len(paths)} files that {NAME} did not name are taken in: {', '.join(paths)}")
        manifest = manifest.save(directory)
    return manifest


@contextmanager
def _written(directory: Path) -> Iterator[None]:
    """Say what could not be written; the connection around it would blame the network."""
    try:
        yield
    except OSError as error:
        raise ArchiveError(f"{directory} cannot be written: {error}") from error


def _closed(
    connection: SyncConnection, since: datetime | None, until: datetime | None, say: Callable[[str], None]
) -> list[ArchivedPartition]:
    """Partitions whose time is past, once no append is in flight that could still write there."""
    now = look(connection).at - CLOCK_MARGIN
    found = [
        ArchivedPartition(name, Bounds(low, high)) for name, low, high in connection.execute(_PARTITIONS)
    ]
    closed = [
        each
        for each in found
        if each.bounds.to_timestamp <= min(now, until or now)
        and (since is None or each.bounds.from_timestamp >= since)
    ]
    if closed:
        wait_for_appends(connection, max(each.bounds.to_timestamp for each in closed), say)
    return closed


def _write(  # noqa: PLR0917 - all of one export
    connection: SyncConnection,
    plan: ExportPlan,
    directory: Path,
    run: _Run,
    width: int,
    progress: Callable[[int, int], None],
) -> list[ArchivedFile]:
    files, done = list[ArchivedFile](), 0
    progress(0, plan.rows)
    for wave in _waves(plan.groups, 2 * width):
        parts = [part for key in wave for part in plan.groups[key].parts]
        results = []
        for written in run(parts):
            results.append(written)
            done += written.part.rows
            progress(done, plan.rows)
        for partition, entity_type in wave:
            mine = [r for r in results if (r.part.partition, r.part.entity_type) == (partition, entity_type)]
            group = plan.groups[partition, entity_type]
            try:
                files_of = [r.file for r in mine if r.file is not None]
                _check(connection, plan, (partition, entity_type), files_of)
            except ArchiveError as error:
                plan.stuck[partition.name] = str(error)
                continue
            new = [_named(directory, written) for written in mine if written.file is not None]
            looked_at = [replace(each, import_id=plan.import_id) for each in (*group.gone, *group.here)]
            plan.manifest = plan.manifest.replaced(partition.bounds, entity_type, [*looked_at, *new]).save(
                directory
            )
            files += new
    shutil.rmtree(directory / ATTEMPTS, ignore_errors=True)
    return files


def _check(
    connection: SyncConnection,
    plan: ExportPlan,
    key: tuple[ArchivedPartition, str],
    files: Sequence[ArchivedFile],
) -> None:
    group = plan.groups[key]
    check_exported(connection, *key, files)
    if group.here or group.gone:
        looked_at = [replace(each, import_id=plan.import_id) for each in group.here]
        check_grown(connection, *key, [*looked_at, *files])


def _waves(
    groups: Mapping[tuple[ArchivedPartition, str], ExportGroup], size: int
) -> Iterator[list[tuple[ArchivedPartition, str]]]:
    """Whole partitions, together at least ``size`` parts: after each the manifest is written."""
    wave: list[tuple[ArchivedPartition, str]] = []
    for key in groups:
        wave.append(key)
        if sum(len(groups[each].parts) for each in wave) >= size:
            yield wave
            wave = []
    if wave:
        yield wave


def _named(directory: Path, written: WrittenPart) -> ArchivedFile:
    assert written.file is not None  # noqa: S101 - asked by the caller
    path = directory / written.file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    written.attempt.replace(path)
    sync_directory(path.parent)
    return written.file


def _outcome(
    connection: SyncConnection,
    plan: ExportPlan,
    closed: Sequence[ArchivedPartition],
    files: Sequence[ArchivedFile],
) -> Exported:
    archived = {(each.bounds, each.entity_type) for each in plan.manifest.files}
    detachable, detach, behind = [], [], {}
    for partition in closed:
        types = types_in(connection, partition.bounds)
        if partition.name in plan.stuck or not all((partition.bounds, each) in archived for each in types):
            continue
        asked = {"types": types, "end": partition.bounds.to_timestamp}
        late = connection.execute(_BEHIND, asked).fetchall()
        if late:
            behind[partition.name] = tuple(name for (name,) in late)
        else:
            detachable.append(partition.name)
            span = partition.bounds.from_timestamp, partition.bounds.to_timestamp
            detach.append(_detach(partition.name, _present(connection, plan.manifest, *span)))
    return Exported(
        tuple(
            dict.fromkeys(partition.name for partition, _ in plan.groups if partition.name not in plan.stuck)
        ),
        tuple(sorted(plan.again - plan.stuck.keys())),
        tuple(sorted(plan.unchanged - plan.again - plan.stuck.keys())),
        len(files),
        sum(each.rows for each in files),
        tuple(detachable),
        tuple(detach),
        behind,
        dict(plan.stuck),
    )


def _detach(name: str, files: Sequence[ArchivedFile]) -> str:
    rows, content = sum(each.rows for each in files), sum(each.content for each in files)
    quoted = name.replace("'", "''")
    return f"SELECT projections.detach_partition_v1('{quoted}', {rows}, {content})"


def _present(
    connection: SyncConnection, manifest: Manifest, low: datetime | None, high: datetime | None
) -> list[ArchivedFile]:
    """The files with the events of a partition: others of that time have left the journal before."""
    return [
        each
        for each in manifest.files
        if (each.bounds.from_timestamp, each.bounds.to_timestamp) == (low, high) and stored(connection, each)
    ]


def archive_partition(dsn: str, directory: Path, partition: Partition) -> None:
    """Export a closed partition, then read its files back: ArchiveError unless every event of it is as it should be."""
    if not partition.rows:
        return
    done = export_archive(dsn, directory, since=partition.from_timestamp, until=partition.to_timestamp)
    if partition.name in done.stuck:
        raise ArchiveError(done.stuck[partition.name])
    with autocommit(dsn) as connection:
        files = _present(
            connection, Manifest.load(directory), partition.from_timestamp, partition.to_timestamp
        )
    for file, problem in (check_archived_file(directory, each) for each in files):
        if problem is not None:
            raise ArchiveError(f"{file.path}: {problem}")
    rows = sum(each.rows for each in files)
    if rows != partition.rows:
        raise ArchiveError(
            f"partition {partition.name} has {partition.rows:,} events, and the archive has {rows:,} of them"
        )
    if partition.content not in {None, sum(each.content for each in files)}:
        raise ArchiveError(
            f"partition {partition.name} has rows that are not as the archive has them: `projections archive verify "
            f"{directory} --against-journal` says of which days"
        )
