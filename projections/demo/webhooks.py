"""
Webhooks of the demo: delayed departures, sent to a receiver for each airport that fails at random.

The receivers are of this process and remember nothing: a run that goes on from one that was killed has all that
arrived before sent again, and they tell by the ids.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from journal import Database, EventEnvelope, RawJson, connect
from journal.tasks import end
from projections.demo.events import ENTITY_TYPE
from projections.demo.flights import Flight, moment
from projections.demo.progress import Reporter
from projections.demo.stopping import StopRequest
from projections.monitoring import projection_lag
from projections.webhooks import (
    AddressRules,
    Deliveries,
    DeliveryFilter,
    DeliverySettings,
    Endpoints,
    EndpointSettings,
    FanOut,
    HttpSender,
    Message,
    Receiver,
    RetryPolicy,
    generate_secret,
    run_webhooks,
)

_LATE = 120
"""Minutes from which a departure is reported."""
_AIRPORTS = ("EWR", "JFK", "LGA")
_FAIL_RATE = 0.2
_LOOK = 0.1
_RULES = AddressRules(allow=("127.0.0.0/8",))
# A receiver that fails at random is neither gone nor broken: it is never given up.
_POLICY = RetryPolicy(
    schedule=(timedelta(seconds=1),) * 24,
    timeout=timedelta(seconds=5),
    breaker_failures=100,
    disable_after_failures=None,
    disable_after=None,
)
_DIFFERENT: dict[str, dict[str, Any]] = {"JFK": {"ordering": "key"}, "LGA": {"gzip": True}}
_UNFINISHED = """
SELECT count(*) FROM projections.webhook_deliveries
WHERE tenant = ANY ($1) AND state IN ('waiting', 'pending', 'leased')
"""


class Arrivals(NamedTuple):
    """The outcome of the webhooks."""

    delivered: int
    """Delayed departures that have arrived, each counted once."""
    lost: int
    """Those of the CSV file that have not."""
    bad: int
    """Requests whose signature was wrong, and arrivals that are not in the file."""
    attempts: int
    """Requests in all: those that the receivers failed are among them."""


class Webhooks:
    """Webhooks that are running, with a receiver for each airport; :func:`webhooks` starts them."""

    def __init__(self, database: Database, receivers: Sequence[Receiver]) -> None:
        self._database = database
        self._receivers = receivers

    async def settled(self) -> None:
        """Wait until every event that is in the journal has been looked at, and every delivery has arrived."""
        while not await self._all_arrived():  # noqa: ASYNC110 - the database is asked
            await asyncio.sleep(_LOOK)

    async def _all_arrived(self) -> bool:
        async with self._database.session() as session:
            behind = (await projection_lag(session, f"webhooks/{ENTITY_TYPE}")).backlog
            return not behind and not await session.fetchval(_UNFINISHED, [_tenant(a) for a in _AIRPORTS])

    def compare(self, flights: Sequence[Flight], entries: Iterable[int]) -> Arrivals:
        """Compare what has arrived with the rows of the CSV file."""
        expected = Counter(_expected(flights, entries))
        found = {
            one.message_id: _told(one.data())
            for receiver in self._receivers
            for one in receiver.received
            if one.accepted and one.verification == "verified"
        }
        arrived = Counter(found.values())
        refused = sum(receiver.totals.refused for receiver in self._receivers)
        return Arrivals(
            delivered=arrived.total(),
            lost=(expected - arrived).total(),
            bad=refused + (arrived - expected).total(),
            attempts=sum(receiver.totals.requests for receiver in self._receivers),
        )


@asynccontextmanager
async def webhooks(
    dsn: str, stopping: StopRequest, report: Reporter, *, again: bool
) -> AsyncIterator[Webhooks]:
    """
    Run webhooks for the length of the block.

    Args:
        dsn: The database.
        stopping: The request to stop, which is checked between steps.
        report: Is called with what happens.
        again: Whether to send again what has arrived at the receivers of an earlier run.
    """
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(connect(dsn))
        endpoints = Endpoints(database, rules=_RULES, allow_http=True)
        receivers = [
            await _received(stack, endpoints, place, airport) for place, airport in enumerate(_AIRPORTS)
        ]
        if again:
            for airport in _AIRPORTS:
                which = DeliveryFilter(tenant=_tenant(airport), states=("done",))
                async for _ in Deliveries(database).retry_many(which):
                    stopping.check()
        report.step(
            f"webhooks go to {len(receivers)} receivers, which fail one request in {1 / _FAIL_RATE:g}"
        )
        sender = await stack.enter_async_context(HttpSender(_RULES))
        ended = asyncio.Event()
        task = asyncio.create_task(
            run_webhooks(
                database, sender, FanOut(ENTITY_TYPE, _message),
                settings=DeliverySettings(margin=timedelta(seconds=2)), stop=ended,
            )
        )  # fmt: skip
        stack.push_async_callback(end, task)
        running = Webhooks(database, receivers)
        yield running
        await stopping.unless(running.settled(), task)
        ended.set()
        await task


async def _received(stack: AsyncExitStack, endpoints: Endpoints, place: int, airport: str) -> Receiver:
    """A receiver, and an endpoint for it: a new one, or that of an earlier run."""
    tenant = _tenant(airport)
    known = await endpoints.list(tenant)
    secrets = await endpoints.secrets(tenant, known[0].endpoint_id) if known else [generate_secret()]
    receiver = await stack.enter_async_context(Receiver(secrets, fail_rate=_FAIL_RATE, seed=place))
    if known:
        await endpoints.change(tenant, known[0].endpoint_id, {"url": receiver.url})
    else:
        settings = EndpointSettings(
            url=receiver.url, topics=("flight.delayed",), policy=_POLICY, **_DIFFERENT.get(airport, {})
        )
        await endpoints.create(tenant, settings, secrets[0])
    return receiver


def _message(envelope: EventEnvelope) -> Message | None:
    if envelope.event_type != "Departed" or (departed := envelope.payload)["delay"] < _LATE:
        return None
    return Message(_tenant(departed["origin"]), "flight.delayed", RawJson(envelope.payload_json))


def _tenant(airport: str) -> str:
    return f"demo-{airport}"


def _told(data: Any) -> tuple[str, str, str, str, int]:
    return data["origin"], data["carrier"], data["flight"], data["at"], data["delay"]


def _expected(flights: Sequence[Flight], entries: Iterable[int]) -> Iterable[tuple[str, str, str, str, int]]:
    for flight, landing in (moment(flights, entry) for entry in entries):
        delay = flight.departure_delay or 0
        if not landing and flight.departed is not None and delay >= _LATE:
            days, minutes = divmod(flight.departed_at, 1440)
            at = datetime.fromordinal(days) + timedelta(minutes=minutes)
            yield flight.origin, flight.carrier, flight.number, at.isoformat(), delay
