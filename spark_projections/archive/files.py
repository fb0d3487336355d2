"""
One file of an archive: what it holds, where it is, and how its footer says so.

All that a manifest says of a file stands in the file's footer, too: a manifest that is lost is made again from those.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from journal import ProjectionsError, SliceRange

NOT_KNOWN = -1
"""In the place of an ``import_id``: nobody has compared these files with the journal, so there may be more."""

_FOOTER = b"slice-projections"
_OUTSIDE = ("path", "bytes", "sha256")
"""What a file cannot say of itself, and whoever looks at it sees."""
_LONGEST_NAME = 200
_ESCAPED = set("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}
_MICROSECOND = timedelta(microseconds=1)


class ArchiveError(ProjectionsError):
    """An archive cannot be used as it is, or cannot take what is to be put into it."""


@dataclass(frozen=True, slots=True, order=True)
class Bounds:
    """A span of time: from its first instant to the first instant after it."""

    from_timestamp: datetime
    to_timestamp: datetime

    def __str__(self) -> str:
        """Both instants, in UTC."""
        return f"{_shown(self.from_timestamp)} to {_shown(self.to_timestamp)} UTC"

    def overlaps(self, other: Bounds) -> bool:
        """Whether an instant is in both."""
        return self.from_timestamp < other.to_timestamp and other.from_timestamp < self.to_timestamp

    @property
    def last(self) -> datetime:
        """The last instant that a database can store in it."""
        return self.to_timestamp - _MICROSECOND

    def days(self) -> Iterator[Bounds]:
        """Cut at midnight, UTC."""
        start = self.from_timestamp
        while start < self.to_timestamp:
            midnight = datetime.combine(
                start.astimezone(UTC).date() + timedelta(days=1), datetime.min.time(), UTC
            )
            yield Bounds(start, min(midnight, self.to_timestamp))
            start = midnight


def _shown(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}".removesuffix(":00")


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """
    A file of an archive.

    Args:
        path: Where it is, from the archive's directory on.
        partition: The table partition that it was exported from.
        bounds: Time bounds of that partition.
        entity_type: The type of the events that it holds.
        date: Their day, in UTC.
        slices: The range that was exported into it.
        rows: Its events.
        min_seq_nr: Their lowest number.
        max_seq_nr: Their highest.
        min_timestamp: Their first ``db_timestamp``.
        max_timestamp: Their last.
        slice_counts: Events of each slice, from the first of ``slices`` on.
        first: Source and number of its first event, at the time ``first_at``: whoever has that one has all.
        first_at: See ``first``.
        bytes: Its size.
        sha256: Checksum of the file.
        content: Checksum of the events, which the database can compute too: ``_content_of_events_v1``.
        import_id: The last import that the export could see.
    """

    path: str
    partition: str
    bounds: Bounds
    entity_type: str
    date: date
    slices: SliceRange
    rows: int
    min_seq_nr: int
    max_seq_nr: int
    min_timestamp: datetime
    max_timestamp: datetime
    slice_counts: tuple[int, ...]
    first: tuple[str, int]
    first_at: datetime
    bytes: int
    sha256: str
    content: int
    import_id: int

    def count(self, slices: SliceRange) -> int:
        """Events of a range of slices."""
        low = self.slices.min_slice
        return sum(self.slice_counts[max(0, slices.min_slice - low) : max(0, slices.max_slice - low + 1)])


def to_values(file: ArchivedFile) -> dict[str, Any]:
    """A file as JSON."""
    # Sums are beyond what many readers of JSON take for a number.
    return {
        name: str(value) if name == "content" else _plain(value)
        for name, value in asdict(file).items()
    }  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return [_plain(each) for each in value.values()]
    return value


def from_values(values: dict[str, Any]) -> ArchivedFile:
    """A file of what :func:`to_values` has made."""
    given = {each.name: values[each.name] for each in fields(ArchivedFile)}
    time = datetime.fromisoformat
    return ArchivedFile(
        **given
        | {
            "bounds": Bounds(*map(time, given["bounds"])),
            "date": date.fromisoformat(given["date"]),
            "slices": SliceRange(*given["slices"]),
            "slice_counts": tuple(given["slice_counts"]),
            "first": (str(given["first"][0]), int(given["first"][1])),
            "content": int(given["content"]),
        }
        | {name: time(given[name]) for name in ("min_timestamp", "max_timestamp", "first_at")}
    )


def to_footer(file: ArchivedFile) -> dict[bytes, bytes]:
    """What a file says of itself, for its footer."""
    values = {name: value for name, value in to_values(file).items() if name not in _OUTSIDE}
    return {_FOOTER: json.dumps(values, ensure_ascii=False).encode()}


def footer_of(directory: Path, path: str) -> ArchivedFile:
    """What a file says of itself; ArchiveError: it is not a Parquet file, or none that an export has described."""
    try:
        with open_file(directory / path) as opened:
            text = (opened.metadata.metadata or {}).get(_FOOTER)
    except ArchiveError as error:
        raise ArchiveError(
            f"{error}. If an export was stopped while it gave this file its name, there is no backup and no need of "
            "one: move it out of the archive, and the next export writes those events again"
        ) from error
    if text is None:
        raise ArchiveError(
            f"{path}: its footer does not say what it holds: another program wrote it, or an older version of this "
            "one. Put back a manifest that names it, or move it out of the archive; `projections backfill` reads it"
        )
    try:
        size = (directory / path).stat().st_size
        outside = {"path": path, "bytes": size, "sha256": sha256_of(directory / path)}
        return from_values(json.loads(text) | outside)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise ArchiveError(
            f"{path}: its footer cannot be read, {error!r}: restore it from a backup"
        ) from error


def archived_paths(directory: Path) -> list[str]:
    """The files that lie where files of an archive do, whether or not a manifest names them."""
    return sorted(
        str(path.relative_to(directory)) for path in directory.glob("entity_type=*/date=*/*.parquet")
    )


def directory_of(entity_type: str, day: date) -> str:
    """Where files of a type and a day go: ``entity_type=…/date=…``, escaped as Hive and Spark do."""
    escaped = "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in entity_type)
    if len(escaped.encode()) > _LONGEST_NAME:  # a file system takes 255 bytes
        digest = hashlib.sha256(entity_type.encode()).hexdigest()[:16]
        escaped = f"{escaped.encode()[:100].decode(errors='ignore')}~{digest}"
    return f"entity_type={escaped}/date={day.isoformat()}"


def sha256_of(path: Path) -> str:
    """Checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(directory: Path, file: ArchivedFile) -> Path:
    """Where a file is; ArchiveError: it is gone, or not as long as it was."""
    path = directory / file.path
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read ({error.strerror}): restore it from a backup") from error
    if size != file.bytes:
        raise ArchiveError(f"{path} has {size:,} bytes, not {file.bytes:,}: restore it from a backup")
    return path


def open_file(path: Path) -> pq.ParquetFile:
    """Open a Parquet file of an archive (else ArchiveError); reading checks the checksum of every page."""
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise ArchiveError(f"{path} cannot be read, {error}: restore it from a backup") from error
