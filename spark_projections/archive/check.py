"""Whether an archive is still what was written, and whether the journal has the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import combinations
from pathlib import Path

import pyarrow as pa

from spark_projections.archive.event_checksums import content_of
from spark_projections.archive.export_task import KEYS, keys_of
from spark_projections.archive.files import (
    ArchivedFile,
    ArchiveError,
    check_file,
    open_file,
    sha256_of,
)
from spark_projections.archive.journal_queries import (
    archived_by_day,
    autocommit,
    content_by_day,
    newer_imports,
    stored,
)
from spark_projections.archive.locking import busy
from spark_projections.archive.manifest import Manifest
from spark_projections.engine.parallel import spread
from spark_projections.reading.batches import SCHEMA

_BATCH = 32_768
_UNNAMED = (
    "no manifest names it, so nobody reads it: `projections archive repair {}` takes it in, or says why not"
)
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
        missing: Files that are named and not there.
        damaged: Files that are not what was written.
        doubled: Files with events that another one has as well.
        unnamed: Files that lie in the archive, and that the manifest does not name: nobody reads them.
        differences: What is not as it should be, a line each: all of the above, and what the journal has otherwise.
    """

    files: int
    rows: int
    compared: int
    gone: int
    missing: tuple[str, ...]
    damaged: tuple[str, ...]
    doubled: tuple[str, ...]
    unnamed: tuple[str, ...]
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
        processes: The most at a time; by default one for each core.
        progress: Told how many events are read, of how many.

    Raises:
        ArchiveError: There is no manifest, or it cannot be read.
        DatabaseError: The database refused, or cannot be reached.
    """
    manifest = Manifest.load(directory)
    unnamed = _unnamed(directory)
    total, done = sum(each.rows for each in manifest.files), 0
    bad: dict[str, str] = {}
    work = partial(check_archived_file, directory)
    for file, problem in spread(work, manifest.files, processes=processes):
        bad |= {file.path: problem} if problem else {}
        done += file.rows
        progress(done, total)
    twice = doubled(directory, [each for each in manifest.files if each.path not in bad])
    differences = [f"{path}: {problem}" for path, problem in bad.items()] + list(twice)
    differences += [f"{path}: {_UNNAMED.format(directory)}" for path in unnamed]
    compared, gone = 0, 0
    if journal is not None:
        compared, gone, others = _against_journal(journal, manifest)
        differences += others
    missing = sorted(path for path in bad if not (directory / path).exists())
    return Checked(
        len(manifest.files),
        total,
        compared,
        gone,
        missing=tuple(missing),
        damaged=tuple(sorted(bad.keys() - set(missing))),
        doubled=tuple(sorted({path for paths in twice.values() for path in paths})),
        unnamed=tuple(unnamed),
        differences=tuple(sorted(differences)),
    )


def _unnamed(directory: Path) -> list[str]:
    """Files that no manifest names, but those that an export at work is just about to name."""
    found = Manifest.load(directory).unnamed(directory)
    if found and not busy(directory):
        # One that has ended meanwhile has named its own.
        return Manifest.load(directory).unnamed(directory)
    return []


def doubled(
    directory: Path, files: Sequence[ArchivedFile], only: ArchivedFile | None = None
) -> dict[str, tuple[str, ...]]:
    """
    The files whose events several have, or that ``only`` shares with others, by a line that says what they share.

    Files that cannot be read are passed over.
    """
    days: dict[tuple[str, date], list[ArchivedFile]] = {}
    for each in files:
        if only is None or (each.entity_type, each.date) == (only.entity_type, only.date):
            days.setdefault((each.entity_type, each.date), []).append(each)
    found: dict[str, tuple[str, ...]] = {}
    for mine in days.values():
        for one, other in combinations(mine, 2):
            if only not in {None, one, other} or not _overlap(one, other):
                continue
            if shared := _shared(directory, one, other):
                source, number, count = shared
                example = f"source {source!r}, seq_nr {number}"
                line = f"{one.path} and {other.path} both have {count:,} events, such as {example}"
                found[line] = one.path, other.path
    return found


def _overlap(one: ArchivedFile, other: ArchivedFile) -> bool:
    return (
        one.slices.min_slice <= other.slices.max_slice
        and other.slices.min_slice <= one.slices.max_slice
        and one.min_timestamp <= other.max_timestamp
        and other.min_timestamp <= one.max_timestamp
    )


def _shared(directory: Path, one: ArchivedFile, other: ArchivedFile) -> tuple[str, int, int] | None:
    try:
        tables = keys_of(directory / one.path), keys_of(directory / other.path)
    except ArchiveError:
        return None  # what cannot be read is reported as that
    both = tables[0].join(tables[1], list(KEYS), join_type="left semi")
    return (*both.slice(0, 1).to_pylist()[0].values(), both.num_rows) if both.num_rows else None


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
        return file, f"cannot be read, {error}: restore it from a backup"


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
            # Others have left it with an earlier partition of that time; what came since is of the next export.
            here = [each for each in files if stored(connection, each)]
            found, kept = content_by_day(connection, entity_type, bounds), archived_by_day(here)
            if not here and not found:
                gone += 1
                continue
            compared += 1
            for day in sorted(found.keys() | kept.keys()):
                if found.get(day) != kept.get(day):
                    reason = (
                        "events were imported since: run `projections maintain`, and export again"
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
