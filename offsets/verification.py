"""Looking for stored progress that does not fit the journal, as after a restore of one of the two alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from journal import ALL_SLICES, Journals, Log, OwnedSession, Session, SliceReader
from offsets.lost_events import ahead_of_journal
from offsets.management import ProjectionStatus, named_log, statuses

_EXAMPLES = 10

# Joins of whole tables: linear in their rows, whatever their number.
_MISFITS = """
SELECT
    projections._part_name_v1(p.name, p.journal) AS name, f.what, count(*) AS number,
    (array_agg(f.place ORDER BY f.place))[:10] AS examples
FROM (
    SELECT o.projection_id, 'offset' AS what, o.source_id AS place
    FROM projections.source_offsets AS o LEFT JOIN projections.sources AS s ON o.source_id = s.source_id
    WHERE o.seq_nr > coalesce(s.seq_nr, 0)
    UNION ALL
    SELECT k.projection_id, 'parked', k.source_id
    FROM projections.parked_sources AS k LEFT JOIN projections.sources AS s ON k.source_id = s.source_id
    WHERE k.decision = 'waiting' AND k.seq_nr > coalesce(s.seq_nr, 0)
    UNION ALL
    SELECT r.projection_id, 'horizon', format('%s-%s', r.min_slice, r.max_slice)
    FROM projections.projection_ranges AS r
    WHERE greatest(r.horizon, r.handled_until) > clock_timestamp() + INTERVAL '1 second'
) AS f INNER JOIN projections.projections AS p ON f.projection_id = p.projection_id
WHERE p.journal IS NULL
GROUP BY p.name, p.journal, f.what ORDER BY p.name, f.what
"""
_SAYS = {
    "offset": "{number} sources are handled further than the journal goes: their next events would be left out",
    "parked": "{number} sources are parked at events that the journal does not have",
    "horizon": "{number} ranges are handled up to a time that has not come: what is stamped before it is left out",
}


class Misfit(NamedTuple):
    """Progress of a projection that does not fit the journal."""

    projection: str
    what: str
    """``offset``, ``parked`` or ``horizon``."""
    number: int
    """How many sources, or ranges for ``horizon``."""
    examples: list[str]
    """Ten of them at most: source ids, or slices."""

    def __str__(self) -> str:
        return f"{self.projection}: {_SAYS[self.what].format(number=self.number)}: {', '.join(self.examples)}"


async def misfits(session: OwnedSession, journal: Journals = ()) -> list[Misfit]:
    """
    Progress that does not fit the journal, of all projections; takes time in proportion to their sources.

    Args:
        session: On the database of the offsets.
        journal: What some of them read, one or several, if that is in another database: of those, only offsets are
            looked at.

    Raises:
        WrongJournal: One of them reads a journal in another database that was not passed.
    """
    found = [Misfit(*row.values()) for row in await session.fetch(_MISFITS)]
    for status in await statuses(session):
        if status.journal is not None:
            found += await _misfits_elsewhere(session, status, named_log(status, journal))
    return found


async def _misfits_elsewhere(session: OwnedSession, status: ProjectionStatus, journal: Log) -> list[Misfit]:
    @asynccontextmanager
    async def reading(_: OwnedSession) -> AsyncIterator[Session]:
        async with journal.at_primary.session() as lent:
            yield lent

    reader = SliceReader(status.entity_types, ALL_SLICES, queries=journal.queries)
    ahead = [
        one.source_id
        async for page in ahead_of_journal(session, status.projection_id, reader, reading)
        for one in page
    ]
    return [Misfit(status.name, "offset", len(ahead), ahead[:_EXAMPLES])] if ahead else []
