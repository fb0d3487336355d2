"""Messages: what is sent to the endpoints of a tenant, either by itself or made of an event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypedDict, Unpack
from uuid import UUID, uuid4, uuid5
from zlib import crc32

from journal import Appended, Event, EventEnvelope, append, append_sync
from projections.trace_parent import current_traceparent, is_traceparent
from projections.webhooks.checks import check_tenant, check_time
from projections.webhooks.errors import InvalidMessage
from projections.webhooks.topics import check_topic

MESSAGE = "webhook-message"
"""The entity type of messages that are sent by :func:`send`."""

_NAMESPACE = UUID("6f1c0d0e-6f0a-5c0b-9b0a-3f2a1d5f7c11")
_SOURCES = 64
"""Sources of a tenant's messages: the transactions that can send for it at a time, and the rows kept for it."""
_MAX_KEY_BYTES = 1000
"""Of an order key, in UTF-8: deliveries are found by it in an index, whose entries are short."""


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent to the endpoints of one tenant for an event; :class:`FanOut` makes deliveries of it."""

    tenant: str
    topic: str
    data: str | None = None
    """JSON text, sent byte by byte; None for the event's payload, in its newest version."""
    order_key: str | None = None
    """None for the event's source."""
    not_before: datetime | None = None
    endpoint_id: str | None = None
    eligible_for_retry: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    expires_at: datetime | None = None
    """Aware; not attempted from then on. None for what the fan-out says."""


class MessageOptions(TypedDict, total=False):
    """What can be said about a message that is sent: the arguments of :func:`message_event`."""

    message_id: UUID | str | None
    """Makes it idempotent: a UUID, or any text that is the tenant's own for it; a UUID is the same id as its text. Sent
    again with the same content, under whatever order key, nothing happens."""
    order_key: str | None
    """An endpoint that asks for an order gets messages with the same key one after the other; up to 1,000 bytes."""
    not_before: datetime | None
    """Aware; not to be sent earlier."""
    endpoint_id: str | None
    """For this endpoint alone, if its topics and filter let it through."""
    eligible_for_retry: bool
    """Whether it is tried again when it fails; by default it is."""
    metadata: Mapping[str, str] | None
    """Labels for filters and for the log; they are not sent."""
    expires_at: datetime | None
    """Aware; what is not delivered by then is not attempted any more."""
    traceparent: str | None
    """The span that sends, as W3C Trace Context has it: fan-out and requests are traced from there on. By default the
    current span of OpenTelemetry, where one is being recorded."""


def message_of(envelope: EventEnvelope) -> Message | None:
    """
    What an event becomes when nobody says otherwise.

    Its metadata says whose it is (``tenant``), and may hold what else a :class:`Message` has. An event without a tenant
    becomes none. The topic is the event's type. A message of :func:`send` without an ``order_key`` is in no order.
    """
    metadata = envelope.metadata
    if not isinstance(metadata, dict) or not isinstance(tenant := metadata.get("tenant"), str):
        return None
    not_before, expires_at = (_time_in(metadata, name) for name in ("not_before", "expires_at"))
    labels = metadata.get("labels")
    sent = envelope.entity_type == MESSAGE  # its source says nothing: messages of a tenant share a few
    return Message(
        tenant,
        envelope.event_type,
        order_key=metadata.get("order_key", str(envelope.event_id) if sent else None),
        not_before=not_before,
        endpoint_id=metadata.get("endpoint_id"),
        eligible_for_retry=metadata.get("eligible_for_retry", True) is not False,
        metadata={str(k): str(v) for k, v in labels.items()} if isinstance(labels, dict) else {},
        expires_at=expires_at,
    )


def _time_in(metadata: Mapping[str, Any], name: str) -> datetime | None:
    written = metadata.get(name)
    time = None if written is None else datetime.fromisoformat(written)
    check_time(name, time, InvalidMessage)
    return time


