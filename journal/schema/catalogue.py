"""What a schema consists of, as PostgreSQL prints it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from journal.database.sync import SyncConnection

Things = dict[str, str]
"""Definitions by name."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What is in a schema."""

    things: Things = field(default_factory=dict)
    """All that is always there."""
    models: dict[str, list[Things]] = field(default_factory=dict)
    """By kind of what comes and goes, such as the partitions of a table: how one of it may look."""
    members: dict[tuple[str, str], Things] = field(default_factory=dict)
    """What comes and goes, by its kind and its name."""


def read_catalogue(connection: SyncConnection, root: Path, *, schema: str = "projections") -> Catalogue:
    """
    The definition of everything in a schema.

    Args:
        connection: With a transaction open; its search_path and time zone are set to the end of it.
        root: The folder of the SQL files.
        schema: The schema to describe; its name is printed as ``projections``.
    """
    connection.execute(
        "SELECT set_config('projections.described', %s, TRUE), set_config('search_path', '', TRUE), "
        "set_config('timezone', 'UTC', TRUE), set_config('datestyle', 'ISO', TRUE), set_config('jit', 'off', TRUE)",
        [schema],
    )
    asked = connection.execute(f"SELECT condition_id, sql FROM {schema}.conditions".encode())
    conditions: dict[int, str] = dict(asked.fetchall())
    # Each has a function, or it is missing.
    found = Catalogue(members={("conditions", f"condition_{number}"): {} for number in conditions})
    defaults: dict[str, Things] = {}
    for model, member, *printed in connection.execute((root / "catalogue.sql").read_bytes()).fetchall():
        name, definition = (text.replace(schema, "projections") for text in printed)
        if member is None:
            found.things[name] = definition
            if model is not None:
                defaults.setdefault(model, {})[name] = definition
        elif model == "conditions":
            found.members.setdefault((model, member), {})[name] = _as_any(definition, member, conditions)
        else:
            found.members.setdefault((model, member), {})[name] = definition
    found.models.update({model: [things] for model, things in defaults.items()})
    found.models["conditions"] = [
        things for (model, _), things in found.members.items() if model == "conditions"
    ]
    return found


def _as_any(definition: str, function: str, conditions: Mapping[int, str]) -> str:
    """The function of a condition without what differs from one to the next: its number, and the condition."""
    number = int(function.removeprefix("condition_"))
    for own, anyones in (
        (f".{function}(", ".condition_N("),
        (f"condition_id = {number} AND", "condition_id = N AND"),
        (f"({conditions.get(number)}\n)", "(CONDITION\n)"),
    ):
        definition = definition.replace(own, anyones)
    return definition
