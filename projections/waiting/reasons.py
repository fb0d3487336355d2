"""Why an event has not been handled yet."""

from __future__ import annotations

from journal import Row, Session
from journal.tokens import AwaitedEvent

_WHY = "SELECT * FROM projections._why_waiting_v1($1, $2, $3)"


def not_in_journal(event: AwaitedEvent) -> str:
    """For an event that is not found, on the timeline that it was appended on."""
    return (
        f"event {event.seq_nr} of source {event.source_id!r} is not in the journal: its transaction has not been "
        "committed, or was rolled back"
    )


async def reason(session: Session, projection: str, event: AwaitedEvent, journal: str | None) -> str:
    """What a projection's next event of a source of a journal waits for, in a sentence; by its stored name."""
    row = await session.fetchrow(_WHY, projection, event.source_id, journal)
    if row is None:
        return "it was removed"
    return _said(row, projection, event)


def _said(row: Row, projection: str, event: AwaitedEvent) -> str:
    slices = f"slices {row['min_slice']} to {row['max_slice']}"
    if row["paused"]:
        return f"it is paused (projections resume {projection})"
    if row["parked_at"] is not None:
        return (
            f"source {event.source_id!r} is parked at event {row['parked_at']} ({row['parked_error']}): decide with "
            f"projections parked retry, or drop"
        )
    if row["restarts_at"] is not None:
        return f"{slices} failed ({row['error']}) and start again at {row['restarts_at']:%H:%M:%S} UTC"
    if not row["alive"]:
        return f"no worker has {slices}"
    return f"worker {row['owner']} is behind: {_place(row, event)}"


def _place(row: Row, event: AwaitedEvent) -> str:
    behind = (event.db_timestamp - row["handled_until"]).total_seconds()
    if behind > 0:
        return (
            f"its last event is {behind:.1f} s older than event {event.seq_nr} of source {event.source_id!r}"
        )
    return f"it is at event {row['seq_nr'] or 0} of source {event.source_id!r}, before event {event.seq_nr}"
