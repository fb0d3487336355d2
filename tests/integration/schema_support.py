"""What the tests of the schema share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from journal import schema
from journal.database.sync import connect_sync
from journal.schema.catalogue import Catalogue, read_catalogue

APPEND = "SELECT * FROM projections.append_event_v1('plane-1', 'plane', 'Landed', '{}')"
REFUSED = "permission denied"
DATA = "SELECT * FROM projections.events, projections.schema_versions"
NEWER = r"newer than this library's \d+: upgrade the library"
OLDER = r"older than this library's \d+: run `projections schema upgrade`"


def run(dsn: str, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
    with connect_sync(dsn) as connection:
        cursor = connection.execute(statement.encode(), arguments)
        return cursor.fetchall() if cursor.description else []


def catalogue(dsn: str) -> Catalogue:
    with connect_sync(dsn) as connection:
        return read_catalogue(connection, schema.sql_root())


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
