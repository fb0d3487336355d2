"""An archive as what retention asks for: a partition is in it, and read back, before it leaves the journal."""

from __future__ import annotations

from pathlib import Path

from journal.partitions import Partition
from spark_projections.archive.check import check_archived_file
from spark_projections.archive.export import export_archive
from spark_projections.archive.files import ArchiveError
from spark_projections.archive.journal_queries import autocommit, stored
from spark_projections.archive.manifest import Manifest

__all__ = ["archive_partition"]


def archive_partition(dsn: str, directory: Path, partition: Partition) -> None:
    """
    Export a closed partition; then read its files back.

    Raises:
        ArchiveError: Not every event of the partition is in the archive as it should be.
        DatabaseError: The database refused, or can not be reached.
    """
    if not partition.rows:
        return
    done = export_archive(dsn, directory, after=partition.from_timestamp, before=partition.to_timestamp)
    if partition.name in done.stuck:
        raise ArchiveError(done.stuck[partition.name])
    with autocommit(dsn) as connection:
        # Others of that time have left the journal before, and what is imported since has a partition of its own.
        files = [
            each
            for each in Manifest.load(directory).files
            if each.bounds.from_timestamp == partition.from_timestamp
            and each.bounds.to_timestamp == partition.to_timestamp
            and stored(connection, each)
        ]
    for file, problem in (check_archived_file(directory, each) for each in files):
        if problem is not None:
            raise ArchiveError(f"{file.path}: {problem}")
    rows = sum(each.rows for each in files)
    if rows != partition.rows:
        raise ArchiveError(
            f"partition {partition.name} has {partition.rows:,} events, and the archive has {rows:,} of them"
        )
