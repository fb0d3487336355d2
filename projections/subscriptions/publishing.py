"""Publishing payloads under topics, without sources of their own, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from journal import Appended, InvalidEvent, check_kind, check_list, check_name, encode
from journal.database import fetch_on, fetch_on_sync
from projections.interests import InvalidTopic, check_topic
from projections.subscriptions.checks import check_number, check_storable
from projections.subscriptions.errors import InvalidSubscription, own_errors
from projections.trace_parent import current_traceparent, is_traceparent

DEFAULT_PUBLISHER = "default"
MAX_PUBLISHER_LENGTH = 245
"""Its source is ``publisher/NAME``, of 255 characters at most."""

_PUBLISH = """
SELECT source_id, seq_nr, db_timestamp, event_id FROM projections.publish_v1(
    CAST($1 AS text), CAST($2 AS text[]), CAST($3 AS text[]), CAST($4 AS text[]), CAST($5 AS uuid[]),
    CAST($6 AS bigint[]), CAST($7 AS timestamptz[]))
"""


@dataclass(frozen=True, slots=True)
class Publication:
    """
    What is published.

    Args:
        topic: What it is about: an event type to those who subscribe.
        payload: A pydantic model, or anything that pydantic can turn into JSON; :class:`RawJson` keeps text as it is.
        metadata: Anything that is not part of it: who, from where, why.
        event_id: Makes it idempotent: the same again, under any name of a publisher, is stored once.
        subscription_id: It is for this subscription alone, whatever that asks for.
        not_before: It is matched then, and no earlier.
        traceparent: The span that publishes, as W3C Trace Context has it, which is written into the metadata: who
            handles it is traced from there on. By default what the metadata say, else the current span of
            OpenTelemetry, where one is being recorded.
    """

    topic: str
    payload: Any
    metadata: Mapping[str, Any] | None = None
    event_id: UUID | None = None
    subscription_id: int | None = None
    not_before: datetime | None = None
    traceparent: str | None = None

    def row(self) -> tuple[Any, ...]:
        """
        What is sent of it.

        Raises:
            InvalidEvent: It cannot be stored.
        """
        check_name(self.topic, "topic")
        try:
            check_topic(self.topic)
            if self.subscription_id is not None:
                check_number(self.subscription_id)
        except (InvalidTopic, InvalidSubscription) as error:
            raise InvalidEvent(str(error)) from None
        if not isinstance(self.event_id, UUID | None):
            raise InvalidEvent(f"event_id must be a UUID, not {self.event_id!r:.80}")
        if not isinstance(self.not_before, datetime | None):
            raise InvalidEvent(f"not_before must be a datetime, not {self.not_before!r:.80}")
        if self.not_before is not None and self.not_before.tzinfo is None:
            raise InvalidEvent(f"not_before has no zone: {self.not_before.isoformat()}")
        if self.traceparent is not None and not is_traceparent(self.traceparent):
            raise InvalidEvent(
                "traceparent is version, trace, span and flags in hexadecimal with - between, not "
                f"{self.traceparent!r:.80}"
            )
        metadata = self._traced()
        return (
            self.topic,
            encode(self.payload, "payload"),
            None if metadata is None else encode(metadata, "metadata"),
            None if self.event_id is None else str(self.event_id),
            self.subscription_id,
            self.not_before,
        )

    def _traced(self) -> Any:
        """The metadata, with the span that publishes."""
        given: Any = {} if self.metadata is None else self.metadata
        if not isinstance(given, Mapping):  # in spite of its type: it is stored as it is
            return given
        span = self.traceparent or given.get("traceparent") or current_traceparent()
        return self.metadata if span is None else {**given, "traceparent": span}


async def publish(
    connection: Any,
    topic: str,
    payload: Any,
    *,
    publisher: str = DEFAULT_PUBLISHER,
    metadata: Mapping[str, Any] | None = None,
    event_id: UUID | None = None,
    subscription_id: int | None = None,
    not_before: datetime | None = None,
    traceparent: str | None = None,
) -> Appended:
    """
    Publish a payload; it commits with the caller's transaction, or not at all.

    What one publisher has published is in order, and belongs to one slice. Transactions that publish at the same time
    as the same publisher wait for one another: give those that are many, or long, names of their own.

    Args:
        connection: As for :func:`journal.append`.
        topic: The event type that subscriptions match, such as ``order.paid``.
        payload: As for :class:`Publication`.
        publisher: The name of the publisher, 1 to 245 characters.
        metadata: Anything that is not part of the payload.
        event_id: Publish only once under this id, whatever the publisher; by default a new one.
        subscription_id: Publish to this subscription alone.
        not_before: Match it at this time, not earlier; needs a zone.
        traceparent: The W3C trace context of the span that publishes.

    Returns:
        Where it is in the journal; for an ``event_id`` that is stored already, the first result.

    Raises:
        InvalidEvent: It cannot be stored; nothing was published.
        InvalidValue: There is no such subscription.
        EventIdConflict: The ``event_id`` was used for other content.
    """
    publication = Publication(topic, payload, metadata, event_id, subscription_id, not_before, traceparent)
    return (await publish_all(connection, [publication], publisher=publisher))[0]


async def publish_all(
    connection: Any, publications: Sequence[Publication], *, publisher: str = DEFAULT_PUBLISHER
) -> list[Appended]:
    """
    Publish many payloads, in their order; they commit with the caller's transaction, or not at all.

    Args:
        connection: As for :func:`journal.append`.
        publications: The payloads with their topics.
        publisher: The name of the publisher, 1 to 245 characters.

    Returns:
        One :class:`journal.Appended` for each, in their order.

    Raises:
        InvalidEvent: One of them cannot be stored; nothing was published.
        InvalidValue: There is no such subscription.
        EventIdConflict: An ``event_id`` was used for other content.
    """
    rows = _rows(publications, "publish_all")
    if not rows:
        return []
    check_publisher(publisher)
    return await publish_rows(connection, publisher, rows)


def publish_sync(
    connection: Any,
    topic: str,
    payload: Any,
    *,
    publisher: str = DEFAULT_PUBLISHER,
    metadata: Mapping[str, Any] | None = None,
    event_id: UUID | None = None,
    subscription_id: int | None = None,
    not_before: datetime | None = None,
    traceparent: str | None = None,
) -> Appended:
    """
    Publish a payload on a synchronous connection, as for :func:`journal.append_sync`.

    Arguments, result and errors are those of :func:`publish`.
    """
    publication = Publication(topic, payload, metadata, event_id, subscription_id, not_before, traceparent)
    return publish_all_sync(connection, [publication], publisher=publisher)[0]


def publish_all_sync(
    connection: Any, publications: Sequence[Publication], *, publisher: str = DEFAULT_PUBLISHER
) -> list[Appended]:
    """
    Publish many on a synchronous connection, as for :func:`journal.append_sync`.

    Arguments, result and errors are those of :func:`publish_all`.
    """
    rows = _rows(publications, "publish_all_sync")
    if not rows:
        return []
    check_publisher(publisher)
    with own_errors():
        return [Appended(*row) for row in fetch_on_sync(connection, _PUBLISH, _arguments(publisher, rows))]


def _rows(publications: Sequence[Publication], call: str) -> list[tuple[Any, ...]]:
    check_list(publications, Publication, call)
    for publication in publications:
        check_kind(publication, Publication, "topic, payload")
    return [publication.row() for publication in publications]


async def publish_rows(connection: Any, publisher: str, rows: Sequence[tuple[Any, ...]]) -> list[Appended]:
    """Publish what :meth:`Publication.row` made."""
    with own_errors():
        found = await fetch_on(connection, _PUBLISH, _arguments(publisher, rows))
    return [Appended(*row) for row in found]


def _arguments(publisher: str, rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    topics, payloads, metadata, event_ids, subscription_ids, not_before = map(list, zip(*rows, strict=True))
    directed = any(number is not None for number in subscription_ids)
    later = any(time is not None for time in not_before)
    return (
        publisher, topics, payloads, metadata, event_ids,
        subscription_ids if directed else None, not_before if later else None,
    )  # fmt: skip


def check_publisher(name: object) -> None:
    """Check that the name of a publisher is not empty, not too long, and can be stored; else InvalidValue."""
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_PUBLISHER_LENGTH:
        raise InvalidSubscription(
            f"the name of a publisher has 1 to {MAX_PUBLISHER_LENGTH} characters, not {name!r:.80}"
        )
    check_storable(name, "publisher")
