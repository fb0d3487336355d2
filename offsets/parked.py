"""Sources that wait because an event could not be handled: what people see of them, and what they decide."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from journal import InvalidValue, NotFound, Session
from journal.limits import check_limit
from offsets.management import statuses

_LIST = """
SELECT
    projections._part_name_v1(p.name, p.journal) AS projection,
    k.source_id, k.seq_nr, k.event_type, k.error, k.attempts, k.parked_at, k.decision, k.traceback, p.journal
FROM projections.parked_sources AS k INNER JOIN projections.projections AS p ON k.projection_id = p.projection_id
WHERE ($1::integer[] IS NULL OR k.projection_id = ANY($1)) AND ($2::text IS NULL OR k.source_id = $2)
ORDER BY k.parked_at, k.source_id, k.projection_id LIMIT $3
"""
_DECIDE = """
UPDATE projections.parked_sources SET decision = $4
WHERE projection_id = ANY($1) AND ($2::text IS NULL OR source_id = $2) AND ($3::bigint IS NULL OR seq_nr = $3)
    AND decision = 'waiting'
"""
_OUTCOME = """
SELECT count(*) FILTER (WHERE decision <> 'waiting') AS undone, count(*) FILTER (WHERE decision = 'waiting') AS failed
FROM projections.parked_sources
WHERE projection_id = ANY($1) AND ($2::text IS NULL OR source_id = $2) AND (decision <> 'waiting' OR parked_at >= $3)
"""
_PLACES = "SELECT source_id, slice, parked_at FROM projections.parked_sources WHERE projection_id = $1"


class ParkedSource(NamedTuple):
    """A source of a projection that waits because its event ``seq_nr`` could not be handled."""

    projection: str
    source_id: str
    seq_nr: int
    event_type: str
    error: str
    attempts: int
    parked_at: datetime
    decision: Literal["waiting", "retry", "drop"]
    """``waiting`` for somebody to decide; else what was decided, and is done by a worker within about a second."""
    traceback: str | None
    """File and line of what the handler raised."""
    journal: str | None
    """The journal of another database that has the event, by the name it is stored with; None: that of this one."""


class DecisionOutcome(NamedTuple):
    """The outcome of decisions so far."""

    undone: int
    """Sources that no worker has taken on yet."""
    failed: int
    """Sources that are parked again."""


class ParkedSources:
    """
    Sources of projections that wait because one of their events could not be handled: what people see and decide.

    Args:
        session: A session on the database of the projections, in a transaction or not.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(
        self, projection: str | None = None, *, source_id: str | None = None, limit: int = 100
    ) -> Sequence[ParkedSource]:
        """
        The sources that are parked, those that wait longest first.

        Args:
            projection: Only those of this one, or of its part that reads a journal (``NAME@JOURNAL``); None for all.
            source_id: Leave out all sources but this one; None for all.
            limit: The largest number of sources to return, 1 to 1,000: those that have waited longest.

        Raises:
            InvalidValue: The limit is out of range.
            NotFound: None of this name has run.
        """
        check_limit(limit)
        numbers = None if projection is None else await self._numbers(projection)
        rows = await self._session.fetch(_LIST, numbers, source_id, limit)
        return [ParkedSource(*row.values()) for row in rows]

    async def show(self, projection: str, source_id: str) -> ParkedSource:
        """
        One source that is parked.

        Args:
            projection: The projection that has parked it.
            source_id: The source that waits.

        Raises:
            NotFound: No projection of this name has run, or it has not parked this source.
            InvalidValue: Sources of this name are parked in several journals that it reads: name the part.
        """
        found = await self.list(projection, source_id=source_id)
        if len(found) > 1:
            raise InvalidValue(
                f"source {source_id!r} is parked in {' and in '.join(one.projection for one in found)}: name one"
            )
        if not found:
            raise NotFound(f"source {source_id!r} of projection {projection!r} is not parked", "not_parked")
        return found[0]

    async def retry(self, projection: str, source_id: str | None = None, *, seq_nr: int | None = None) -> int:
        """
        Have the events that sources are parked at handled again; workers do it with their next heartbeat.

        Args:
            projection: The projection that has parked them, or a part of it; see :meth:`list`.
            source_id: None for all that wait for a decision.
            seq_nr: Only where the source still waits at this event.

        Returns:
            How many sources that are.

        Raises:
            NotFound: No projection of this name has run, or the source that was named does not wait for a decision.
        """
        return await self._decide(projection, source_id, seq_nr, "retry")

    async def drop(self, projection: str, source_id: str | None = None, *, seq_nr: int | None = None) -> int:
        """
        Have sources go on after the events that they are parked at, which this projection never handles.

        Args:
            projection: The projection that has parked them, or a part of it; see :meth:`list`.
            source_id: None for all that wait for a decision.
            seq_nr: Only where the source still waits at this event.

        Returns:
            How many sources that are.

        Raises:
            NotFound: No projection of this name has run, or the source that was named does not wait for a decision.
        """
        return await self._decide(projection, source_id, seq_nr, "drop")

    async def outcome(self, projection: str, source_id: str | None, since: datetime) -> DecisionOutcome:
        """
        The outcome of decisions; what is neither undone nor failed was handled, or passed over.

        Args:
            projection: The projection that has parked the sources, or a part of it; see :meth:`list`.
            source_id: None for all.
            since: From when on, by the database's clock, a source that is parked is parked again.

        Raises:
            NotFound: No projection of this name has run.
        """
        row = await self._session.fetchrow(_OUTCOME, await self._numbers(projection), source_id, since)
        assert row is not None  # noqa: S101 - of a count
        return DecisionOutcome(*row.values())

    async def _decide(self, projection: str, source_id: str | None, seq_nr: int | None, decision: str) -> int:
        numbers = await self._numbers(projection)
        count = await self._session.execute(_DECIDE, numbers, source_id, seq_nr, decision)
        if source_id is not None and count == 0:
            at = "" if seq_nr is None else f" at event {seq_nr}"
            raise NotFound(
                f"source {source_id!r} of projection {projection!r} is not waiting for a decision{at}",
                "not_parked",
            )
        return count

    async def _numbers(self, projection: str) -> Sequence[int]:
        """Of a projection, or of all its parts."""
        return [one.projection_id for one in await statuses(self._session, [projection])]


class ParkedPlace(NamedTuple):
    """A source that is parked, and since when."""

    source_id: str
    slice: int
    parked_at: datetime


async def parked_places(session: Session, projection_id: int) -> list[ParkedPlace]:
    """All sources of a projection that are parked."""
    return [ParkedPlace(*row.values()) for row in await session.fetch(_PLACES, projection_id)]
