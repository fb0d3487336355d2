"""The measures for Prometheus, without its package, which is an extra."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias

RANGE_LABELS = ("projection", "range")

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

MetricKind: TypeAlias = Literal["gauge", "counter", "histogram"]
MetricTable: TypeAlias = Mapping[str, tuple[str, str | Callable[[Any], float | None]]]
"""By the names of metrics: what each says, and the attribute with its value, or what computes it (None: no sample)."""


class Durations:
    """
    A histogram of seconds.

    Args:
        bounds: Upper bounds of its buckets, ascending; one without a bound is added.
    """

    def __init__(self, bounds: Sequence[float] = _SECONDS) -> None:
        self._bounds = bounds
        self._buckets = [0] * (len(bounds) + 1)
        self.total = 0.0
        """The sum of all."""

    def observe(self, seconds: float) -> None:
        """Take one in."""
        self._buckets[bisect_left(self._bounds, seconds)] += 1
        self.total += seconds

    def cumulated(self) -> Iterator[tuple[str, float]]:
        """Each bound with how many are not above it, as Prometheus wants them."""
        count = 0
        for bound, number in zip((*map(str, self._bounds), "+Inf"), self._buckets, strict=True):
            count += number
            yield bound, count


class Measure(NamedTuple):
    """
    A metric and its samples, each with the values of its labels.

    Labels are names and states, never sources, workers, subscriptions, endpoints or texts: their number is bounded.
    """

    name: str
    """Without the ``projections_`` that all begin with."""
    documentation: str
    samples: Sequence[tuple[Sequence[str], float | Durations]]
    labels: Sequence[str] = ()
    kind: MetricKind = "gauge"


def single(name: str, documentation: str, value: float | Durations, kind: MetricKind = "gauge") -> Measure:
    """A measure of one sample, without labels."""
    return Measure(name, documentation, [((), value)], (), kind)


def measures(
    which: MetricTable,
    things: Sequence[tuple[Sequence[str], object]],
    labels: Sequence[str] = (),
    kind: MetricKind = "gauge",
) -> Iterator[Measure]:
    """A measure for each of them, with a sample for each thing, which comes with the values of its labels."""
    for name, (documentation, value) in which.items():
        get = attrgetter(value) if isinstance(value, str) else value
        found = [(values, get(thing)) for values, thing in things]
        samples = [(values, number) for values, number in found if number is not None]
        yield Measure(name, documentation, samples, labels, kind)
