"""
Metrics for Prometheus: what the database tells of all projections, and how metrics are written.

Invariant: labels are the database, projections, their ranges, groups, states and roles, never sources, workers,
subscriptions, endpoints or texts: their number is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from importlib.metadata import version
from platform import python_version
from typing import Any, cast

from journal import BEGINNING
from projections.extras import from_extra
from projections.monitoring.lag import ProjectionLag, RangeLag, State
from projections.monitoring.measures import RANGE_LABELS, Durations, Measure, MetricTable, measures, single
from projections.monitoring.snapshot import Snapshot
from projections.monitoring.vacancies import roles

with from_extra("monitor"):
    from prometheus_client import Metric
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        InfoMetricFamily,
    )
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector

_FAMILIES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}


def write_metrics(
    metrics: Iterable[Metric], accept: str = "", database: str | None = None
) -> tuple[bytes, str]:
    """
    Metrics as Prometheus reads them.

    Args:
        metrics: The metrics to write.
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
    return _family(single("database_up", "Whether the database answers, 1 or 0.", float(up)))


def journals_up(snapshot: Snapshot) -> Metric:
    """Whether the journals of projections answer: of those that do not, everything else is left out."""
    up = {one.name: 1.0 for one in snapshot.projections} | dict.fromkeys(snapshot.unreached, 0.0)
    samples = [([name], value) for name, value in sorted(up.items())]
    return _family(
        Measure("journal_up", "Whether the journal that is read answers, 1 or 0.", samples, ["projection"])
    )


def families(found: Iterable[Measure]) -> list[Metric]:
    """Measures as Prometheus has them."""
    return [_family(one) for one in found]


def snapshot_metrics(snapshot: Snapshot) -> Iterable[Metric]:
    """Everything that the database tells."""
    ranges = [(one.name, part) for one in snapshot.projections for part in one.ranges]
    return [
        *range_metrics(snapshot.at, ranges),
        *families(_of_projections(snapshot)),
        journals_up(snapshot),
        *families(_of_writers(snapshot)),
        *families([_of_roles(snapshot), _of_captures(snapshot)]),
        *families(one for other in snapshot.others for one in other.metrics()),
    ]


def range_metrics(at: datetime, ranges: Iterable[tuple[str, RangeLag]]) -> Iterable[Metric]:
    """What the database tells of ranges."""
    return families(_of_ranges(at, [([name, str(part.slices)], part) for name, part in ranges]))


def _of_ranges(at: datetime, ranges: Sequence[tuple[Sequence[str], RangeLag]]) -> Iterator[Measure]:
    def horizon_age(part: RangeLag) -> float | None:
        return max((at - part.horizon).total_seconds(), 0.0) if part.horizon > BEGINNING else None

    of_each: MetricTable = {
        "lag_seconds": ("Age of the oldest event that is not handled; 0 when there is none.", "lag"),
        "backlog_events": ("Events that are not handled.", "backlog"),
        "horizon_age_seconds": ("Time since the settled horizon; none before the first event.", horizon_age),
        "parked_sources": ("Sources that wait for somebody to decide.", "parked"),
    }
    yield from measures(of_each, ranges, RANGE_LABELS)
    states = [([*labels, one.value], float(part.state is one)) for labels, part in ranges for one in State]
    yield Measure("range_state", "Whether a range is in a state, 1 or 0.", states, (*RANGE_LABELS, "state"))


def _of_projections(snapshot: Snapshot) -> Iterator[Measure]:
    def workers(one: ProjectionLag) -> int:
        return sum(worker.alive and one.name in worker.slices for worker in snapshot.workers)

    def waiting(one: ProjectionLag) -> float:
        return max((snapshot.at - (one.parked_since or snapshot.at)).total_seconds(), 0.0)

    found, labels = [([one.name], one) for one in snapshot.projections], ["projection"]
    # By projection: a cut of the ranges moves the counts of one to another, and a counter must not fall.
    handled: MetricTable = {
        "handled_events": ("Events handled since the projection was made, by all workers.", "handled"),
    }
    yield from measures(handled, found, labels, "counter")
    of_each: MetricTable = {
        "paused": ("Whether the projection is paused, 1 or 0.", "paused"),
        "journal_passed_over_events": (
            "Events of its journal that no projection gets, because their position or their slice is none.",
            "passed_over",
        ),
        "workers": ("Workers that are alive and run the projection.", workers),
        "oldest_parked_age_seconds": (
            "Time since the source that has waited longest was parked; 0 when none waits.", waiting,
        ),
    }  # fmt: skip
    yield from measures(of_each, found, labels)


def _of_writers(snapshot: Snapshot) -> Iterator[Measure]:
    # Who it is would be a label of any number of values: `projections status` names pid and application.
    ages = [writer.age for writer in snapshot.writers]
    yield single("open_writers", "Transactions that have appended and not ended.", len(ages))
    yield single(
        "oldest_open_writer_age_seconds",
        "Age of the oldest of them, which holds the horizon back; 0 when there is none.",
        max(ages, default=0.0),
    )


def _of_roles(snapshot: Snapshot) -> Measure:
    """Each role always, so that an alert sees it come and go."""
    vacant = Counter(one.role for one in snapshot.vacancies)
    samples = [([role], float(vacant[role])) for role in roles()]
    documentation = "For how much that is to be done nobody has the role, such as for how many projections."
    return Measure("vacant_roles", documentation, samples, ["role"])


def _of_captures(snapshot: Snapshot) -> Measure:
    documentation = (
        "Triggers of captured tables that are off, and keys of other types: writes without events."
    )
    return single("capture_problems", documentation, snapshot.capture_problems)


def _family(one: Measure) -> Metric:
    made: Any = _FAMILIES[one.kind](f"projections_{one.name}", one.documentation, labels=one.labels)
    for labels, value in one.samples:
        if isinstance(value, Durations):
            made.add_metric(labels, list(value.cumulated()), value.total)
        else:
            made.add_metric(labels, float(value))
    return cast("Metric", made)


class _Collected(Collector):
    """What an encoder takes."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics
