"""Rebuilds that are unfinished, and the journals that projections read: what a monitor shows next to projections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import offsets
from journal import Session, SliceRange
from journal.foreign import attached_journals

_REBUILDS = """
SELECT
    projection_id, name, min_slice, max_slice, version, state, started_at, elapsed, parts, parts_done, events,
    events_of_done, error, led
FROM projections._rebuilds_under_way_v1()
"""
_TYPES = "SELECT projections._entity_types_v1() AS entity_type"


@dataclass(frozen=True, slots=True)
class UnfinishedRebuild:
    """A rebuild that is unfinished."""

    projection_id: int
    name: str
    """Of the projection."""
    slices: SliceRange
    version: int
    """Of the code that rebuilds."""
    state: str
    """``folding``, or ``verified`` when all is folded and compared, and is to be swapped in."""
    started_at: datetime
    elapsed: float
    """Seconds since it began, interruptions included."""
    parts: int
    parts_done: int
    events: int
    """Events that were folded."""
    events_of_done: int
    """Of these, those of the parts that are done."""
    error: str | None
    """Why one of the parts cannot go on."""
    led: bool
    """Whether a process leads it now; else it waits for somebody to run it again."""

    @property
    def remaining(self) -> float | None:
        """
        About how many seconds it still takes, at the speed until now.

        None where nothing says so yet: no part is done, so nobody knows how much a part is, or no process leads it.
        """
        if not self.led or not self.events_of_done:
            return None
        expected = self.events_of_done / self.parts_done * self.parts
        return self.elapsed * max(expected / self.events - 1, 0.0)


class JournalRead(NamedTuple):
    """A journal, and who reads it."""

    name: str | None
    """None for the one in the database of the projections."""
    kind: str
    """``own``; of one that is attached, the system that writes it; else ``named``: to workers, by --journal."""
    place: str | None
    """Where an attached one is: its DSN, or the environment variable that has it."""
    entity_types: Sequence[str]
    """Of our own, those that it has events of."""
    readers: Sequence[str]
    """The projections that read it."""


async def rebuilds_under_way(session: Session) -> list[UnfinishedRebuild]:
    """The rebuilds that are unfinished, the oldest first."""
    found = []
    for row in await session.fetch(_REBUILDS):
        values = dict(row.items())
        slices = SliceRange(values.pop("min_slice"), values.pop("max_slice"))
        elapsed = values.pop("elapsed").total_seconds()
        found.append(UnfinishedRebuild(**values, slices=slices, elapsed=elapsed))
    return found


async def journals_read(session: Session, known: Sequence[offsets.ProjectionSummary]) -> list[JournalRead]:
    """The journal that is here, those that are attached, and others that projections read."""
    readers: dict[str | None, list[str]] = {None: []}
    for one in known:
        readers.setdefault(one.journal, []).append(one.name)
    types = [row["entity_type"] for row in await session.fetch(_TYPES)]
    found = [JournalRead(None, "own", None, types, readers.pop(None))]
    for journal in await attached_journals(session):
        where = journal.dsn if journal.dsn is not None else f"${journal.dsn_variable}"
        found.append(JournalRead(journal.name, journal.kind, where, (), readers.pop(journal.name, ())))
    others = sorted(readers.items(), key=lambda item: str(item[0]))
    return found + [JournalRead(name, "named", None, (), those) for name, those in others]
