"""Operations on messages."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from projections.trace_parent import is_traceparent
from projections.webhooks.api.delivery_operations import in_time
from projections.webhooks.api.operations import (
    Body,
    Call,
    NoBody,
    Operations,
    Query,
    Tenant,
    Time,
    View,
    Word,
    Words,
)
from projections.webhooks.api.problems import Problem
from projections.webhooks.messages import send
from projections.webhooks.tenant_rows import Json

message_operations = Operations("messages")

# Its source is locked until this transaction ends: a row that another one wrote was there before.
_IS_NEW = """
SELECT e.xmin::text::bigint = (pg_current_xact_id()::text::bigint & 4294967295) FROM projections.events AS e
WHERE e.source_id = $1 AND e.seq_nr = $2 AND e.db_timestamp = $3
"""


class NewMessage(Body):
    """A message to send."""

    topic: Annotated[str, Field(min_length=1, max_length=128)]
    """What it is about: segments of letters, digits, _ and -, with dots between."""
    data: Json
    """What is sent, byte by byte as it stands here."""
    tenant: Tenant | None = None
    """Whose endpoints it is for, for administrators."""
    id: Word | None = None
    """Makes it idempotent: sent again with the same content, nothing happens. Also as the header idempotency-key."""
    order_key: Word | None = None
    """An endpoint that asks for an order gets messages with the same key one after the other."""
    not_before: Time | None = None
    """Not to be sent earlier."""
    expires_at: Time | None = None
    """What is not delivered by then is not attempted any more."""
    endpoint_id: Word | None = None
    """For this endpoint alone, if its topics and filter let it through."""
    eligible_for_retry: bool = True
    """Whether it is tried again when it fails."""
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=100)], Annotated[str, Field(max_length=1000)]],
        Field(max_length=50),
    ] = Field(default_factory=dict)
    """Labels for filters and for the log; they are not sent."""


class SentMessage(View):
    """A message that will be sent."""

    event_id: str
    """The webhook-id that receivers see, and what the log lists it by."""
    duplicate: bool
    """It was sent before, and is not sent again."""


@message_operations.add(
    "POST",
    "/v1/messages",
    raw=("data",),
    status=202,
    problems=(400, 404, 409),
    own_key="The message's id; instead of the field id, or equal to it.",
    headers_taken={
        "traceparent": "A span (W3C Trace Context) from which deliveries are traced; a malformed one is passed over."
    },
)
async def send_message(call: Call[Query, NewMessage]) -> SentMessage:
    """
    Send a message to the endpoints of a tenant that want it.

    With an id, or the header idempotency-key, it is sent once, however often this is asked for.
    """
    body, services = call.body, call.services
    tenant, message_id = call.owner(body.tenant), _message_id(call)
    if body.endpoint_id is not None:
        await services.endpoints.get(tenant, body.endpoint_id)
    options = {name: getattr(body, name) for name in _OPTIONS} | {"traceparent": _traceparent(call)}
    async with services.database.session() as session, session.transaction():
        sent = await send(session, tenant, body.topic, call.raw["data"], message_id=message_id, **options)
        duplicate = message_id is not None and not await session.fetchval(
            _IS_NEW, sent.source_id, sent.seq_nr, sent.db_timestamp
        )
    return SentMessage(event_id=str(sent.event_id), duplicate=duplicate)


class WhichMessages(Body):
    """Which messages to erase: those that fit all that is given, one thing at least."""

    tenant: Tenant | None = None
    """Whose, for administrators."""
    order_key: Word | None = None
    """With this key of an order; of events, of this source."""
    topics: Words | None = None
    since: Time | None = None
    """From then on."""
    until: Time | None = None
    """Before then."""


class ErasedMessages(View):
    """How many were erased."""

    messages: int
    complete: bool
    """False: there may be more; ask again."""


@message_operations.add("POST", "/v1/messages/{event_id}/erase", status=204, problems=(404,))
async def erase_message(call: Call[Query, NoBody]) -> None:
    """
    Erase what a message says, and what endpoints answered to it. Its record stays.

    What is not delivered of it is erased, and cannot be tried again. A request on its way may still arrive.
    """
    await call.services.deliveries.erase(call.tenant, call.place["event_id"])


@message_operations.add("POST", "/v1/messages/erase", status=202, problems=(400,))
async def erase_messages(call: Call[Query, WhichMessages]) -> ErasedMessages:
    """Erase what many messages say that were for endpoints, and what these answered. Their records stay."""
    body = call.body
    if all(one is None for one in (body.order_key, body.topics, body.since, body.until)):
        raise Problem(422, "invalid_query", "say which messages: order_key, topics, since or until")
    steps = call.services.deliveries.erase_many(
        call.owner(body.tenant),
        order_key=body.order_key,
        topics=body.topics,
        since=body.since,
        until=body.until,
    )
    messages, complete = await in_time(call, (found.messages async for found in steps))
    return ErasedMessages(messages=messages, complete=complete)


_OPTIONS = ("order_key", "not_before", "expires_at", "endpoint_id", "eligible_for_retry", "metadata")


def _message_id(call: Call[Any, NewMessage]) -> str | None:
    key = call.key
    if key is None:
        return call.body.id
    if call.body.id not in {None, key}:
        raise Problem(400, "invalid_idempotency_key", "the idempotency-key and the id of the message differ")
    return key


def _traceparent(call: Call[Any, NewMessage]) -> str | None:
    """As the standard has it, one that cannot be read is passed over."""
    given = call.headers.get("traceparent")
    return given if given is not None and is_traceparent(given) else None