async def send(
    connection: Any,
    tenant: str,
    topic: str,
    data: Any,
    **options: Unpack[MessageOptions],
) -> Appended:
    """
    Send a message to a tenant's endpoints; it commits with the caller's transaction, or not at all.

    Args:
        connection: As for :func:`journal.append`.
        tenant: The tenant whose endpoints get it, 1 to 200 characters.
        topic: The topic that endpoints ask for, such as ``flight.delayed``.
        data: A pydantic model, or anything that pydantic can turn into JSON; :class:`journal.RawJson` as it is.
        options: ``message_id``: a UUID or a text, unique for the tenant, where a UUID is the same as its text; sent
            again with the same content, under whatever order key, nothing happens. ``order_key``: an endpoint that asks
            for an order gets messages with the same key one after the other; up to 1,000 bytes. ``not_before``: a time
            with its zone, before which it is not sent. ``endpoint_id``: for this endpoint alone, if its topics and
            filter let it through. ``eligible_for_retry``: whether it is tried again when it fails (default: True).
            ``metadata``: labels for filters and for the log, which are not sent. ``expires_at``: a time with its zone;
            what is not delivered by then is not attempted any more. ``traceparent``: the W3C trace context to trace
            from; by default that of the current span of OpenTelemetry.

    Returns:
        Where it is in the journal; its ``event_id`` is the ``webhook-id`` that receivers see. For a ``message_id`` that
        is stored already, the first result.

    Raises:
        InvalidValue: The tenant, the topic, the order key or the time is invalid.
        InvalidEvent: The data cannot be stored.
        EventIdConflict: The ``message_id`` was used for other content.
    """
    return (await append(connection, [message_event(tenant, topic, data, **options)]))[0]


def send_sync(
    connection: Any,
    tenant: str,
    topic: str,
    data: Any,
    **options: Unpack[MessageOptions],
) -> Appended:
    """
    Send a message on a synchronous connection, as for :func:`journal.append_sync`.

    Arguments, result and errors are those of :func:`send`.
    """
    return append_sync(connection, [message_event(tenant, topic, data, **options)])[0]


def message_event(
    tenant: str,
    topic: str,
    data: Any,
    *,
    message_id: UUID | str | None = None,
    order_key: str | None = None,
    not_before: datetime | None = None,
    endpoint_id: str | None = None,
    eligible_for_retry: bool = True,
    metadata: Mapping[str, str] | None = None,
    expires_at: datetime | None = None,
    traceparent: str | None = None,
    of_schedule: bool = False,
    event_id: UUID | None = None,
) -> Event:
    """
    The event that :func:`send` appends, for who appends many.

    Those of schedules have sources of their own: a transaction of an application that has sent for the tenant, and
    stays open, holds up no ticks. An ``event_id`` is for those whose maker knows that no tenant can choose it.
    """
    _check(tenant, topic, not_before, expires_at, order_key)
    if traceparent is not None and not is_traceparent(traceparent):
        raise InvalidMessage(
            f"traceparent is version, trace, span and flags in hexadecimal with - between, not {traceparent!r:.80}"
        )
    facts: dict[str, Any] = {"tenant": tenant}
    optional = {
        "order_key": order_key,
        "not_before": None if not_before is None else not_before.isoformat(),
        "expires_at": None if expires_at is None else expires_at.isoformat(),
        "endpoint_id": endpoint_id,
        "labels": dict(metadata) if metadata else None,
        "eligible_for_retry": None if eligible_for_retry else False,
        "traceparent": traceparent or current_traceparent(),
    }
    facts |= {key: value for key, value in optional.items() if value is not None}
    if message_id is not None:
        event_id = message_uuid(tenant, message_id)
    key = order_key if order_key is not None else str(event_id or uuid4())
    kind = "webhook-schedules" if of_schedule else "webhooks"
    source_id = f"{kind}/{tenant}/{crc32(key.encode()) % _SOURCES}"
    return Event(source_id, data, MESSAGE, topic, 1, metadata=facts, event_id=event_id)


def message_uuid(tenant: str, message_id: UUID | str) -> UUID:
    """The event id of a message that was sent under an id of the tenant's own."""
    return uuid5(_NAMESPACE, f"{len(tenant)} {tenant}\n{message_id}")


def _check(
    tenant: object,
    topic: str,
    not_before: datetime | None,
    expires_at: datetime | None,
    order_key: str | None,
) -> None:
    check_tenant(tenant, InvalidMessage)
    check_topic(topic)
    check_time("not_before", not_before, InvalidMessage)
    check_time("expires_at", expires_at, InvalidMessage)
    if expires_at is not None and not_before is not None and expires_at <= not_before:
        raise InvalidMessage(
            f"a message that expires at {expires_at.isoformat()} cannot be delivered from {not_before.isoformat()} on"
        )
    if order_key is not None and not 1 <= len(order_key.encode(errors="replace")) <= _MAX_KEY_BYTES:
        raise InvalidMessage(f"an order_key has 1 to {_MAX_KEY_BYTES} bytes, not {order_key!r:.80}")
