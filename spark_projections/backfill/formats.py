"""Rows of files as events of the past, checked one by one; an error names the file, the row and what to do."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import to_json

from journal import (
    BEGINNING,
    LONGEST_INTEGER,
    MAX_PAYLOAD_BYTES,
    HistoricEvent,
    InvalidEvent,
    ProjectionsError,
    RawJson,
    event_row,
    slice_of,
)
from spark_projections.backfill.mapping import FIELDS, REQUIRED, Mapped

_BATCH = 4096
_TEXTS = json.JSONDecoder(parse_int=str, parse_float=str)
_SPACE = re.compile(r"[ \t\n\r]*")
_END = datetime(9999, 1, 1, tzinfo=UTC)
_Raw: TypeAlias = "tuple[int, Mapping[str, Any]]"


class BadRow(ProjectionsError):
    """A row of a file that is not an event, or a file that cannot be read."""


class HistoricRow(NamedTuple):
    """An event of a file. A tuple of plain values: it is shuffled and spilled to disk by the million."""

    source_id: str
    seq_nr: int | None
    db_timestamp: datetime
    event_type: str
    version: int
    payload: str
    metadata: str | None
    tags: tuple[str, ...]
    event_id: UUID | None
    file: str
    row: int

    @property
    def place(self) -> str:
        """Where it stands, for people."""
        return f"{self.file}, row {self.row}"

    def key(self) -> tuple[int, str, int, datetime]:
        """Its place in the order in which rows are imported."""
        return slice_of(self.source_id), self.source_id, self.seq_nr or 0, self.db_timestamp


class FilePart(NamedTuple):
    """What one task reads: a file, or a row group of a Parquet file."""

    path: str
    row_group: int | None = None
    first_row: int = 1


def file_parts(path: Path, mapped: Mapped) -> list[FilePart]:
    """Cut a file into what tasks can read side by side; looks at its columns where it tells them (else BadRow)."""
    with _readable(str(path)):
        if mapped.format != "parquet":
            with path.open("rb"):
                return [FilePart(str(path))]
        with pq.ParquetFile(path) as file:
            _check_columns(str(path), mapped, file.schema_arrow.names)
            _check_zone(str(path), mapped, file.schema_arrow)
            parts, row = [], 1
            for group in range(file.num_row_groups):
                parts.append(FilePart(str(path), group, row))
                row += file.metadata.row_group(group).num_rows
            return parts


def _check_columns(path: str, mapped: Mapped, names: list[str]) -> None:
    missing = [name for name in REQUIRED if mapped.column(name) not in names]
    missing += [name for name in mapped.columns if mapped.column(name) not in names]
    if missing:
        raise BadRow(
            f"{path}: no column {mapped.column(missing[0])!r} for {missing[0]}: say which it is with "
            f"--map COLUMN={missing[0]}; the file has {', '.join(names)[:300]}"
        )


def _check_zone(path: str, mapped: Mapped, schema: pa.Schema) -> None:
    kind = schema.field(mapped.column("db_timestamp")).type
    if pa.types.is_timestamp(kind) and kind.tz is None:
        raise BadRow(
            f"{path}: column {mapped.column('db_timestamp')!r} has naive timestamps: write it with a time zone, "
            "such as timestamp[us, UTC]"
        )


def read_rows(part: FilePart, mapped: Mapped) -> Iterator[HistoricRow]:
    """Read and check the rows of a part; BadRow: the file cannot be read, or a row is not an event."""
    with _readable(part.path):
        for number, values in _raw_rows(part, mapped):
            try:
                yield _row(part.path, number, values, mapped)
            except (ValueError, TypeError, RecursionError, InvalidEvent) as error:
                source = values.get(mapped.column("source_id"))
                named = f" (source {source!r:.80})" if source and "source " not in str(error) else ""
                raise BadRow(f"{part.path}, row {number}{named}: {error}") from error


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Raise what libraries raise for a file that cannot be read as BadRow."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadRow(f"{path} cannot be read: {error}") from error


def _raw_rows(part: FilePart, mapped: Mapped) -> Iterator[_Raw]:
    as_written = {mapped.column("payload"), mapped.column("metadata")}
    match mapped.format:
        case "parquet":
            return _parquet(part, mapped, as_written)
        case "csv":
            return _csv(part, mapped)
        case "json":
            return _json(part, as_written)


def _parquet(part: FilePart, mapped: Mapped, as_written: set[str]) -> Iterator[_Raw]:
    with pq.ParquetFile(part.path) as file:
        wanted = [mapped.column(name) for name in FIELDS if mapped.column(name) in file.schema_arrow.names]
        groups = None if part.row_group is None else [part.row_group]
        number = part.first_row
        kinds = {name: file.schema_arrow.field(name).type for name in as_written.intersection(wanted)}
        exact = {
            name: kind
            for name, kind in kinds.items()
            if pa.types.is_nested(kind) or pa.types.is_decimal(kind)
        }
        for batch in file.iter_batches(_BATCH, row_groups=groups, columns=wanted):
            for values in batch.to_pylist():
                texts = {
                    name: _written(kind, values[name])
                    for name, kind in exact.items()
                    if values[name] is not None
                }
                yield number, values | texts
                number += 1


def _written(kind: pa.DataType, value: Any) -> str:
    """A value of a Parquet file as JSON: decimals are numbers with all their digits, maps are objects."""
    if value is None:
        return "null"
    if pa.types.is_decimal(kind):
        return f"{value:f}"
    if pa.types.is_struct(kind):
        return _object((f.name, _written(f.type, value[f.name])) for f in kind)
    if pa.types.is_map(kind):
        return _object((str(key), _written(kind.item_type, item)) for key, item in value)
    if pa.types.is_nested(kind):
        return f"[{','.join(_written(kind.value_type, each) for each in value)}]"
    return to_json(value, inf_nan_mode="constants").decode()


def _object(members: Iterable[tuple[str, str]]) -> str:
    return f"{{{','.join(f'{to_json(name).decode()}:{text}' for name, text in members)}}}"


def _csv(part: FilePart, mapped: Mapped) -> Iterator[_Raw]:
    csv.field_size_limit(2 * MAX_PAYLOAD_BYTES)  # a quote in JSON is two in CSV
    with Path(part.path).open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, strict=True)
        _check_columns(part.path, mapped, list(rows.fieldnames or ()))
        for number, values in enumerate(rows, part.first_row):
            if None in values or None in values.values():
                raise BadRow(f"{part.path}, row {number}: it has not as many fields as the header")
            yield number, {name: value or None for name, value in values.items()}


def _json(part: FilePart, as_written: set[str]) -> Iterator[_Raw]:
    with Path(part.path).open(encoding="utf-8") as file:
        for number, line in enumerate(file, part.first_row):
            if not line.strip():
                continue
            try:
                values = json.loads(line, parse_int=_number)
            except RecursionError:
                raise BadRow(
                    f"{part.path}, row {number}: it is nested too deeply: leave the row out"
                ) from None
            except ValueError as error:
                raise BadRow(
                    f"{part.path}, row {number}: {error}: every line must be one JSON object"
                ) from None
            if not isinstance(values, dict):
                raise BadRow(
                    f"{part.path}, row {number}: it is not a JSON object: every line must be one, not part of a list"
                )
            if any(isinstance(values.get(name), dict | list | float | int) for name in as_written):
                # Read and written again, a number would be another one.
                texts = _texts(line)
                for name in as_written & values.keys():
                    if values[name] is not None and not isinstance(values[name], str):
                        values[name] = texts[name]
            yield number, values


def _number(text: str) -> int | float:
    """An integer; one that is too long to be one, a float: a payload is checked by its text, and says so then."""
    return int(text) if len(text) <= LONGEST_INTEGER else float(text)


def _texts(line: str) -> dict[str, str]:
    """The members of a JSON object as they are written; the line is one."""
    found: dict[str, str] = {}
    at = _behind_space(line, line.index("{") + 1)
    while line[at] != "}":
        name, at = _TEXTS.raw_decode(line, at)
        start = _behind_space(line, _behind_space(line, at) + 1)  # the colon is between
        _, end = _TEXTS.raw_decode(line, start)
        found[name] = line[start:end]
        at = _behind_space(line, end)
        if line[at] == ",":
            at = _behind_space(line, at + 1)
    return found


def _behind_space(line: str, at: int) -> int:
    found = _SPACE.match(line, at)
    return at if found is None else found.end()


def _row(path: str, number: int, values: Mapping[str, Any], mapped: Mapped) -> HistoricRow:
    found = {name: values.get(mapped.column(name)) for name in FIELDS}
    for name in REQUIRED:
        if found[name] is None or found[name] == "":
            column = mapped.column(name)
            raise ValueError(f"no {name}: column {column!r} is empty; give it a value, or leave the row out")
    if found["entity_type"] not in {None, mapped.entity_type}:
        raise ValueError(
            f"it is of entity type {found['entity_type']!r}, not {mapped.entity_type!r}: import each type by itself"
        )
    row = HistoricRow(
        source_id=_text(found["source_id"], "source_id"),
        seq_nr=None if found["seq_nr"] is None else _integer(found["seq_nr"], "seq_nr"),
        db_timestamp=_time(found["db_timestamp"]),
        event_type=_text(found["event_type"], "event_type"),
        version=1 if found["version"] is None else _integer(found["version"], "version"),
        payload=_json_text(found["payload"]),
        metadata=None if found["metadata"] is None else _json_text(found["metadata"]),
        tags=_tags(found["tags"]),
        event_id=_uuid(found["event_id"]),
        file=path,
        row=number,
    )
    event_row(event_of(row, mapped.entity_type, row.seq_nr or 1))
    return row


def event_of(row: HistoricRow, entity_type: str, seq_nr: int) -> HistoricEvent:
    """The event to import."""
    metadata: Any = None if row.metadata is None else RawJson(row.metadata)
    return HistoricEvent(
        row.source_id,
        RawJson(row.payload),
        entity_type,
        row.event_type,
        version=row.version,
        tags=row.tags,
        metadata=metadata,
        event_id=row.event_id,
        seq_nr=seq_nr,
        db_timestamp=row.db_timestamp,
    )


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, not {value!r:.80}")
    return value


def _integer(value: Any, name: str) -> int:
    if isinstance(value, str):
        value = _number(value.strip()) if value.strip().lstrip("-").isdecimal() else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number from 1 on")
    return value


def _time(value: Any) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f"db_timestamp {value!r:.80} is not an ISO time, such as 2026-01-31T12:00:00Z"
            ) from None
    if not isinstance(value, datetime):
        raise TypeError(f"db_timestamp must be a time, not {value!r:.80}")
    if value.utcoffset() is None:
        raise ValueError(f"db_timestamp {value} is naive: give it a time zone, such as 2026-01-31T12:00:00Z")
    if not BEGINNING < value < _END:
        raise ValueError(f"db_timestamp {value} is not between the years 1970 and {_END.year - 1}")
    return value


def _json_text(value: Any) -> str:
    """Text stays as it is, byte for byte; what Parquet holds as values is written as JSON."""
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, str) else to_json(value, inf_nan_mode="constants").decode()


def _tags(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError(
                f'tags must be a JSON list of texts, such as ["a", "b"], not {value!r:.80}'
            ) from None
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise ValueError(f"tags must be a list of texts, not {value!r:.80}")
    return tuple(value)


def _uuid(value: Any) -> UUID | None:
    if value is None or isinstance(value, UUID):
        return value
    try:
        return UUID(str(value)) if not isinstance(value, bytes) else UUID(bytes=value)
    except ValueError:
        raise ValueError(f"event_id {value!r:.80} is not a UUID") from None
