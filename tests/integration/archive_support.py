"""What tests of the archive share: a journal of three days, and looks at what it holds."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from journal import Database, HistoricEvent, RawJson, import_events
from journal.database.sync import connect_sync
from journal.partitions import make_partitions
from spark_projections.archive.export import Exported, export_archive
from tests.fixtures.commands import environment

DAY = datetime(2020, 1, 1, tzinfo=UTC)

ONE_DAY = timedelta(days=1)

SOURCES = 12


def history(
    first: int = 1, last: int = 30, entity_type: str = "plane", prefix: str = "N"
) -> Iterator[HistoricEvent]:
    """Ten events a day of each source: ties over sources, NULLs, unicode, text that no parser would write back."""
    for number in range(first, last + 1):
        for source in range(SOURCES):
            yield HistoricEvent(
                f"{prefix}{source}é",
                RawJson(f'{{"z": 1.0,  "a":"ü\\u00e9{number}", "e": 1E2}}'),
                entity_type,
                "Landed" if number % 2 else "Happened",
                version=1 + number % 3,
                tags=["a,b", 'q"uote', "\\"] if number % 3 == 0 else (),
                metadata={"by": None} if source % 2 else None,
                seq_nr=number,
                db_timestamp=DAY + timedelta(hours=2.4 * (number - 1), microseconds=source // 3),
            )


def export(dsn: str, archive: Path, **options: Any) -> Exported:
    return export_archive(dsn, archive, **{"processes": 1, **options})


def query(dsn: str, sql: str, *args: Any) -> list[tuple[Any, ...]]:
    with connect_sync(dsn) as connection:
        return connection.execute(sql, args or None).fetchall()


def change(dsn: str, *statements: str) -> None:
    with connect_sync(dsn) as connection:
        for statement in statements:
            connection.execute(statement)


def rows(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def by_source(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: (row["source_id"].encode(), row["seq_nr"]))


def everything(dsn: str) -> list[tuple[Any, ...]]:
    return query(dsn, "SELECT e::text FROM projections.events AS e ORDER BY e.source_id, e.seq_nr")


def partitions(dsn: str) -> list[str]:
    found = query(
        dsn, "SELECT name FROM projections.partitions WHERE to_timestamp < now() ORDER BY from_timestamp"
    )
    return [name for (name,) in found]


def drop(dsn: str, name: str) -> None:
    change(
        dsn,
        f"ALTER TABLE projections.events DETACH PARTITION projections.{name}",
        f"DROP TABLE projections.{name}",
    )


def drop_all(dsn: str) -> None:
    for name in partitions(dsn):
        drop(dsn, name)


def killed(program: str, *arguments: str | Path) -> None:
    """Run a program that kills itself with SIGKILL on its way."""
    head = "import os, signal, sys\nfrom pathlib import Path\nkill = lambda: os.kill(os.getpid(), signal.SIGKILL)\n"
    done = subprocess.run(
        [sys.executable, "-c", head + program, *map(str, arguments)],
        env=environment(),
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


async def filled(database: Database) -> Database:
    """Three days of events, each day in a partition of its own."""
    await import_events(database, history())
    await import_events(database, history(last=10, entity_type="ship/of=war %", prefix="S"))
    await make_partitions(database, ahead=1)
    return database
