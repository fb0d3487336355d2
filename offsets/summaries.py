"""How many ranges of each projection are alike: of a hundred projections with a thousand ranges each, a few rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from journal import EntityTypes, Session
from offsets.management import Mode

_ALIKE = """
SELECT r.projection_id, r.alive, r.failing, r.parked, r.ranges, r.handled, r.owners
FROM projections._ranges_alike_v1() AS r
"""
_PROJECTIONS = """
SELECT
    p.projection_id, projections._part_name_v1(p.name, p.journal) AS name, p.entity_types, p.version, p.mode, p.paused,
    p.journal
FROM projections.projections AS p ORDER BY p.name, p.projection_id
"""


class RangesAlike(NamedTuple):
    """Ranges of a projection of which the same is true."""

    alive: bool
    """Whether they are owned, and the owner's lease runs."""
    failing: bool
    """Whether they have failed, and were not handled since."""
    parked: bool
    """Whether they have sources that wait for a decision."""
    ranges: int
    """How many they are."""
    handled: int
    """Events that they have handled since the projection was made."""
    owners: Sequence[str]
    """The workers that hold them and are alive."""


class ProjectionSummary(NamedTuple):
    """A projection, or the part of it that reads one of its journals, and how many of its ranges are alike."""

    projection_id: int
    name: str
    """Of a part, ``NAME@JOURNAL``."""
    entity_types: EntityTypes
    version: int
    mode: Mode
    paused: bool
    journal: str | None
    """The name of the journal that it reads, where that is in another database."""
    ranges: Sequence[RangesAlike]


async def summaries(session: Session) -> list[ProjectionSummary]:
    """All projections, by name; in two statements, whose answers do not grow with the number of ranges."""
    rows = await session.fetch(_PROJECTIONS)
    alike: dict[int, list[RangesAlike]] = {row["projection_id"]: [] for row in rows}
    for row in await session.fetch(_ALIKE):
        number, *found = row.values()
        if number in alike:  # else it was made since
            alike[number].append(RangesAlike(*found))
    return [
        ProjectionSummary(
            row["projection_id"], row["name"], EntityTypes.stored(row["entity_types"]), row["version"],
            row["mode"], row["paused"], row["journal"], alike[row["projection_id"]],
        )
        for row in rows
        if alike[row["projection_id"]]  # else it was removed since
    ]  # fmt: skip
