"""Deliveries as people see them: listed, shown, tried again, dropped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Literal, NamedTuple, TypeAlias

from journal import PAGE_BYTES, Database, NotFound, Row
from journal.limits import check_limit
from projections.webhooks.checks import check_time
from projections.webhooks.endpoints import Endpoints
from projections.webhooks.erasing import Erasing
from projections.webhooks.errors import InvalidPageCursor, InvalidQuery
from projections.webhooks.tenant_rows import DESCRIBED, HIDDEN, call

DeliveryState: TypeAlias = Literal[
    "waiting", "pending", "leased", "done", "dead", "dropped", "expired", "erased"
]
_Decision: TypeAlias = Literal["retry", "drop"]

_COLUMNS = """
d.delivery_id, d.endpoint_id, d.event_id, d.event_time, d.tenant, d.topic, d.order_key, d.state, d.attempts, d.manual,
d.next_at, d.last_code, d.created_at, d.finished_at, d.expires_at, d.erased
"""
_WHERE = """
($1::text IS NULL OR d.tenant = $1) AND ($2::text IS NULL OR d.endpoint_id = $2)
AND ($3::text[] IS NULL OR d.state = ANY ($3)) AND ($4::text[] IS NULL OR d.topic = ANY ($4))
AND ($5::timestamptz IS NULL OR d.event_time >= $5) AND ($6::timestamptz IS NULL OR d.event_time < $6)
"""
_LIST = f"""
SELECT {_COLUMNS} FROM projections.webhook_deliveries AS d
WHERE {_WHERE} AND d.delivery_id < $7 ORDER BY d.delivery_id DESC LIMIT $8
"""
_PLACE = """
SELECT delivery_id FROM projections.webhook_deliveries
WHERE endpoint_id = $1 AND event_id = $2 AND ($3::text IS NULL OR tenant = $3)
"""
_GET = f"""
SELECT {_COLUMNS}, coalesce(d.data, v.data) AS data FROM projections.webhook_deliveries AS d
LEFT JOIN projections.webhook_events AS v ON d.event_time = v.event_time AND d.event_id = v.event_id
WHERE d.endpoint_id = $1 AND d.event_id = $2 AND ($3::text IS NULL OR d.tenant = $3)
"""
_PAYLOADS = """
SELECT p.delivery_id, p.data FROM (
    SELECT
        w.delivery_id, w.place, coalesce(d.data, v.data) AS data,
        sum(octet_length(coalesce(d.data, v.data))) OVER (ORDER BY w.place) AS size
    FROM unnest($1::bigint[]) WITH ORDINALITY AS w (delivery_id, place)
    INNER JOIN projections.webhook_deliveries AS d ON w.delivery_id = d.delivery_id
    LEFT JOIN projections.webhook_events AS v ON d.event_time = v.event_time AND d.event_id = v.event_id
) AS p
WHERE p.size IS NULL OR p.size <= $2 OR p.place = 1
"""
_DECIDE = "SELECT projections._decide_delivery_v1($1, $2, $3, $4, $5)"
_STEP = 1000  # deliveries that one transaction decides about
_DECIDE_MANY = "SELECT * FROM projections._decide_deliveries_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one endpoint, and where it stands."""

    __pydantic_config__ = DESCRIBED

    delivery_id: Annotated[int, HIDDEN]
    """Grows with time: a place in lists."""
    endpoint_id: str
    event_id: str
    event_time: datetime
    tenant: str
    topic: str
    order_key: str | None
    """What it is in order with, if it is in any."""
    state: DeliveryState
    attempts: int
    """Used up, the one on its way included."""
    manual: bool
    """The next attempt was asked for by a person."""
    next_at: datetime
    """When it is tried next, if it is pending."""
    last_code: str | None
    """Of the last attempt: an HTTP status, or what went wrong."""
    created_at: datetime
    finished_at: datetime | None
    expires_at: datetime | None = None
    """Not attempted from then on."""
    erased: bool = False
    """Its payload was erased."""

    @property
    def cursor(self) -> str:
        """Where the next page begins, if this is the last delivery of a page."""
        # By its ids, which its tenant knows: a number would tell how many deliveries there are of all tenants.
        return f"{self.endpoint_id}/{self.event_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    """Which deliveries: those that fit all that is given."""

    tenant: str | None = None
    endpoint_id: str | None = None
    states: Sequence[DeliveryState] | None = None
    topics: Sequence[str] | None = None
    since: datetime | None = None
    """Of events from then on."""
    until: datetime | None = None
    """Of events before then."""

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            check_time(name, getattr(self, name))


class DeliveryWithPayload(NamedTuple):
    """A delivery, and what it delivers."""

    delivery: Delivery
    data: str | None
    """JSON text as it was written; None when it is no longer kept."""


class Deliveries(Erasing):
    """The deliveries of all tenants. Where a tenant is given, those of others are not there; None is for all."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self,
        which: DeliveryFilter | None = None,
        *,
        next: str | None = None,  # noqa: A002 - its name in the HTTP API
        limit: int = 100,
    ) -> Sequence[Delivery]:
        """
        Deliveries, the newest first.

        Args:
            which: Those that are listed; None for all of all tenants.
            next: The ``cursor`` of the last delivery on a page, to get the page after it.
            limit: The largest number of deliveries to return, 1 to 1,000.

        Raises:
            InvalidValue: The limit is out of range, or the cursor names a delivery that does not exist.
        """
        check_limit(limit, InvalidQuery)
        which = which or DeliveryFilter()
        last = await self._place(which.tenant, next) if next else 2**63 - 1
        async with self._database.session() as session:
            rows = await session.fetch(_LIST, *_arguments(which), last, limit)
        return [Delivery(*row.values()) for row in rows]

    async def show(self, tenant: str | None, endpoint_id: str, event_id: str) -> DeliveryWithPayload:
        """
        One delivery and its payload.

        Args:
            tenant: The tenant of the endpoint; None is for administrators.
            endpoint_id: The endpoint that the event is for.
            event_id: The event that is delivered.

        Raises:
            NotFound: The tenant has no such delivery.
        """
        *values, data = (await self._one(_GET, tenant, endpoint_id, event_id)).values()
        return DeliveryWithPayload(Delivery(*values), data)

    async def payloads(self, deliveries: Sequence[Delivery]) -> dict[int, str | None]:
        """
        The payloads of a page of deliveries, by their ``delivery_id``.

        Returns:
            JSON text as it was written, or None where it is no longer kept; nothing of a delivery that is gone, and of
            those from which on all have more than 8 MiB together.
        """
        async with self._database.session() as session:
            rows = await session.fetch(_PAYLOADS, [one.delivery_id for one in deliveries], PAGE_BYTES)
        return {row["delivery_id"]: row["data"] for row in rows}

    async def retry(
        self,
        tenant: str | None,
        endpoint_id: str,
        event_id: str | None = None,
        *,
        states: Sequence[DeliveryState] | None = None,
    ) -> int:
        """
        Try one delivery of an endpoint again now, or all its dead letters.

        An endpoint that is held back is asked at once. Of dead letters, those whose payload is gone are passed over.

        Args:
            tenant: The tenant of the endpoint; None is for administrators.
            endpoint_id: The endpoint that did not get the event.
            event_id: The event of the delivery, whatever its outcome; None for all dead letters of the endpoint.
            states: Only if the delivery that is named is in one of these states.

        Returns:
            How many deliveries are tried again.

        Raises:
            NotFound: The tenant has no such delivery or endpoint.
            NotAllowed: The delivery is on its way, has expired or was erased, its endpoint is disabled, it is behind
                others in an order, its payload is gone, or it is in none of the states.
        """
        return await self._decide("retry", tenant, endpoint_id, event_id, states)

    async def drop(
        self,
        tenant: str | None,
        endpoint_id: str,
        event_id: str | None = None,
        *,
        states: Sequence[DeliveryState] | None = None,
    ) -> int:
        """
        Drop one delivery of an endpoint, or all its dead letters: they are not tried again, and their order goes on.

        Args:
            tenant: The tenant of the endpoint; None is for administrators.
            endpoint_id: The endpoint that did not get the event.
            event_id: The event of the delivery; None for all dead letters of the endpoint.
            states: Only if the delivery that is named is in one of these states.

        Returns:
            How many deliveries are dropped.

        Raises:
            NotFound: The tenant has no such delivery or endpoint.
            NotAllowed: The delivery is on its way, has arrived, has expired, was erased, or is in none of the states.
        """
        return await self._decide("drop", tenant, endpoint_id, event_id, states)

    def retry_many(self, which: DeliveryFilter, *, step: int = _STEP) -> AsyncIterator[int]:
        """
        Try many again, in their order: dead ones, or those of the states that are given (dead, done, dropped).

        What cannot be, because it has expired, its endpoint is disabled or its payload gone, is passed over. Each step
        is a transaction of its own; ending early leaves the rest as it is.

        Args:
            which: Those that are tried again; without states, the dead ones.
            step: How many deliveries one transaction decides about.

        Yields:
            How many are tried again so far, after each step.

        Raises:
            InvalidValue: Deliveries of such a state are not tried again.
        """
        return self._decide_many("retry", replace(which, states=which.states or ["dead"]), step)

    def drop_many(self, which: DeliveryFilter, *, step: int = _STEP) -> AsyncIterator[int]:
        """
        Drop many dead letters: they are not tried again, and what waits for them in an order goes on.

        Each step is a transaction of its own; ending early leaves the rest as it is.

        Args:
            which: Those that are dropped; its states are not looked at, for only dead ones are.
            step: How many deliveries one transaction decides about.

        Yields:
            How many are dropped so far, after each step.
        """
        return self._decide_many("drop", replace(which, states=["dead"]), step)

    async def _place(self, tenant: str | None, cursor: str) -> int:
        endpoint_id, between, event_id = cursor.partition("/")
        with suppress(NotFound):
            if between:
                return int((await self._one(_PLACE, tenant, endpoint_id, event_id))["delivery_id"])
        raise InvalidPageCursor(
            f"{cursor!r:.80} is not a cursor of this list, or its delivery is gone: begin with the first page"
        )

    async def _one(self, sql: str, tenant: str | None, endpoint_id: str, event_id: str) -> Row:
        async with self._database.session() as session:
            row = await session.fetchrow(sql, endpoint_id, event_id, tenant)
        if row is None:
            said = f"there is no delivery of event {event_id!r:.80} to endpoint {endpoint_id!r:.80}"
            raise NotFound(said, "unknown_delivery")
        return row

    async def _decide(
        self,
        decision: _Decision,
        tenant: str | None,
        endpoint_id: str,
        event_id: str | None,
        states: Sequence[DeliveryState] | None,
    ) -> int:
        if event_id is None:
            await Endpoints(self._database).get(tenant, endpoint_id)
            which = DeliveryFilter(tenant=tenant, endpoint_id=endpoint_id, states=["dead"])
            return [changed async for changed in self._decide_many(decision, which, _STEP)][-1]
        async with self._database.session() as session:
            await call(session, _DECIDE, decision, tenant, endpoint_id, event_id, states and list(states))
        return 1

    async def _decide_many(self, decision: _Decision, which: DeliveryFilter, step: int) -> AsyncIterator[int]:
        changed, after = 0, 0
        while after is not None:
            async with self._database.session() as session:
                row = await call(session, _DECIDE_MANY, decision, *_arguments(which), after, step)
            changed, after = changed + row["changed"], row["last_delivery_id"]
            yield changed


def _arguments(which: DeliveryFilter) -> tuple[object, ...]:
    states = None if which.states is None else list(which.states)
    topics = None if which.topics is None else list(which.topics)
    return which.tenant, which.endpoint_id, states, topics, which.since, which.until
