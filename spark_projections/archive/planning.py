"""What an export has to write: whole partitions that the archive lacks, and what others have got since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path

from journal import SliceRange
from journal.database import SyncConnection
from spark_projections.archive.check import check_archived_file
from spark_projections.archive.export_task import ArchivedPartition, Part
from spark_projections.archive.files import ArchivedFile, ArchiveError
from spark_projections.archive.journal_queries import archived_by_day, content_by_day, types_in
from spark_projections.archive.manifest import Manifest
from spark_projections.archive.still_there import changed_since, still_there

BYTES_PER_FILE = 256 << 20
"""A file with several slices is sorted in memory; one slice alone comes sorted from the database."""

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
_OTHER_COLUMNS = 200  # bytes of a row alongside payload and metadata, roughly


@dataclass(frozen=True, slots=True)
class ExportGroup:
    """
    What is to be written of a type in a partition, as ``parts``, one file each.

    ``here`` are files of the archive whose events are in the partition, ``gone`` others of that time, whose events
    have left the journal.
    """

    parts: tuple[Part, ...]
    here: tuple[ArchivedFile, ...] = ()
    gone: tuple[ArchivedFile, ...] = ()

    @property
    def rows(self) -> int:
        """Events that are read for it."""
        return sum(part.rows for part in self.parts)


@dataclass(slots=True)
class ExportPlan:
    """
    What an export does.

    Args:
        manifest: As it was, with what was found unchanged.
        import_id: The last import before anything was looked at.
        groups: What is to be written.
        again: Partitions that have grown since they were exported.
        unchanged: Partitions that are in the archive as they are.
        stuck: Partitions that cannot be exported as they are, and why, with what to do.
    """

    manifest: Manifest
    import_id: int
    groups: dict[tuple[ArchivedPartition, str], ExportGroup] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)
    unchanged: set[str] = field(default_factory=set)
    stuck: dict[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Events that are read."""
        return sum(group.rows for group in self.groups.values())


def plan_export(  # noqa: PLR0917 - all of one export
    connection: SyncConnection,
    directory: Path,
    manifest: Manifest,
    closed: Sequence[ArchivedPartition],
    entity_types: Sequence[str],
    rows_per_file: int,
) -> ExportPlan:
    """Compare closed partitions with an archive; one that is stuck holds up no other."""
    # Before anything is read: what is imported from here on has a higher number.
    plan = ExportPlan(manifest, int(connection.execute(_IMPORT_ID).fetchall()[0][0]))
    planning = _Planning(connection, directory, plan, rows_per_file)
    for partition in closed:
        for entity_type in types_in(connection, partition.bounds):
            if entity_types and entity_type not in entity_types:
                continue
            try:
                planning.add(partition, entity_type)
            except ArchiveError as error:
                plan.stuck[partition.name] = str(error)
    return plan


@dataclass(frozen=True, slots=True)
class _Planning:
    connection: SyncConnection
    directory: Path
    plan: ExportPlan
    rows_per_file: int

    def add(self, partition: ArchivedPartition, entity_type: str) -> None:
        """Plan what is to be written of a type in a partition."""
        plan = self.plan
        files = plan.manifest.of(partition.bounds, entity_type)
        if not files:
            _check_free(plan.manifest, partition, entity_type)
            plan.groups[partition, entity_type] = ExportGroup(tuple(self._parts(partition, entity_type)))
            return
        here = still_there(self.connection, self.directory, partition, files)
        changed = self._changed_days(partition, entity_type, here)
        if not changed:
            plan.unchanged.add(partition.name)
            looked_at = [replace(each, import_id=plan.import_id) for each in files]
            plan.manifest = plan.manifest.replaced(partition.bounds, entity_type, looked_at)
            return
        plan.again.add(partition.name)
        gone = [each for each in files if each not in here]
        parts = [
            replace(part, known=self._known(part, files))
            for part in self._parts(partition, entity_type)
            if str(part.date) in changed
        ]
        plan.groups[partition, entity_type] = ExportGroup(tuple(parts), tuple(here), tuple(gone))

    def _changed_days(
        self,
        partition: ArchivedPartition,
        entity_type: str,
        here: Sequence[ArchivedFile],
    ) -> set[str]:
        """
        The days of which the journal has other events than the archive.

        ArchiveError: it has no more of them than that, so rows were changed or deleted: further files do not hold that.
        """
        found = content_by_day(self.connection, entity_type, partition.bounds)
        kept = archived_by_day(here)
        changed = {day for day in found.keys() | kept.keys() if found.get(day) != kept.get(day)}
        nothing = (0, 0)
        if any(found.get(day, nothing)[0] <= kept.get(day, nothing)[0] for day in changed):
            raise changed_since(partition, entity_type)
        return changed

    def _known(self, part: Part, files: Sequence[ArchivedFile]) -> tuple[str, ...]:
        """The files of the archive with events of a part's day and slices, read through: what they have is left out."""
        found = [each for each in files if each.date == part.date and each.count(part.slices)]
        for file, problem in (check_archived_file(self.directory, each) for each in found):
            if problem is not None:
                raise ArchiveError(
                    f"partition {part.partition.name} has grown, and {file.path} cannot be compared with it: {problem}"
                )
        return tuple(each.path for each in found)

    def _parts(self, partition: ArchivedPartition, entity_type: str) -> Iterator[Part]:
        span = partition.bounds.from_timestamp, partition.bounds.to_timestamp
        width = self.connection.execute(_WIDTH, (entity_type, *span)).fetchall()[0][0] + _OTHER_COLUMNS
        limit = min(self.rows_per_file, max(1, BYTES_PER_FILE // width))
        for day in partition.bounds.days():
            found = self.connection.execute(_COUNTS, (entity_type, day.from_timestamp, day.to_timestamp))
            counts: dict[int, int] = dict(found.fetchall())
            for slices, rows in cut(counts, limit):
                yield Part(partition, entity_type, day, slices, rows, self.plan.import_id)


def _check_free(manifest: Manifest, partition: ArchivedPartition, entity_type: str) -> None:
    for each in manifest.files:
        if each.entity_type == entity_type and each.bounds.overlaps(partition.bounds):
            end = partition.bounds.to_timestamp.astimezone(UTC)
            raise ArchiveError(
                f"partition {partition.name}, {partition.bounds}, overlaps {each.partition}, {each.bounds}, "
                "which is in the archive: the interval of partitions was changed since. Export it to another "
                f"directory, `projections archive export OTHER --until {end:%Y-%m-%dT%H:%M:%SZ}`, and detach it as "
                "that prints; until then it is kept, and no other"
            )


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
