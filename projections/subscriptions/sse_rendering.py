"""What a match becomes for the client of a stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC
from typing import NamedTuple, TypeAlias

from projections.subscriptions.groups import Match

__all__ = ["Render", "ServerSentEvent", "as_json", "by_topic"]


class ServerSentEvent(NamedTuple):
    """
    An event as a client gets it.

    Args:
        data: Any text.
        event: Its type: a browser hands it to the listeners of that type; those of None to ``onmessage``.
    """

    data: str
    event: str | None = None


Render: TypeAlias = Callable[[Match], ServerSentEvent | str | None]
"""Makes a match what a client gets; None: this one is not for clients."""


def as_json(match: Match) -> str | None:
    """
    An object: ``event_id``, ``topic``, ``source_id``, ``seq_nr``, ``timestamp``, ``payload`` and, if any, ``metadata``.

    Payload and metadata are the text as it was written: keys in their order, numbers with their digits.
    """
    envelope = match.envelope
    if envelope is None:
        return None
    head = {
        "event_id": str(envelope.event_id),
        "topic": envelope.event_type,
        "source_id": envelope.source_id,
        "seq_nr": envelope.seq_nr,
        "timestamp": envelope.db_timestamp.astimezone(UTC).isoformat(timespec="microseconds"),
    }
    metadata = f',"metadata":{envelope.metadata_json}' if envelope.metadata_json else ""
    return f'{json.dumps(head, separators=(",", ":"))[:-1]},"payload":{envelope.payload_json}{metadata}}}'


def by_topic(match: Match) -> ServerSentEvent | None:
    """The same, as an event of the type that its topic names: ``source.addEventListener("Landed", ...)``."""
    data = as_json(match)
    return (
        None if data is None or match.envelope is None else ServerSentEvent(data, match.envelope.event_type)
    )
