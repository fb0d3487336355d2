"""Operations on deliveries and dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from projections.webhooks.api.json_text import kept
from projections.webhooks.api.operations import (
    Body,
    Call,
    ListPage,
    NoBody,
    Operations,
    Query,
    Time,
    View,
    Word,
    Words,
)
from projections.webhooks.deliveries import Delivery, DeliveryFilter, DeliveryState
from projections.webhooks.tenant_rows import Json

delivery_operations = Operations("deliveries")
_PATH = "/v1/endpoints/{endpoint_id}/deliveries/{event_id}"


@dataclass(frozen=True, slots=True)
class DeliveryWithData(Delivery):
    """A delivery, and what is sent."""

    data: Json = None
    """Byte by byte as it was sent; null once it is no longer kept."""


class DeliveryPage(ListPage[Delivery]):
    """Some deliveries, the newest first."""


class DeadLetterPage(ListPage[DeliveryWithData]):
    """Some dead letters, the newest first."""


class Accepted(View):
    """It will be tried again."""

    endpoint_id: str
    event_id: str


class Retried(View):
    """How many will be tried again."""

    retried: int
    complete: bool
    """False: there may be more; ask again."""


class Dropped(View):
    """How many were dropped."""

    dropped: int
    complete: bool
    """False: there may be more; ask again."""


class Which(BaseModel):
    """Which deliveries: those that fit all that is given."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    endpoint_id: Word | None = None
    topics: Words | None = None
    since: Time | None = None
    """Of events from then on."""
    until: Time | None = None
    """Of events before then."""

    def among(self, tenant: str | None, states: Sequence[DeliveryState] | None) -> DeliveryFilter:
        """Those of a tenant that are in these states. An empty list of topics lets nothing through."""
        return DeliveryFilter(
            tenant=tenant, endpoint_id=self.endpoint_id, states=states, since=self.since, until=self.until,
            topics=self.topics if "topics" in self.model_fields_set else None,
        )  # fmt: skip


class DeadLettersQuery(Which, Query):
    """A page of deliveries."""

    topics: Words = ()
    limit: Annotated[int, Field(ge=1, le=100)] = 100
    next: str = ""
    """What a page said."""


class DeliveriesQuery(DeadLettersQuery):
    """A page of deliveries."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    states: Annotated[tuple[DeliveryState, ...], Field(max_length=8)] = ()


class WhichDeadLetters(Which, Body):
    """Which to decide about: those that fit all that is given."""


class WhichDeliveries(WhichDeadLetters):
    """Which to try again: those that fit all that is given."""

    states: Annotated[tuple[Literal["dead", "done", "dropped"], ...], Field(min_length=1, max_length=3)] = (
        "dead",
    )


@delivery_operations.add("GET", "/v1/deliveries", problems=(400,))
async def list_deliveries(call: Call[DeliveriesQuery, NoBody]) -> DeliveryPage:
    """List deliveries, the newest first."""
    found, following = await _listed(call, call.query.states or None)
    return DeliveryPage(data=tuple(found), next=following)


@delivery_operations.add("GET", "/v1/dead-letters", problems=(400,))
async def list_dead_letters(call: Call[DeadLettersQuery, NoBody]) -> DeadLetterPage:
    """List what could not be delivered, with its data, the newest first."""
    found, following = await _listed(call, ("dead",))
    texts = await call.services.deliveries.payloads(found)
    while texts and found[-1].delivery_id not in texts:  # their payloads are too long for this page
        found = found[:-1]
        following = found[-1].cursor
    data = tuple(_with_data(each, texts.get(each.delivery_id)) for each in found)
    return DeadLetterPage(data=data, next=following)


@delivery_operations.add("GET", _PATH, problems=(404,))
async def get_delivery(call: Call[Query, NoBody]) -> DeliveryWithData:
    """Show a delivery and its data."""
    return _with_data(*await call.services.deliveries.show(call.tenant, **call.place))


@delivery_operations.add("POST", f"{_PATH}/retry", status=202, problems=(400, 404, 409))
async def retry_delivery(call: Call[Query, NoBody]) -> Accepted:
    """Try a delivery again, now, whatever its outcome; an endpoint that is held back is asked at once."""
    await call.services.deliveries.retry(call.tenant, call.place["endpoint_id"], call.place["event_id"])
    return Accepted(**call.place)


@delivery_operations.add("POST", f"{_PATH}/drop", status=204, problems=(400, 404, 409))
async def drop_delivery(call: Call[Query, NoBody]) -> None:
    """Drop a delivery: it is not tried again, and what waits for it in an order goes on."""
    await call.services.deliveries.drop(call.tenant, call.place["endpoint_id"], call.place["event_id"])


@delivery_operations.add("POST", "/v1/dead-letters/retry", status=202, problems=(400,))
async def retry_dead_letters(call: Call[Query, WhichDeadLetters]) -> Retried:
    """Try many dead letters again, in their order; those of endpoints that are disabled are passed over."""
    return await _retry_many(call, ("dead",))


@delivery_operations.add("POST", "/v1/dead-letters/drop", status=202, problems=(400,))
async def drop_dead_letters(call: Call[Query, WhichDeadLetters]) -> Dropped:
    """Drop many dead letters: they are not tried again, and what waits for them in an order goes on."""
    dropped, complete = await in_time(
        call, call.services.deliveries.drop_many(call.body.among(call.tenant, ("dead",)))
    )
    return Dropped(dropped=dropped, complete=complete)


@delivery_operations.add("POST", "/v1/deliveries/retry", status=202, problems=(400,))
async def retry_deliveries(call: Call[Query, WhichDeliveries]) -> Retried:
    """Try many deliveries again, in their order, also those that had arrived."""
    return await _retry_many(call, call.body.states)


async def _listed(
    call: Call[Any, NoBody], states: Sequence[DeliveryState] | None
) -> tuple[Sequence[Delivery], str | None]:
    """A page, and what the next one begins with."""
    query, limit = call.query, call.query.limit
    found = await call.services.deliveries.list(
        query.among(call.tenant, states), next=query.next, limit=limit
    )
    return found, found[-1].cursor if len(found) == limit else None


def _with_data(delivery: Delivery, text: str | None) -> DeliveryWithData:
    return DeliveryWithData(**asdict(delivery), data=None if text is None else kept(text))


async def _retry_many(call: Call[Query, Any], states: Sequence[DeliveryState]) -> Retried:
    retried, complete = await in_time(
        call, call.services.deliveries.retry_many(call.body.among(call.tenant, states))
    )
    return Retried(retried=retried, complete=complete)


async def in_time(call: Call[Any, Any], steps: AsyncIterator[int]) -> tuple[int, bool]:
    """How many steps have changed in the time that a request has, and whether that is all there are."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + call.services.settings.bulk_time.total_seconds()
    changed = 0
    async for changed in steps:
        # What is kept with its answer is one transaction, and a short one. So that who asks until it is complete comes
        # to an end, each request does something.
        if changed and (call.key is not None or loop.time() > ends):
            return changed, False
    return changed, True
