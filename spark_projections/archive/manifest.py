"""
What an archive holds: the files, what each was made from, and checksums of both.

The manifest is replaced whole, by a rename, after the files that it names are on the disk. The last few versions are
kept alongside it: one that is lost, damaged, or put back from an older backup is noticed, and made again (repair.py).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from spark_projections.archive.files import (
    ArchivedFile,
    ArchiveError,
    Bounds,
    archived_paths,
    from_values,
    to_values,
)
from spark_projections.archive.locking import sync_directory

FORMAT = 2
_WITHOUT_CHECKSUM = 1
# Spark, pyarrow and DuckDB pass by what begins with an underscore when they are given the directory itself.
NAME = "_manifest.json"
FORMER = "_manifests"
_KEPT = 10
_NAMED = 3
"""The most files that a message names."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of an archive; ``version`` counts how often it was written, 0 when there is none yet."""

    files: tuple[ArchivedFile, ...] = ()
    version: int = 0
    exported_at: datetime | None = None

    @classmethod
    def load(cls, directory: Path) -> Manifest:
        """Read the manifest of a directory; ArchiveError: it is missing, damaged, old or of a later version."""
        former = _former_versions(directory)  # before the manifest: an export writes that first
        try:
            found = cls.read(directory / NAME)
        except FileNotFoundError:
            raise _lost(directory, former) from None
        if former and found.version < max(former):
            raise ArchiveError(
                f"{directory / NAME} is version {found.version}, and {FORMER} has version {max(former)}: an old one "
                f"was put back. {_mend(directory)}"
            )
        return found

    @classmethod
    def load_or_new(cls, directory: Path) -> Manifest:
        """Like :meth:`load`; where there is no archive yet, an empty one."""
        if (directory / NAME).exists() or _former_versions(directory) or archived_paths(directory):
            return cls.load(directory)
        return cls()

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read a current or former manifest, and check it: ArchiveError, or FileNotFoundError where there is none."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values["format"] not in {_WITHOUT_CHECKSUM, FORMAT}:
                raise ArchiveError(
                    f"{path} has the format {values['format']!r}, this version reads {FORMAT}: "
                    "use the version of slice-projections that wrote it"
                )
            if values["format"] == FORMAT and values.pop("sha256") != _checksum(values):
                raise ValueError("its checksum is another")  # noqa: TRY301 - told as any other damage is
            files = tuple(from_values(each) for each in values["files"])
            return cls(files, int(values.get("version", 0)), datetime.fromisoformat(values["exported_at"]))
        except FileNotFoundError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            raise ArchiveError(f"{path} cannot be read, {error!r}. {_mend(path.parent)}") from error

    def save(self, directory: Path) -> Manifest:
        """
        Replace the manifest of a directory; after a crash there is the old one or the new one.

        Returns it as it was written, with its version. ArchiveError: somebody has written a later version meanwhile.
        """
        versions = _former_versions(directory)
        if versions and max(versions) > self.version:
            raise ArchiveError(
                f"another export has written version {max(versions)} of {directory / NAME} meanwhile: nothing of it "
                "was changed. Let one export at a time write to an archive, and run this one again"
            )
        written = replace(self, version=self.version + 1, exported_at=datetime.now(UTC))
        text = _text(written)
        _replace(directory / NAME, text)
        # Afterwards: a version that is kept was the manifest before.
        (directory / FORMER).mkdir(exist_ok=True)
        _replace(_former(directory, written.version), text)
        for version in sorted(versions)[: -_KEPT + 1]:
            _former(directory, version).unlink(missing_ok=True)
        return written

    def of(self, bounds: Bounds, entity_type: str) -> list[ArchivedFile]:
        """The files with the events of a type in a partition."""
        return [each for each in self.files if each.bounds == bounds and each.entity_type == entity_type]

    def replaced(self, bounds: Bounds, entity_type: str, files: Iterable[ArchivedFile]) -> Manifest:
        """With other files for the events of a type in a partition."""
        kept = [each for each in self.files if (each.bounds, each.entity_type) != (bounds, entity_type)]
        both = sorted([*kept, *files], key=lambda each: (each.bounds, each.entity_type, each.date, each.path))
        return replace(self, files=tuple(both))

    def partitions(self) -> dict[tuple[Bounds, str], list[ArchivedFile]]:
        """The files of each type in each partition."""
        found: dict[tuple[Bounds, str], list[ArchivedFile]] = {}
        for each in self.files:
            found.setdefault((each.bounds, each.entity_type), []).append(each)
        return found

    def unnamed(self, directory: Path) -> list[str]:
        """Files that lie in the archive, and that it does not name."""
        known = {each.path for each in self.files}
        return [path for path in archived_paths(directory) if path not in known]


def newest_former(directory: Path) -> Manifest:
    """The newest manifest that can be read, of all that are kept; an empty one where none can."""
    found = []
    for path in (directory / NAME, *(_former(directory, version) for version in _former_versions(directory))):
        try:
            found.append(Manifest.read(path))
        except (ArchiveError, FileNotFoundError):
            continue
    return max(found, key=lambda each: each.version, default=Manifest())


def set_aside(directory: Path, manifest: Manifest) -> Manifest:
    """
    Make way for a manifest that is to be written over one that is damaged or old, which is kept under another name.

    The new one gets a version after all that are kept.
    """
    path = directory / NAME
    try:
        current = Manifest.read(path).version == manifest.version
    except FileNotFoundError:
        current = True
    except ArchiveError:
        current = False
    if not current:
        (directory / FORMER).mkdir(exist_ok=True)
        path.replace(directory / FORMER / f"set-aside-{uuid4().hex[:12]}.json")
    return replace(manifest, version=max([manifest.version, *_former_versions(directory)]))


def _former_versions(directory: Path) -> list[int]:
    return [int(path.stem) for path in (directory / FORMER).glob("*.json") if path.stem.isdecimal()]


def _former(directory: Path, version: int) -> Path:
    return directory / FORMER / f"{version:08}.json"


def _text(manifest: Manifest) -> str:
    assert manifest.exported_at is not None  # noqa: S101 - set by save()
    head: dict[str, Any] = {
        "format": FORMAT,
        "version": manifest.version,
        "exported_at": manifest.exported_at.isoformat(),
    }
    files = [to_values(each) for each in manifest.files]
    head["sha256"] = _checksum(head | {"files": files})
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in files)
    return json.dumps(head)[:-1] + f', "files": [\n{lines}\n]}}\n'


def _checksum(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".new")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_directory(path.parent)


def _lost(directory: Path, former: list[int]) -> ArchiveError:
    paths = archived_paths(directory)
    if not paths and not former:
        return ArchiveError(
            f"{directory} is not an archive: it has no {NAME}; `projections archive export` makes one"
        )
    named = ", ".join(paths[:_NAMED]) + (f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else "")
    return ArchiveError(
        f"{directory} has {len(paths):,} archived files, and no {NAME} that names them: {named or 'none'}. They may be "
        f"the only copy, so nothing is written. {_mend(directory)}"
    )


def _mend(directory: Path) -> str:
    return f"Run `projections archive repair {directory}`, which makes it again from what is kept and from the files"
