"""What is kept of a projection for people: what happened to its ranges, and its read models in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from journal import Session

_CHANGES = """
SELECT c.changed_at, c.kind, c.ranges, c.ranges_before, c.taken_from, c.taken_by
FROM projections.range_changes AS c WHERE c.projection_id = $1 ORDER BY c.change_id DESC
"""
_READ_MODELS = """
SELECT m.name, m.table_name, m.statement
FROM projections.read_models AS m INNER JOIN projections.projections AS p USING (projection_id, version)
WHERE m.projection_id = $1 ORDER BY m.name
"""
_NOTE_READ_MODELS = "SELECT projections._note_read_models_v1($1, $2, $3, $4, $5)"


class RangeChange(NamedTuple):
    """Ranges of a projection were cut again, or taken over from a worker."""

    changed_at: datetime
    kind: Literal["rescaled", "taken over", "taken by order"]
    ranges: int
    """Into how many ranges the slices were cut, or how many were taken over."""
    ranges_before: int | None
    """How many there were before a cut."""
    taken_from: str | None
    """The worker whose lease had ended."""
    taken_by: str | None


class NotedReadModel(NamedTuple):
    """A read model in SQL, as the workers have it."""

    name: str
    """What the class of the projection calls it."""
    table: str
    """The table that it fills."""
    text: str


async def range_changes(session: Session, projection_id: int) -> list[RangeChange]:
    """What happened to the ranges of a projection, the newest first; the database keeps 50 of each."""
    return [RangeChange(*row.values()) for row in await session.fetch(_CHANGES, projection_id)]


async def read_models(session: Session, projection_id: int) -> list[NotedReadModel]:
    """The statements of the read models of a projection in its current version, by name."""
    return [NotedReadModel(*row.values()) for row in await session.fetch(_READ_MODELS, projection_id)]


async def note_read_models(
    session: Session, projection_id: int, version: int, noted: Sequence[NotedReadModel]
) -> None:
    """Note the statements of a version of a projection in place of those that were noted of it before."""
    columns = [[*column] for column in zip(*noted, strict=True)]
    await session.execute(_NOTE_READ_MODELS, projection_id, version, *columns)
