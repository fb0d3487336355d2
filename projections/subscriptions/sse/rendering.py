"""The form of an event for the client of a stream."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC
from typing import NamedTuple, TypeAlias

from journal import newest_json
from projections.subscriptions.matched_event import MatchedEvent


class ServerSentEvent(NamedTuple):
    """
    An event as a client gets it.

    Args:
        data: Any text.
        event: Its type: a browser hands it to the listeners of that type; those of None to ``onmessage``.
    """

    data: str
    event: str | None = None


Render: TypeAlias = Callable[[MatchedEvent], ServerSentEvent | str | None]
"""Makes an event what a client gets; None: this one is not for clients."""


def as_json(event: MatchedEvent) -> str:
    """
    An object: ``event_id``, ``topic``, ``source_id``, ``seq_nr``, ``timestamp``, ``payload`` and, if any, ``metadata``.

    Payload and metadata are the text as it was written: keys in their order, numbers with their digits. A payload of an
    older version is converted to the newest one.
    """
    envelope = event.envelope
    head = {
        "event_id": str(envelope.event_id),
        "topic": envelope.event_type,
        "source_id": envelope.source_id,
        "seq_nr": envelope.seq_nr,
        "timestamp": envelope.db_timestamp.astimezone(UTC).isoformat(timespec="microseconds"),
    }
    metadata = f',"metadata":{envelope.metadata_json}' if envelope.metadata_json else ""
    return f'{json.dumps(head, separators=(",", ":"))[:-1]},"payload":{newest_json(envelope)}{metadata}}}'


def by_topic(event: MatchedEvent) -> ServerSentEvent:
    """The same, as an event of the type that its topic names: ``source.addEventListener("Landed", ...)``."""
    return ServerSentEvent(as_json(event), event.topic)
