"""Where the SQL files are, and what the objects are named that they make."""

from __future__ import annotations

from functools import cache
from pathlib import Path


def sql_root() -> Path:
    """The folder of the SQL files: inside the installed package, or ``sql/`` of a checkout."""
    packaged = Path(__file__).parent / "_sql_files"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "sql"


@cache
def object_names() -> frozenset[str]:
    """The tables, views and functions of the schema: each is in a file of its name."""
    folders = ("tables", "views", "functions")
    return frozenset(path.stem for folder in folders for path in (sql_root() / folder).rglob("*.sql"))
