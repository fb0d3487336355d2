"""
A manifest made again, and files that it does not name taken into it.

Nothing is deleted: what cannot be taken in is named, and stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from spark_projections.archive.check import check_archived_file, doubled
from spark_projections.archive.erasing import remove_leftovers
from spark_projections.archive.files import NOT_KNOWN, ArchivedFile, ArchiveError, footer_of
from spark_projections.archive.locking import locked
from spark_projections.archive.manifest import Manifest, newest_former, set_aside
from spark_projections.engine.parallel import spread


@dataclass(frozen=True, slots=True)
class Repaired:
    """
    What a repair did.

    Args:
        files: How many files the manifest names.
        taken_in: Those that it did not name before.
        missing: Those that it names, and that are not there: restore them from a backup.
        forgotten: Those that it named and names no longer, for they are not there and their events were given up.
        problems: Why other files were not taken in, a line each.
    """

    files: int
    taken_in: tuple[str, ...]
    missing: tuple[str, ...]
    forgotten: tuple[str, ...]
    problems: tuple[str, ...]


def repair_archive(
    directory: Path,
    *,
    forget_missing: bool = False,
    processes: int | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Repaired:
    """
    Make the manifest of an archive again: from the newest one that is kept, and from what the files say of themselves.

    Files are read through before they are taken in. Needs no database: what the journal has beyond them, the next
    export finds by comparing.

    Args:
        directory: The archive.
        forget_missing: Name files no longer that are not there, and give up their events. One that is put back later is
            taken in again.
        processes: The most files that are read at a time; by default one for each core.
        progress: Told how many events are read, of how many.

    Raises:
        ArchiveError: Somebody is changing the archive, or it cannot be written.
    """
    with locked(directory):
        manifest = newest_former(directory)
        missing = [each for each in manifest.files if not (directory / each.path).exists()]
        if forget_missing:
            for each in missing:
                manifest = _without(manifest, each)
        remove_leftovers(directory, manifest)
        manifest, taken_in, problems = take_in(directory, manifest, processes=processes, progress=progress)
        try:
            manifest = set_aside(directory, manifest).save(directory)
        except OSError as error:
            raise ArchiveError(f"{directory} cannot be written: {error}") from error
    paths = tuple(each.path for each in missing)
    return Repaired(
        len(manifest.files),
        tuple(taken_in),
        missing=() if forget_missing else paths,
        forgotten=paths if forget_missing else (),
        problems=tuple(problems),
    )


def take_in(
    directory: Path,
    manifest: Manifest,
    *,
    processes: int | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[Manifest, list[str], list[str]]:
    """
    Name the files that a manifest does not name, as far as their footers describe them and they are what those say.

    Returns the manifest with them; which they are; and why others were left out, a line each.
    """
    found: list[ArchivedFile] = []
    taken_in: list[str] = []
    problems: list[str] = []
    for path in manifest.unnamed(directory):
        try:
            found.append(footer_of(directory, path))
        except ArchiveError as error:
            problems.append(str(error))
    total, done = sum(each.rows for each in found), 0
    for file, problem in spread(partial(check_archived_file, directory), found, processes=processes):
        twice = problem or next(iter(doubled(directory, [*manifest.files, file], only=file)), None)
        if twice:
            problems.append(
                f"{file.path}: {problem}"
                if problem
                else f"{twice}; move {file.path}, which no manifest names, out of the archive"
            )
        else:
            manifest = _with(manifest, file)
            taken_in.append(file.path)
        done += file.rows
        progress(done, total)
    return manifest, sorted(taken_in), sorted(problems)


def _with(manifest: Manifest, file: ArchivedFile) -> Manifest:
    return _not_compared(manifest, file, [*manifest.of(file.bounds, file.entity_type), file])


def _without(manifest: Manifest, file: ArchivedFile) -> Manifest:
    others = [each for each in manifest.of(file.bounds, file.entity_type) if each.path != file.path]
    return _not_compared(manifest, file, others)


def _not_compared(manifest: Manifest, file: ArchivedFile, files: Iterable[ArchivedFile]) -> Manifest:
    """With other files for the partition of one. Whether it has more events, a comparison with the journal tells."""
    return manifest.replaced(
        file.bounds, file.entity_type, [replace(each, import_id=NOT_KNOWN) for each in files]
    )
