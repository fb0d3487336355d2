"""Which events are reacted to: each once, also where the read model of its projection is rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from journal import EventEnvelope, OwnedSession

T = TypeVar("T")

_NOTE_REACTIONS = "SELECT source_id, seq_nr FROM projections._note_reactions_v1($1, $2, $3)"


async def find_reactions(
    session: OwnedSession, projection_id: int, reactions: Mapping[str, T], envelopes: Sequence[EventEnvelope]
) -> Callable[[EventEnvelope], T | None] | None:
    """
    Note in the session's transaction that the events of a batch are reacted to; reactions are by event type.

    Returns:
        What finds the reaction to an event; it finds none where the event has been reacted to, also before a rebuild
        of the read model. None where no event of the batch has a reaction.
    """
    last = {e.source_id: e.seq_nr for e in envelopes if e.event_type in reactions}
    if not last:
        return None
    rows = await session.fetch(_NOTE_REACTIONS, projection_id, list(last), list(last.values()))
    done = {row["source_id"]: row["seq_nr"] for row in rows}

    def find(envelope: EventEnvelope) -> T | None:
        again = envelope.seq_nr <= done.get(envelope.source_id, 0)
        return None if again else reactions.get(envelope.event_type)

    return find
