"""What a schema consists of, as PostgreSQL prints it, and how two of them differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from journal.database.sync import SyncConnection

_SHORT = 160
"""Characters up to which a difference shows both definitions."""

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


def compare(found: Catalogue, expected: Catalogue) -> list[str]:
    """A line for each thing that is missing, unexpected or different, in the order of their names."""
    lines = _differences(found.things, expected.things)
    for (model, member), things in sorted(found.members.items()):
        against = (_differences(things, one, f" of {member}") for one in expected.models.get(model) or [{}])
        nearest: list[str] = min(against, key=len)
        lines += nearest
    return lines


def _differences(found: Mapping[str, str], expected: Mapping[str, str], suffix: str = "") -> list[str]:
    return [
        _difference(name + suffix, found.get(name), expected.get(name))
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
