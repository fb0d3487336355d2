"""
Metrics for Prometheus: what the database tells of all projections, and how metrics are written.

Invariant: labels are the database, projections, their ranges, groups and states, never sources, workers, subscriptions,
endpoints or texts: their number is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from importlib.metadata import version
from math import nan
from platform import python_version
from typing import TypeAlias, TypeVar

from journal import BEGINNING
from projections.extras import from_extra
from projections.monitoring.groups import GroupLag
from projections.monitoring.lag import RangeLag, State
from projections.monitoring.snapshot import Snapshot
from projections.monitoring.webhooks import WebhookTotals

with from_extra("monitor"):
    from prometheus_client import Metric
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector

RANGE_LABELS = ("projection", "range")
_PROJECTION_LABEL = ("projection",)
_STATE_LABEL = ("state",)

T = TypeVar("T")
_Gauges: TypeAlias = dict[str, tuple[str, Callable[[T], float]]]
"""By the end of its name, what a gauge says, and its value."""


def write_metrics(
    metrics: Iterable[Metric], accept: str = "", database: str | None = None
) -> tuple[bytes, str]:
    """
    Metrics as Prometheus reads them.

    Args:
        metrics: What to write.
        accept: The ``Accept`` header of the request.
        database: The name of the database that they are about: a label of every series. None: not known yet.

    Returns:
        The text and its content type.
    """
    encode, content_type = choose_encoder(accept)
    return encode(_Collected(metrics if database is None else _labelled(metrics, database))), content_type


def _labelled(metrics: Iterable[Metric], database: str) -> Iterator[Metric]:
    for metric in metrics:
        metric.samples = [
            sample._replace(labels={"database": database, **sample.labels}) for sample in metric.samples
        ]
        yield metric


def build_info() -> Metric:
    """Which version this is."""
    values = {"version": version("slice-projections"), "python": python_version()}
    return InfoMetricFamily("projections_build", "Version of the library and of Python.", value=values)


def database_up(*, up: bool) -> Metric:
    """Whether the database answers: where it does not, everything that it tells is left out."""
    return GaugeMetricFamily("projections_database_up", "Whether the database answers, 1 or 0.", float(up))


def snapshot_metrics(snapshot: Snapshot) -> Iterable[Metric]:
    """Everything that the database tells."""
    ranges = [(one.name, part) for one in snapshot.projections for part in one.ranges]
    return [
        *range_metrics(snapshot.at, ranges),
        *_of_projections(snapshot),
        *_of_writers(snapshot),
        *_of_groups(snapshot),
        *([] if snapshot.webhooks is None else _of_webhooks(snapshot.webhooks)),
    ]


def range_metrics(at: datetime, ranges: Iterable[tuple[str, RangeLag]]) -> Iterable[Metric]:
    """What the database tells of ranges."""
    lag = _gauge(
        "projections_lag_seconds", "Age of the oldest event that is not handled; 0 when there is none."
    )
    backlog = _gauge("projections_backlog_events", "Events that are not handled.")
    horizon = _gauge(
        "projections_horizon_age_seconds", "Time since the settled horizon; none before the first event."
    )
    parked = _gauge("projections_parked_sources", "Sources that wait for somebody to decide.")
    state = _gauge(
        "projections_range_state", "Whether a range is in a state, 1 or 0.", (*RANGE_LABELS, "state")
    )
    for name, part in ranges:
        labels = [name, str(part.slices)]
        lag.add_metric(labels, part.lag)
        backlog.add_metric(labels, part.backlog)
        parked.add_metric(labels, part.parked)
        if part.horizon > BEGINNING:
            horizon.add_metric(labels, max((at - part.horizon).total_seconds(), 0.0))
        for one in State:
            state.add_metric([*labels, one.value], float(part.state is one))
    return [lag, backlog, horizon, parked, state]


def _of_projections(snapshot: Snapshot) -> Iterator[Metric]:
    # By projection: a cut of the ranges moves the counts of one to another, and a counter must not fall.
    handled = CounterMetricFamily(
        "projections_handled_events",
        "Events handled since the projection was made, by all workers.",
        labels=_PROJECTION_LABEL,
    )
    paused = _gauge("projections_paused", "Whether the projection is paused, 1 or 0.", _PROJECTION_LABEL)
    workers = _gauge(
        "projections_workers", "Workers that are alive and run the projection.", _PROJECTION_LABEL
    )
    waiting = _gauge(
        "projections_oldest_parked_age_seconds",
        "Time since the source that has waited longest was parked; 0 when none waits.",
        _PROJECTION_LABEL,
    )
    for one in snapshot.projections:
        handled.add_metric([one.name], one.handled)
        paused.add_metric([one.name], float(one.paused))
        alive = [worker for worker in snapshot.workers if worker.alive and one.name in worker.projections]
        workers.add_metric([one.name], len(alive))
        since = one.parked_since or snapshot.at
        waiting.add_metric([one.name], max((snapshot.at - since).total_seconds(), 0.0))
    yield from (handled, paused, workers, waiting)


def _of_writers(snapshot: Snapshot) -> Iterator[Metric]:
    # Who it is would be a label of any number of values: `projections status` names pid and application.
    ages = [writer.age for writer in snapshot.writers]
    yield GaugeMetricFamily(
        "projections_open_writers", "Transactions that have appended and not ended.", float(len(ages))
    )
    yield GaugeMetricFamily(
        "projections_oldest_open_writer_age_seconds",
        "Age of the oldest of them, which holds the horizon back; 0 when there is none.",
        max(ages, default=0.0),
    )


_OF_GROUPS: _Gauges[GroupLag] = {
    "lag_seconds": (
        "Age of the oldest event that is not read, or is not matched and may be for the group; 0 when there is none.",
        lambda group: group.lag,
    ),
    "backlog_matches": ("Matches that are not read.", lambda group: group.backlog),
    "unmatched_events": (
        "Events that may be for the group, and are still to be matched.",
        lambda group: group.unmatched,
    ),
    "catching_up_subscriptions": (
        "Subscriptions that catch up with the past.",
        lambda group: len(group.catching_up),
    ),
    "catching_up_events": (
        "Events of the past that these have looked at.",
        lambda group: sum(one.events for one in group.catching_up),
    ),
    "catching_up_remaining_seconds": (
        "How long they still take at the speed until now; 0 when there is none, NaN when nothing says so yet.",
        lambda group: nan if group.remaining is None else group.remaining,
    ),
    "ranges": ("Ranges into which the group is cut.", lambda group: len(group.ranges)),
    "ranges_without_reader": (
        "Ranges that no reader that is alive holds.",
        lambda group: group.without_reader,
    ),
    "retries": ("Batches that failed and are to be handled again.", lambda group: group.retries),
    "dead_letters": ("Batches that wait for somebody to decide.", lambda group: group.dead),
    "handlers_missing": (
        "Handlers that no consumer has, though matches wait for them.",
        lambda group: len(group.missing),
    ),
}
_OF_WEBHOOKS: _Gauges[WebhookTotals] = {
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


def _gauges(
    prefix: str, gauges: _Gauges[T], things: Iterable[tuple[Sequence[str], T]], labels: Sequence[str] = ()
) -> Iterator[Metric]:
    """A metric for each gauge, with a sample for each thing, which comes with the values of its labels."""
    for name, (documentation, value) in gauges.items():
        family = GaugeMetricFamily(f"projections_{prefix}_{name}", documentation, labels=labels)
        for values, thing in things:
            family.add_metric(values, value(thing))
        yield family


def _of_groups(snapshot: Snapshot) -> Iterator[Metric]:
    groups = [([one.name], one) for one in snapshot.groups]
    yield from _gauges("group", _OF_GROUPS, groups, ["group"])
    yield GaugeMetricFamily(
        "projections_quarantined_conditions",
        "Conditions of subscriptions that failed on most events, or took too long, and are stopped.",
        float(len(snapshot.quarantined)),
    )
    yield GaugeMetricFamily(
        "projections_events_set_apart",
        "Events that conditions of subscriptions failed on, and that wait for somebody to decide.",
        float(snapshot.set_apart),
    )


def _of_webhooks(totals: WebhookTotals) -> Iterator[Metric]:
    endpoints = _gauge("projections_webhook_endpoints", "Endpoints of webhooks, by state.", _STATE_LABEL)
    for state in ("active", "paused", "disabled"):
        endpoints.add_metric([state], getattr(totals, state))
    deliveries = _gauge(
        "projections_webhook_deliveries",
        "Deliveries that have not arrived: those in flight, those to come, those behind others, and dead letters.",
        _STATE_LABEL,
    )
    for state in ("in_flight", "pending", "waiting", "dead"):
        deliveries.add_metric([state], getattr(totals, state))
    yield from (endpoints, deliveries)
    yield from _gauges("webhook", _OF_WEBHOOKS, [((), totals)])
    yield CounterMetricFamily(
        "projections_webhook_ticks_skipped",
        "Ticks of schedules that no process could send in time, and that their schedules do not want later.",
        totals.ticks_skipped,
    )


def _gauge(name: str, documentation: str, labels: Iterable[str] = RANGE_LABELS) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, labels=tuple(labels))


class _Collected(Collector):
    """What an encoder takes."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics
