"""How old events are of a journal that is ordered by numbers: by where its end was seen when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from journal import Log, Session, now

_CLOCK = "SELECT clock_timestamp()"
_NOTE = "SELECT projections._note_watermark_v1($1, $2, $3, $4)"
_KNOWN_SINCE = "SELECT projections._known_since_v1($1, $2) AS since, clock_timestamp() AS at"


async def note_watermark(session: Session, log: Log, retention: timedelta) -> None:
    """
    Note where the end of a log is that is ordered by numbers.

    Args:
        session: On the database of the offsets, in no transaction.
        log: The log.
        retention: How long this is kept: as long as offsets are.

    Raises:
        JournalUnavailable: The log's database cannot be reached.
    """
    # First: what is drawn while the log answers is younger than this.
    seen_at = await session.fetchval(_CLOCK)
    async with log.at_primary.session() as reading:
        end = (await now(reading, queries=log.queries)).time
    await session.fetchval(_NOTE, log.name, end, seen_at, retention)


async def ages(session: Session, projection_id: int, places: Sequence[datetime]) -> list[float]:
    """
    For how many seconds events of a log that is ordered by numbers may have been there, at most.

    Of one that was there before anybody has looked at the log's end: for how long they have looked.
    """
    row = await session.fetchrow(_KNOWN_SINCE, projection_id, list(places))
    assert row is not None  # noqa: S101 - it has one row
    return [max((row["at"] - since).total_seconds(), 0.0) for since in row["since"] or ()]
