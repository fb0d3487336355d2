"""Whether an archive is still what was written, and whether the journal has the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from spark_projections.archive.lookup import (
    archived_by_day,
    autocommit,
    content_by_day,
    newer_imports,
    stored,
)
from spark_projections.archive.manifest import (
    ArchivedFile,
    ArchiveError,
    Manifest,
    check_file,
    content_of,
    open_file,
    sha256_of,
)
from spark_projections.engine.spread import spread
from spark_projections.reading.batches import SCHEMA

__all__ = ["Checked", "check_archived_file", "verify_archive"]

_BATCH = 32_768
_KEYS = ("slice", "source_id", "seq_nr")


@dataclass(frozen=True, slots=True)
class Checked:
    """
    What a verification found.

    Args:
        files: How many files were read.
        rows: How many events those have by the manifest.
        compared: How many partitions, each by entity type, were compared with the journal.
        gone: How many are no longer in the journal, so that there was nothing to compare with.
        differences: What is not as it should be, a line each.
    """

    files: int
    rows: int
    compared: int
    gone: int
    differences: tuple[str, ...]


def verify_archive(
    directory: Path,
    *,
    journal: str | None = None,
    processes: int | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Checked:
    """
    Read every file of an archive, and compare it with the manifest; on request the manifest with the journal.

    Args:
        directory: The archive.
        journal: The DSN of the journal to compare with; None for none. The role needs projections_reader.
        processes: At most so many at a time; by default one for each core.
        progress: Told how many events are read, of how many.

    Raises:
        ArchiveError: There is no manifest, or it can not be read.
        DatabaseError: The database refused, or can not be reached.
    """
    manifest = Manifest.load(directory)
    total, done = sum(each.rows for each in manifest.files), 0
    differences: list[str] = []
    work = partial(check_archived_file, directory)
    for file, problem in spread(work, manifest.files, processes=processes):
        differences += [f"{file.path}: {problem}"] if problem else []
        done += file.rows
        progress(done, total)
    compared, gone = 0, 0
    if journal is not None:
        compared, gone, others = _against_journal(journal, manifest)
        differences += others
    return Checked(len(manifest.files), total, compared, gone, tuple(sorted(differences)))


def check_archived_file(directory: Path, file: ArchivedFile) -> tuple[ArchivedFile, str | None]:
    """Read a file through; returns it with what is wrong with it, or None."""
    try:
        path = check_file(directory, file)
        if sha256_of(path) != file.sha256:
            return file, "its bytes have changed since it was written (SHA-256): restore it from a backup"
        return file, _wrong_rows(path, file)
    except ArchiveError as error:
        return file, str(error)
    except (pa.ArrowException, OSError) as error:
        return file, f"can not be read, {error}: restore it from a backup"


def _wrong_rows(path: Path, file: ArchivedFile) -> str | None:
    rows, content, counts = 0, 0, [0] * len(file.slice_counts)
    last: tuple[int, str, int] | None = None
    with open_file(path) as opened:
        for batch in opened.iter_batches(_BATCH, columns=SCHEMA.names):
            rows += batch.num_rows
            content += content_of(batch)
            for key in zip(*(batch.column(name).to_pylist() for name in _KEYS), strict=True):
                if last is not None and (key[0], key[1].encode(), key[2]) <= (
                    last[0], last[1].encode(), last[2],
                ):  # fmt: skip
                    return f"source {key[1]!r}, seq_nr {key[2]} is not in order"
                last = key
                counts[key[0] - file.slices.min_slice] += 1
    if rows != file.rows:
        return f"it has {rows:,} events, the manifest says {file.rows:,}"
    if content != file.content:
        return "its events are not those that the manifest's checksum was made from"
    return (
        None if tuple(counts) == file.slice_counts else "its events per slice are not those of the manifest"
    )


def _against_journal(dsn: str, manifest: Manifest) -> tuple[int, int, list[str]]:
    compared, gone, differences = 0, 0, []
    with autocommit(dsn) as connection:
        for (bounds, entity_type), files in manifest.partitions().items():
            if not any(stored(connection, each) for each in files):
                gone += 1
                continue
            compared += 1
            found, kept = content_by_day(connection, entity_type, bounds), archived_by_day(files)
            for day in sorted(found.keys() | kept.keys()):
                if found.get(day) != kept.get(day):
                    reason = (
                        "events were imported since: export again"
                        if newer_imports(connection, files)
                        else "do not detach this partition: export to another directory and compare"
                    )
                    differences.append(
                        f"entity type {entity_type!r}, {day}: the journal has {_events(found.get(day))}, the archive "
                        f"{_events(kept.get(day))}; {reason}"
                    )
    return compared, gone, differences


def _events(found: tuple[int, int] | None) -> str:
    rows, content = found or (0, 0)
    return f"{rows:,} events (checksum {content:x})"
