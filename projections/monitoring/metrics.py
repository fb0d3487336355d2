"""
Metrics for Prometheus: what the database tells of all projections, and how metrics are written.

Invariant: labels are the database, projections, their ranges, groups and states, never sources, workers, subscriptions,
endpoints or texts: their number is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from importlib.metadata import version
from platform import python_version

from journal import BEGINNING
from projections.extras import from_extra
from projections.monitoring.lag import RangeLag, State
from projections.monitoring.registration import Measure
from projections.monitoring.snapshot import Snapshot

with from_extra("monitor"):
    from prometheus_client import Metric
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector

RANGE_LABELS = ("projection", "range")
_PROJECTION_LABEL = ("projection",)


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
        *(_family(measure) for other in snapshot.others for measure in other.metrics()),
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


def _family(measure: Measure) -> Metric:
    family = CounterMetricFamily if measure.counts else GaugeMetricFamily
    made = family(f"projections_{measure.name}", measure.documentation, labels=measure.labels)
    for labels, value in measure.samples:
        made.add_metric(labels, value)
    return made


def _gauge(name: str, documentation: str, labels: Iterable[str] = RANGE_LABELS) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, labels=tuple(labels))


class _Collected(Collector):
    """What an encoder takes."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics
