"""
What an archive holds: the files, what each was made from, and checksums of both.

The manifest is the archive: a file that it does not name is left over from an export that broke. It is replaced
whole, by a rename, after the files that it names are on the disk.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from journal import SliceRange
from journal.errors import ProjectionsError

__all__ = [
    "ArchiveError",
    "ArchivedFile",
    "Bounds",
    "Manifest",
    "content_of",
    "content_sql",
    "directory_of",
    "locked",
    "sha256_of",
]

FORMAT = 1
# Spark, pyarrow and DuckDB pass by what begins with an underscore when they are given the directory itself.
NAME = "_manifest.json"
_LOCK = "_lock"
_LONGEST_NAME = 200
_ESCAPED = set("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_BLOCK = 1 << 20
_ABSENT = "\x1e"
_BETWEEN = "\x1f"


class ArchiveError(ProjectionsError):
    """An archive can not be used as it is, or can not take what is to be put into it."""


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
        entity_type: Whose events it holds.
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
        content: Checksum of the events, which the database can compute too: see :func:`content_sql`.
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


@dataclass(frozen=True, slots=True)
class Manifest:
    """
    The files of an archive.

    Args:
        files: All of them.
        exported_at: When it was written last; None when there is none yet.
    """

    files: tuple[ArchivedFile, ...] = ()
    exported_at: datetime | None = None

    @classmethod
    def load(cls, directory: Path) -> Manifest:
        """
        Read the manifest of a directory.

        Raises:
            ArchiveError: There is none, or this version can not read it.
        """
        path = directory / NAME
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values["format"] != FORMAT:
                raise ArchiveError(
                    f"{path} has the format {values['format']!r}, this version reads {FORMAT}: "
                    "use the version of slice-projections that wrote it"
                )
            files = tuple(_file(each) for each in values["files"])
            return cls(files, datetime.fromisoformat(values["exported_at"]))
        except FileNotFoundError:
            raise ArchiveError(
                f"{directory} is no archive: it has no {NAME}; `projections archive export` makes one"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise ArchiveError(f"{path} can not be read, {error!r}: restore it from a backup") from error

    @classmethod
    def load_or_new(cls, directory: Path) -> Manifest:
        """Like :meth:`load`; where there is no archive yet, an empty one."""
        return cls.load(directory) if (directory / NAME).exists() else cls()

    def save(self, directory: Path) -> None:
        """Replace the manifest of a directory; after a crash there is the old one or the new one."""
        draft = directory / (NAME + ".new")
        head = {"format": FORMAT, "exported_at": datetime.now(UTC).isoformat()}
        lines = ",\n".join(json.dumps(_values(each), ensure_ascii=False) for each in self.files)
        with draft.open("w", encoding="utf-8") as file:
            file.write(json.dumps(head)[:-1] + f', "files": [\n{lines}\n]}}\n')
            file.flush()
            os.fsync(file.fileno())
        draft.replace(directory / NAME)
        sync_directory(directory)

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


def _values(file: ArchivedFile) -> dict[str, Any]:
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


def _file(values: dict[str, Any]) -> ArchivedFile:
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


def directory_of(entity_type: str, day: date) -> str:
    """Where files of a type and a day go: ``entity_type=…/date=…``, escaped as Hive and Spark do."""
    escaped = "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in entity_type)
    if len(escaped.encode()) > _LONGEST_NAME:  # a file system takes 255 bytes
        digest = hashlib.sha256(entity_type.encode()).hexdigest()[:16]
        escaped = f"{escaped.encode()[:100].decode(errors='ignore')}~{digest}"
    return f"entity_type={escaped}/date={day.isoformat()}"


def content_sql(row: str = "e") -> str:
    """
    SQL for the checksum of the rows of ``projections.events`` in a query: a number that adds up over parts.

    Each row counts with 56 bits of the SHA-256 of its columns, text as it is stored, so the order of rows and the
    cut into files do not matter. It is the same number on every version of PostgreSQL, and in :func:`content_of`.

    Args:
        row: How the query calls a row.
    """
    text = ", ".join(
        (
            f"{row}.source_id, {row}.seq_nr, (extract(epoch FROM {row}.db_timestamp) * 1000000)::bigint, {row}.slice",
            f"{row}.event_id, {row}.entity_type, {row}.event_type, {row}.version, {row}.payload::text",
            f"coalesce({row}.metadata::text, E'\\x1e'), coalesce(array_to_string({row}.tags, E'\\x1f'), E'\\x1e')",
        )
    )
    digest = f"sha256(convert_to(concat_ws(E'\\n', {text}), 'UTF8'))"
    return f"coalesce(sum(('x' || encode(substring({digest} FROM 1 FOR 7), 'hex'))::bit(56)::bigint), 0)"


def content_of(batch: pa.RecordBatch | pa.Table) -> int:
    """The checksum of :func:`content_sql` for rows with all columns in their order."""
    columns = [batch.column(name) for name in batch.schema.names]
    columns[2] = columns[2].cast(pa.int64())
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return sum(
        int.from_bytes(hashlib.sha256("\n".join(map(_text, row)).encode()).digest()[:7], "big")
        for row in rows
    )


def _text(value: Any) -> str:
    if value is None:
        return _ABSENT
    return _BETWEEN.join(value) if isinstance(value, list) else str(value)


def sha256_of(path: Path) -> str:
    """Checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(directory: Path, file: ArchivedFile) -> Path:
    """
    Where a file is.

    Raises:
        ArchiveError: It is gone, or not as long as it was.
    """
    path = directory / file.path
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ArchiveError(f"{path} can not be read ({error.strerror}): restore it from a backup") from error
    if size != file.bytes:
        raise ArchiveError(f"{path} has {size:,} bytes, not {file.bytes:,}: restore it from a backup")
    return path


def open_file(path: Path) -> pq.ParquetFile:
    """
    Open a file of an archive; reading checks the checksum of every page.

    Raises:
        ArchiveError: It is no Parquet file any more.
    """
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise ArchiveError(f"{path} can not be read, {error}: restore it from a backup") from error


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """
    Keep others from changing an archive for the length of the block; the kernel ends that with the process.

    Raises:
        ArchiveError: Somebody else is changing it, or the directory can not be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / _LOCK).open("a+")
    except OSError as error:
        raise ArchiveError(f"{directory} can not be written: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise ArchiveError(
                f"another export into {directory} is at work, process {file.read() or 'unknown'}: "
                "wait for its end, or choose another directory"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def sync_directory(directory: Path) -> None:
    """Make the names of files in a directory last."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
