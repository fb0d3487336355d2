"""Files of an archive that the journal still has: partitions leave whole, who went back lacks the newest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from journal.database import SyncConnection
from spark_projections.archive.export_task import KEYS, ArchivedPartition
from spark_projections.archive.files import ArchivedFile, ArchiveError, open_file
from spark_projections.archive.journal_queries import (
    archived_by_day,
    content_by_day,
    newer_imports,
    newest_stored,
    seen,
    stored_at,
    stored_rows,
)


def still_there(
    connection: SyncConnection, directory: Path, partition: ArchivedPartition, files: Sequence[ArchivedFile]
) -> list[ArchivedFile]:
    """
    Those files whose events are in a partition; the others have left the journal with an earlier one of that time.

    ArchiveError: the journal has a part of a file, or never had it: somebody has to decide what happens to that.
    """
    found = []
    for each in files:
        look = seen(connection, each)
        if look.first and look.newest:
            found.append(each)
        elif look.first or not look.had or (look.newest and _has_newest(connection, directory, each)):
            raise ArchiveError(
                f"partition {partition.name} lacks events of type {each.entity_type!r} that the archive holds: the "
                "database went back in time since they were exported (a fail-over or a restore), or it is another one. "
                f"Export to another directory, or, to give up the lost events, move {each.path} out of this one and "
                f"run `projections archive repair {directory} --forget-missing`"
            )
    return found


def _has_newest(connection: SyncConnection, directory: Path, file: ArchivedFile) -> bool:
    """Whether an event of that time is the file's, and not one that was imported at the same time."""
    with open_file(directory / file.path) as opened:
        try:
            table = opened.read([*KEYS, "db_timestamp"])
        except (pa.ArrowException, OSError) as error:
            raise ArchiveError(f"{file.path} cannot be read, {error}: restore it from a backup") from error
    newest = table.filter(pc.equal(table.column("db_timestamp"), pc.max(table.column("db_timestamp"))))
    keys = zip(*(newest.column(name).to_pylist() for name in KEYS), strict=True)
    return any(stored_at(connection, source, number, file.max_timestamp) for source, number in keys)


def check_exported(
    connection: SyncConnection, partition: ArchivedPartition, entity_type: str, files: Sequence[ArchivedFile]
) -> None:
    """Make sure that a partition still has what was just read from it, before it is marked as exported."""
    rows = sum(each.rows for each in files)
    there = all(newest_stored(connection, each) for each in files)
    if not there or stored_rows(connection, entity_type, partition.bounds) < rows:
        raise ArchiveError(
            f"partition {partition.name} lacks events of type {entity_type!r} that were just read from it: the "
            "database went back in time meanwhile (a fail-over or a restore), and they are not marked as exported. "
            "Export again"
        )


def check_grown(
    connection: SyncConnection, partition: ArchivedPartition, entity_type: str, files: Sequence[ArchivedFile]
) -> None:
    """Make sure that the files of a partition that has grown hold what it holds, event by event."""
    found = content_by_day(connection, entity_type, partition.bounds)
    if found == archived_by_day(files) or newer_imports(connection, files):
        return
    raise changed_since(partition, entity_type)


def changed_since(partition: ArchivedPartition, entity_type: str) -> ArchiveError:
    """Say that rows of a partition were changed or deleted after they were exported."""
    return ArchiveError(
        f"partition {partition.name} has events of type {entity_type!r} that are not as they were when they were "
        "exported: `projections archive verify DIR --against-journal` says of which days. Export to "
        "another directory and compare"
    )
