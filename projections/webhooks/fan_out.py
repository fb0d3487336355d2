"""Fan-out: a projection that makes a delivery of each event for each endpoint that it is for."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from cachetools import LRUCache

from journal import EntityTypes, EventEnvelope, OwnedSession, Row, check_entity_type, newest_json
from journal.tasks import Turn
from projections.defining import ExactlyOnce, Group, Kind, Projection
from projections.errors import InvalidHandler
from projections.failing import Recovery
from projections.interests import (
    MOST_CHARACTERS,
    Filter,
    FilterTooCostly,
    Purse,
    TopicMatcher,
    compile_filter,
    parse_topics,
    read_json,
)
from projections.webhooks.errors import InvalidMessage
from projections.webhooks.expiry import ExpiresAfter, Expiry
from projections.webhooks.messages import MESSAGE, Message, message_of

FAN_OUT = "webhooks/"
"""The name of a projection that makes deliveries begins with it, and goes on with the entity type."""
_BATCH = 1000
_TOGETHER = 5000
"""Deliveries that are made in one statement, or a few more: an event may be for any number of endpoints."""
_REMEMBERED = 10_000
"""Endpoints whose topics and filters a process keeps compiled."""

log = logging.getLogger("projections")

_VERSIONS = """
SELECT tenant, endpoint_id, version, updated_at FROM projections.webhook_endpoints WHERE tenant = ANY ($1)
"""
_LOAD = """
SELECT endpoint_id, version, updated_at, topics, filter::text AS filter FROM projections.webhook_endpoints
WHERE endpoint_id = ANY ($1)
"""
_FAN_OUT = "SELECT projections._fan_out_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"


class FanOut:
    """
    Makes deliveries of the events of an entity type: give it to :func:`projections.run` or to ``projections worker``.

    Deliveries and offsets commit together, and a delivery is unique for its event and endpoint: reading events again
    adds nothing. Many sources in a range need no more memory.

    Args:
        entity_type: The type of the events; by default that of the messages that :func:`send` sends.
        message: Makes a :class:`Message` out of an event; None: it is not for webhooks. By default its metadata names
            the tenant, as :func:`send` writes it. It must return the same for an event each time, and may raise: the
            event's source is parked then.
        expires_after: How long messages are good for that have no ``expires_at``, from when they were sent, or may be
            delivered: for all, or by topics and patterns, of which the first that matches counts. By default, forever.
    """

    def __init__(
        self,
        entity_type: str = MESSAGE,
        message: Callable[[EventEnvelope], Message | None] = message_of,
        *,
        expires_after: ExpiresAfter = None,
    ) -> None:
        check_entity_type(entity_type)
        if not callable(message):
            raise InvalidHandler(f"message must be a function of an envelope, not {message!r:.80}")
        self._message = message
        self._expiry = Expiry(expires_after)
        self._endpoints = _KnownEndpoints()
        self.__projection__ = Projection(
            f"{FAN_OUT}{entity_type}", EntityTypes((entity_type,)), 1, Kind.ENVELOPES, {}, lambda: self,
            ExactlyOnce(), Recovery.retry_and_park(), Group(), "ignore", _BATCH, (),
        )  # fmt: skip

    async def handle(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        """Make the deliveries of a batch, in the transaction that stores its offsets."""
        turn = Turn()  # without one, what takes too long could not be cancelled, and narrowed down
        events: list[_Outbound] = []
        for envelope in envelopes:
            await turn.over()
            if (message := self._message(envelope)) is not None:
                events.append(_Outbound(envelope, message, self._expiry))
        if not events:
            return
        endpoints = await self._endpoints.of(session, {event.message.tenant for event in events})
        some: list[_Outbound] = []
        pairs: list[_Pair] = []
        for event in events:
            wanted = []
            for endpoint_id, interest in endpoints.get(event.message.tenant, ()):
                await turn.over()
                if (pair := event.pair(len(some) + 1, endpoint_id, interest)) is not None:
                    wanted.append(pair)
            if wanted:
                some.append(event)
                pairs += wanted
            if len(pairs) >= _TOGETHER:
                await _store(session, some, pairs)
                some, pairs = [], []
        if pairs:
            await _store(session, some, pairs)


async def _store(session: OwnedSession, events: Sequence[_Outbound], pairs: Sequence[_Pair]) -> None:
    columns = map(list, zip(*(event.row() for event in events), strict=True))
    expiries = [event.expires_at for event in events]
    await session.fetchval(_FAN_OUT, *columns, *map(list, zip(*pairs, strict=True)), expiries)


class _Pair(NamedTuple):
    """An event for an endpoint, in the order of ``_fan_out_v1``."""

    place: int
    endpoint_id: str
    set_apart: str | None
    """Why it is a dead letter at once."""


class _Interest(NamedTuple):
    """Which events an endpoint wants."""

    topics: TopicMatcher
    filter: Filter | None


class _Outbound:
    """An event, and what it becomes."""

    def __init__(self, envelope: EventEnvelope, message: Message, expiry: Expiry) -> None:
        self.envelope = envelope
        self.message = message
        self._expiry = expiry
        self._purse = Purse()

    def pair(self, place: int, endpoint_id: str, interest: _Interest) -> _Pair | None:
        """What is to be made of it for an endpoint; None if it is not for that."""
        if self.message.endpoint_id not in {None, endpoint_id}:
            return None
        if not interest.topics.matches(self.message.topic):
            return None
        try:
            wanted = interest.filter is None or interest.filter.matches(self._document, self._purse)
        except FilterTooCostly as error:
            log.warning(
                "event %s is set apart for endpoint %s, as a dead letter: %s",
                self.envelope.event_id, endpoint_id, error,
                extra={"action": "filter_too_costly", "endpoint": endpoint_id},
            )  # fmt: skip
            return _Pair(place, endpoint_id, "filter_too_costly")
        return _Pair(place, endpoint_id, None) if wanted else None

    def row(self) -> tuple[Any, ...]:
        """In the order of ``_fan_out_v1``."""
        e, m = self.envelope, self.message
        return (
            str(e.event_id), e.db_timestamp, m.tenant, m.topic, e.source_id if m.order_key is None else m.order_key,
            m.not_before, m.eligible_for_retry, json.dumps(dict(m.metadata) | self._trace), self._data,
        )  # fmt: skip

    @property
    def expires_at(self) -> datetime | None:
        """When it is not attempted any more, if ever: as the message says, or else as its topic does."""
        e, m = self.envelope, self.message
        if m.expires_at is not None:
            return m.expires_at
        return self._expiry.of(m.topic, max(e.db_timestamp, m.not_before or e.db_timestamp))

    @property
    def _trace(self) -> dict[str, str]:
        """The span in which the event was written, as a label: requests are traced from there on."""
        written = self.envelope.metadata_json
        if written is None or '"traceparent"' not in written:  # most have none: look before it is parsed
            return {}
        facts = self.envelope.metadata
        span = facts.get("traceparent") if isinstance(facts, Mapping) else None
        return {"traceparent": span} if isinstance(span, str) else {}

    @cached_property
    def _data(self) -> str:
        return newest_json(self.envelope) if self.message.data is None else self.message.data

    @cached_property
    def _document(self) -> Mapping[str, Any]:
        """What filters look at; numbers as they were written."""
        if len(self._data) > MOST_CHARACTERS:  # to read it is to look at it
            raise FilterTooCostly(
                f"its data have {len(self._data):,} characters, and filters read {MOST_CHARACTERS:,}"
            )
        self._purse.pay_reading(self._data)
        try:
            data = read_json(self._data)
        except RecursionError:
            raise InvalidMessage(
                f"the data of event {self.envelope.event_id} are nested too deeply"
            ) from None
        except ValueError as error:
            raise InvalidMessage(f"the data of event {self.envelope.event_id} is not JSON: {error}") from None
        return {
            "id": str(self.envelope.event_id),
            "topic": self.message.topic,
            "time": self.envelope.db_timestamp.isoformat(),
            "metadata": self.message.metadata,
            "data": data,
        }


class _KnownEndpoints:
    """
    Remembers what endpoints want, by their versions and the times of these.

    After a fail-over, a number is given out again, for another change.
    It asks for these after the current events were read: an endpoint that was made before them is never missed.
    """

    def __init__(self) -> None:
        self._known: LRUCache[tuple[str, int, datetime], _Interest] = LRUCache(_REMEMBERED)

    async def of(
        self, session: OwnedSession, tenants: Iterable[str]
    ) -> dict[str, list[tuple[str, _Interest]]]:
        """The endpoints of tenants, and what each wants."""
        versions = await session.fetch(_VERSIONS, sorted(tenants))
        keys = [_key(row) for row in versions]
        wanted = {key: self._known[key] for key in keys if key in self._known}
        if missing := [key[0] for key in keys if key not in wanted]:
            seen, turn = {key[0]: key for key in keys}, Turn()
            for row in await session.fetch(_LOAD, missing):
                await turn.over()
                interest = self._known[_key(row)] = _interest(row)
                wanted[seen[row["endpoint_id"]]] = interest  # of a later version, too
        by_tenant: dict[str, list[tuple[str, _Interest]]] = {}
        for row, key in zip(versions, keys, strict=True):
            if key in wanted:  # or it was removed meanwhile
                by_tenant.setdefault(row["tenant"], []).append((key[0], wanted[key]))
        return by_tenant


def _key(row: Row) -> tuple[str, int, datetime]:
    return row["endpoint_id"], row["version"], row["updated_at"]


def _interest(row: Row) -> _Interest:
    chosen = None if row["filter"] is None else compile_filter(read_json(row["filter"]))
    return _Interest(parse_topics(row["topics"]), chosen)
