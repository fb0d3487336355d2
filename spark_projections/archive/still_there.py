"""Whether the journal still has what an archive holds: a database that went back in time lacks the newest of it."""

from __future__ import annotations

from collections.abc import Sequence

from journal.drivers.sync import SyncConnection
from spark_projections.archive.lookup import newest_stored, stored_rows
from spark_projections.archive.manifest import ArchivedFile, ArchiveError
from spark_projections.archive.part import Partition

__all__ = ["check_archived", "check_exported"]


def check_archived(connection: SyncConnection, partition: Partition, files: Sequence[ArchivedFile]) -> None:
    """
    Make sure that a partition still has the newest events of its files.

    Args:
        connection: The journal.
        partition: The partition.
        files: Of one type, as the manifest has them.

    Raises:
        ArchiveError: It has not: somebody has to decide what becomes of the files.
    """
    if all(newest_stored(connection, each) for each in files):
        return
    raise ArchiveError(
        f"partition {partition.name} lacks events of type {files[0].entity_type!r} that the archive holds: the "
        "database went back in time since they were exported (a fail-over or a restore). Export to another "
        "directory, or remove the files of that partition from this one if the lost events are not to be kept"
    )


def check_exported(
    connection: SyncConnection, partition: Partition, entity_type: str, files: Sequence[ArchivedFile]
) -> None:
    """
    Make sure that a partition still has what was just read from it, before it is marked as exported.

    Args:
        connection: The journal.
        partition: The partition.
        entity_type: Which events.
        files: What was written of them.

    Raises:
        ArchiveError: It has not.
    """
    rows = sum(each.rows for each in files)
    there = all(newest_stored(connection, each) for each in files)
    if not there or stored_rows(connection, entity_type, partition.bounds) < rows:
        raise ArchiveError(
            f"partition {partition.name} lacks events of type {entity_type!r} that were just read from it: the "
            "database went back in time meanwhile (a fail-over or a restore), and they are not marked as exported. "
            "Export again"
        )
