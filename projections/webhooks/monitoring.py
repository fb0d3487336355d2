"""The part of the monitor that shows endpoints and their deliveries, and acts on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import offsets
from journal import Database, NotAllowed, Session, entity_types
from projections.monitoring import (
    DEAD_LISTED,
    LISTED,
    Action,
    Measure,
    MetricTable,
    Monitored,
    Observed,
    Text,
    Vacancy,
    measures,
    seconds,
    shown,
    single,
)
from projections.terminal.ages import age
from projections.webhooks.deliveries import Deliveries
from projections.webhooks.endpoints import Endpoints, EndpointState
from projections.webhooks.fan_out import FAN_OUT
from projections.webhooks.messages import MESSAGE
from projections.webhooks.stats import (
    DeadDelivery,
    EndpointStats,
    WebhookTotals,
    endpoint_stats,
    newest_dead,
    webhook_totals,
)

_SAMPLE = 200
"""Attempts of each endpoint whose success and times are reported: the newest ones of the last hour."""
_LATE = 60.0
"""Seconds after which what is due, and would be done at once, is done by nobody."""
_DELIVER = "projections webhooks deliver"
_GAUGES: MetricTable = {
    "webhook_failing_endpoints": ("Active endpoints with something to send whose last attempts failed.", "failing"),
    "webhook_failing_seconds": (
        "For how long the attempts at one of these have failed; 0 when there is none.", "failing_for",
    ),
    "webhook_lag_seconds": (
        "Age of the oldest delivery of an active endpoint that has not arrived and is not dead.", "lag",
    ),
    "webhook_overdue_seconds": (
        "How long a delivery has been due that nothing holds back; 0 when there is none.", "overdue",
    ),
    "webhook_ticks_lag_seconds": (
        "How long the tick of a schedule has been due that has waited longest; 0 when none is due.", "ticks_lag",
    ),
    "webhook_expired_certificates": (
        "Endpoints that are not disabled and whose client certificate has expired.", "expired_certificates",
    ),
    "webhook_certificate_expires_in_seconds": (
        "How long until the next client certificate of such an endpoint expires; +Inf when there is none.",
        lambda totals: math.inf if totals.certificate_expires_in is None else totals.certificate_expires_in,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Webhooks(Observed):
    """All endpoints together: how late they are is for metrics, they have no ranges."""

    totals: WebhookTotals
    never_made: bool
    """Whether messages are sent, and nobody has ever made deliveries of them."""

    def metrics(self) -> Iterator[Measure]:
        yield self._by_state(
            "webhook_endpoints", "Endpoints of webhooks, by state.", ("active", "paused", "disabled")
        )
        yield self._by_state(
            "webhook_deliveries",
            "Deliveries that have not arrived: those in flight, those to come, those behind others, and dead letters.",
            ("in_flight", "pending", "waiting", "dead"),
        )
        yield from measures(_GAUGES, [((), self.totals)])
        yield single(
            "webhook_ticks_skipped",
            "Ticks of schedules that no process could send in time, and that their schedules do not want later.",
            self.totals.ticks_skipped,
            "counter",
        )
        yield single(
            "webhook_deliveries_expired",
            "Deliveries that were not made by their expiry, of the endpoints that there are.",
            self.totals.expired,
            "counter",
        )

    def vacancies(self, idle: Sequence[str]) -> Iterator[Vacancy]:
        totals = self.totals
        if self.never_made:
            yield Vacancy("delivery", "nobody has ever made deliveries of messages that are sent", _DELIVER)
        for name in idle:
            entity_type = name.removeprefix(FAN_OUT)
            yield Vacancy("delivery", f"nobody makes deliveries of events of {entity_type!r}", _DELIVER)
        if totals.overdue > _LATE and not totals.in_flight:
            waits = f"{totals.pending} pending, the first one due for {age(totals.overdue)}"
            yield Vacancy("delivery", f"nobody delivers webhooks: {waits}", _DELIVER)
        if totals.ticks_lag > _LATE:
            waits = f"a tick has been due for {age(totals.ticks_lag)}"
            yield Vacancy("schedules", f"nobody sends the ticks of schedules: {waits}", _DELIVER)

    async def page(self, database: Database) -> dict[str, Any]:
        stats: Sequence[EndpointStats] = ()
        dead: Sequence[DeadDelivery] = ()
        if self.totals.endpoints:
            async with database.session() as session:
                stats = await endpoint_stats(session, sample=_SAMPLE, most=LISTED)
                if given_up := [one.endpoint_id for one in stats if one.dead]:
                    dead = await newest_dead(session, given_up, DEAD_LISTED, LISTED)
        return {
            "webhooks": self.totals._asdict(),
            "endpoints": [_endpoint(one) for one in stats],
            "dead_deliveries": [_dead_delivery(one) for one in dead],
        }

    def _by_state(self, name: str, documentation: str, states: tuple[str, ...]) -> Measure:
        samples = [([state], getattr(self.totals, state)) for state in states]
        return Measure(name, documentation, samples, ["state"])


async def _look(session: Session) -> _Webhooks:
    totals = await webhook_totals(session)
    never_made = (
        totals.endpoints > totals.disabled
        and f"{FAN_OUT}{MESSAGE}" not in await offsets.names(session)
        and MESSAGE in await entity_types(session)
    )
    return _Webhooks(totals, never_made)


def _endpoint(one: EndpointStats) -> dict[str, Any]:
    names = (
        "tenant host verified state reason success attempts median slowest_percent pending waiting in_flight dead "
        "expired lag failures failing_since blocked_until"
    )
    return {"id": one.endpoint_id, **shown(one, names)}


def _dead_delivery(one: DeadDelivery) -> dict[str, Any]:
    ids = {"id": one.delivery_id, "endpoint": one.endpoint_id, "event": one.event_id}
    died = {"code": one.last_code, "died_at": seconds(one.finished_at)}
    return {**ids, **shown(one, "topic attempts"), **died}


def _from(before: EndpointState, after: EndpointState, reason: str | None, said: str) -> Action:
    """A change of an endpoint's state, from that which was shown."""

    async def change(database: Database, endpoint: Text) -> str:
        await Endpoints(database).set_state(None, endpoint, after, reason, expected=[before])
        return f"{endpoint} {said}"

    return change


async def _retry(database: Database, endpoint: Text, event_id: Text) -> str:
    await Deliveries(database).retry(None, endpoint, event_id, states=["dead"])
    return f"{event_id} is sent again"


async def _drop(database: Database, endpoint: Text, event_id: Text) -> str:
    await Deliveries(database).drop(None, endpoint, event_id, states=["dead"])
    return f"{event_id} is dropped"


async def _retry_all(database: Database, endpoint: Text) -> str:
    retried = await Deliveries(database).retry(None, endpoint)
    if not retried:
        raise NotAllowed(
            f"none is sent again: {endpoint} has no dead letter whose payload is kept, or is disabled",
            "not_retriable",
        )
    what = "1 delivery is" if retried == 1 else f"{retried} deliveries are"
    return f"{what} sent again to {endpoint}"


MONITORED = Monitored(
    _look,
    {
        "pause-endpoint": _from("active", "paused", "paused at the monitor", "is paused"),
        "resume-endpoint": _from("paused", "active", None, "goes on"),
        "enable-endpoint": _from("disabled", "active", None, "is enabled"),
        "retry-delivery": _retry,
        "drop-delivery": _drop,
        "retry-endpoint": _retry_all,
    },
    internal=[FAN_OUT],
    roles=["delivery", "schedules"],
)
