"""What a schema consists of, as PostgreSQL prints it, and how two of them differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from journal.drivers.sync import SyncConnection

_SHORT = 160
"""Characters up to which a difference shows both definitions."""


def read_catalogue(connection: SyncConnection, root: Path, *, schema: str = "projections") -> dict[str, str]:
    """
    The definition of every table, column, constraint, index, view, function and grant by its name.

    Args:
        connection: With a transaction open; its search_path and time zone are set to the end of it.
        root: The folder of the SQL files.
        schema: The schema to describe; its name is printed as ``projections``.
    """
    connection.execute(
        "SELECT set_config('projections.described', %s, TRUE), set_config('search_path', '', TRUE), "
        "set_config('timezone', 'UTC', TRUE), set_config('datestyle', 'ISO', TRUE)",
        [schema],
    )
    rows = connection.execute((root / "catalogue.sql").read_bytes()).fetchall()
    return {name.replace(schema, "projections"): text.replace(schema, "projections") for name, text in rows}


def compare(found: Mapping[str, str], expected: Mapping[str, str]) -> list[str]:
    """A line for each thing that is missing, unexpected or different, in the order of their names."""
    return [
        _difference(name, found.get(name), expected.get(name))
        for name in sorted({*found, *expected})
        if found.get(name) != expected.get(name)
    ]


def _difference(name: str, found: str | None, expected: str | None) -> str:
    if found is None:
        return f"missing: {name}"
    if expected is None:
        return f"unexpected: {name}"
    if max(len(found), len(expected)) > _SHORT:
        return f"different: {name}"
    return f"different: {name} is {found!r}, should be {expected!r}"
