"""What tests of loading history share: records, files of them, and the load."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_projections.backfill.backfill import Backfilled, backfill
from spark_projections.backfill.rows import Mapped

START = datetime(2020, 1, 1, tzinfo=UTC)
PAYLOAD = '{"z": 1.0,  "a": "ü\\u00e9", "e": 1E2}'


def record(source_id: str = "N1", number: int = 1, **values: Any) -> dict[str, Any]:
    at = START + timedelta(hours=number)
    return {"source_id": source_id, "event_type": "Landed", "payload": PAYLOAD, "db_timestamp": at, **values}


def sources(count: int, events: int, **values: Any) -> list[dict[str, Any]]:
    """Events of many sources, those of one source far from one another and backwards."""
    return [record(f"N{n}", number, **values) for number in range(events, 0, -1) for n in range(count)]


def write(path: Path, records: Iterable[dict[str, Any]]) -> Path:
    """By the ending of the name."""
    rows = list(records)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=50)
        return path
    texts = [{k: v.isoformat() if isinstance(v, datetime) else v for k, v in row.items()} for row in rows]
    if path.suffix == ".json":
        path.write_text("".join(json.dumps(row) + "\n" for row in texts))
        return path
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(texts[0]))
        writer.writeheader()
        writer.writerows(
            {k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()} for row in texts
        )
    return path


def load(dsn: str, *files: Path, columns: dict[str, str] | None = None, **options: Any) -> Backfilled:
    format_: Any = files[0].suffix[1:]
    return backfill(dsn, files, Mapped("plane", format_, columns or {}), **{"processes": 1, **options})
