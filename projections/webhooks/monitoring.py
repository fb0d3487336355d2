"""What a monitor shows of endpoints and their deliveries, and what its page does with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from journal import Database, Session
from projections.monitoring.registration import (
    ActionRefused,
    Form,
    Gauges,
    Measure,
    Monitored,
    PageAction,
    Place,
    Text,
    gauges,
)
from projections.monitoring.web.snapshot_json import DEAD_LISTED, LISTED, seconds, shown
from projections.webhooks.deliveries import Deliveries, Delivery
from projections.webhooks.endpoints import Endpoints, EndpointState
from projections.webhooks.errors import NotAllowed, NotFound
from projections.webhooks.stats import EndpointStats, WebhookTotals, endpoint_stats, webhook_totals

__all__ = ["MONITORED"]

_SAMPLE = 200
"""Attempts of each endpoint whose success and times are told: the newest ones of the last hour."""
_GAUGES: Gauges[WebhookTotals] = {
    "failing_endpoints": (
        "Active endpoints with something to send whose last attempts failed.",
        lambda totals: totals.failing,
    ),
    "failing_seconds": (
        "For how long the attempts at one of these have failed; 0 when there is none.",
        lambda totals: totals.failing_for,
    ),
    "lag_seconds": (
        "Age of the oldest delivery of an active endpoint that has not arrived and is not dead.",
        lambda totals: totals.lag,
    ),
    "overdue_seconds": (
        "How long a delivery has been due that nothing holds back; 0 when there is none.",
        lambda totals: totals.overdue,
    ),
    "ticks_lag_seconds": (
        "How long the tick of a schedule has been due that has waited longest; 0 when none is due.",
        lambda totals: totals.ticks_lag,
    ),
}


class _Webhooks(NamedTuple):
    """All endpoints together."""

    totals: WebhookTotals

    def metrics(self) -> Iterator[Measure]:
        yield self._by_state(
            "webhook_endpoints", "Endpoints of webhooks, by state.", ("active", "paused", "disabled")
        )
        yield self._by_state(
            "webhook_deliveries",
            "Deliveries that have not arrived: those in flight, those to come, those behind others, and dead letters.",
            ("in_flight", "pending", "waiting", "dead"),
        )
        yield from gauges("webhook", _GAUGES, [((), self.totals)])
        yield Measure(
            "webhook_ticks_skipped",
            "Ticks of schedules that no process could send in time, and that their schedules do not want later.",
            [((), self.totals.ticks_skipped)],
            counts=True,
        )

    def lags(self) -> dict[Place, timedelta]:
        """Endpoints have no ranges: how late they are is for metrics."""
        return {}

    async def page(self, database: Database) -> dict[str, Any]:
        stats: list[EndpointStats] = []
        if self.totals.endpoints:
            async with database.session() as session:
                stats = await endpoint_stats(session, sample=_SAMPLE, most=LISTED)
        given_up = [one.endpoint_id for one in stats if one.dead]
        dead = (
            await Deliveries(database).newest_dead(given_up, each=DEAD_LISTED, limit=LISTED)
            if given_up
            else ()
        )
        return {
            "webhooks": self.totals._asdict(),
            "endpoints": [_endpoint(one) for one in stats],
            "dead_deliveries": [_dead_delivery(one) for one in dead],
        }

    def _by_state(self, name: str, documentation: str, states: tuple[str, ...]) -> Measure:
        samples = [([state], getattr(self.totals, state)) for state in states]
        return Measure(name, documentation, samples, ["state"])


async def _look(session: Session) -> _Webhooks:
    return _Webhooks(await webhook_totals(session))


def _endpoint(one: EndpointStats) -> dict[str, Any]:
    names = (
        "tenant host verified state reason success attempts median slowest_percent pending waiting in_flight dead lag "
        "failures failing_since blocked_until"
    )
    return {"id": one.endpoint_id, **shown(one, names)}


def _dead_delivery(one: Delivery) -> dict[str, Any]:
    ids = {"id": one.delivery_id, "endpoint": one.endpoint_id, "event": one.event_id}
    return {
        **ids,
        **shown(one, "topic attempts"),
        "code": one.last_code,
        "died_at": seconds(one.finished_at),
    }


class _Endpoint(Form):
    endpoint: Text


class _DeadDelivery(_Endpoint):
    event_id: Text


def _from(
    before: EndpointState, after: EndpointState, reason: str | None, said: str
) -> Callable[[Database, _Endpoint], Awaitable[str]]:
    """A change of an endpoint's state, from that which was shown."""

    async def change(database: Database, form: _Endpoint) -> str:
        await Endpoints(database).set_state(None, form.endpoint, after, reason, expected=[before])
        return f"{form.endpoint} {said}"

    return change


async def _retry(database: Database, form: _DeadDelivery) -> str:
    await Deliveries(database).retry(None, form.endpoint, form.event_id, states=["dead"])
    return f"{form.event_id} is sent again"


async def _drop(database: Database, form: _DeadDelivery) -> str:
    await Deliveries(database).drop(None, form.endpoint, form.event_id, states=["dead"])
    return f"{form.event_id} is dropped"


async def _retry_all(database: Database, form: _Endpoint) -> str:
    retried = await Deliveries(database).retry(None, form.endpoint)
    if not retried:
        raise ActionRefused(
            f"none is sent again: {form.endpoint} has no dead letter whose payload is kept, or is disabled"
        )
    what = "1 delivery is" if retried == 1 else f"{retried} deliveries are"
    return f"{what} sent again to {form.endpoint}"


MONITORED = Monitored(
    _look,
    {
        "pause-endpoint": PageAction(
            _Endpoint, _from("active", "paused", "paused at the monitor", "is paused")
        ),
        "resume-endpoint": PageAction(_Endpoint, _from("paused", "active", None, "goes on")),
        "enable-endpoint": PageAction(_Endpoint, _from("disabled", "active", None, "is enabled")),
        "retry-delivery": PageAction(_DeadDelivery, _retry),
        "drop-delivery": PageAction(_DeadDelivery, _drop),
        "retry-endpoint": PageAction(_Endpoint, _retry_all),
    },
    {NotFound: 409, NotAllowed: 409},  # it is removed, or somebody has decided about it meanwhile
)
