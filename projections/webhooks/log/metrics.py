"""
Metrics of the delivery log: what is asked, and what is made of the counts that a store has found.

A store counts by bucket and by dimensions, and leaves out what is zero; all measures follow from its counts here, so
that they are the same wherever the rows are. Buckets are aligned: the same span is the same bucket in every request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple

from projections.webhooks.checks import check_time
from projections.webhooks.errors import InvalidQuery
from projections.webhooks.log.records import checked_text
from projections.webhooks.tenant_rows import DESCRIBED

_WRITTEN = re.compile(r"(\d{1,3})([smhdwM])", re.ASCII)
_MOST: Final = {"s": 60, "m": 60, "h": 24, "d": 31, "w": 4, "M": 12}
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SUNDAY: Final = datetime(1970, 1, 4, tzinfo=UTC)
_MONTHS: Final = 12


@dataclass(frozen=True, slots=True)
class Granularity:
    """How long a bucket is: a number of seconds, or of months in UTC. Weeks begin on Sunday."""

    seconds: int
    """0 where it is in months."""
    months: int = 0
    weekly: bool = False

    @property
    def interval(self) -> str:
        """As PostgreSQL reads it."""
        return f"{self.months} months" if self.months else f"{self.seconds} seconds"

    @property
    def origin(self) -> datetime:
        """Where a bucket begins that is before all that are asked for."""
        return (_SUNDAY if self.weekly else _EPOCH) - timedelta(seconds=self.seconds)

    def start(self, time: datetime) -> datetime:
        """Where the bucket of a time begins."""
        if self.months:
            return _month(_month_number(time.astimezone(UTC)) // self.months * self.months)
        step = timedelta(seconds=self.seconds)
        return self.origin + (time - self.origin) // step * step

    def next(self, start: datetime) -> datetime:
        """Where the bucket ends that begins there."""
        if self.months:
            return _month(_month_number(start) + self.months)
        return start + timedelta(seconds=self.seconds)

    def count(self, start: datetime, end: datetime) -> int:
        """How many buckets a time has a part in."""
        first, last = self.start(start), self.start(end - timedelta(microseconds=1))
        if self.months:
            return (_month_number(last) - _month_number(first)) // self.months + 1
        return (last - first) // timedelta(seconds=self.seconds) + 1

    def starts(self, start: datetime, end: datetime) -> list[datetime]:
        """Where the buckets of a time begin."""
        found = [self.start(start)]
        for _ in range(self.count(start, end) - 1):
            found.append(self.next(found[-1]))
        return found


def granularity_of(written: str) -> Granularity:
    """Read a granularity: ``30s``, ``5m``, ``1h``, ``1d``, ``1w`` or ``1M``."""
    found = _WRITTEN.fullmatch(written)
    if found is None:
        raise InvalidQuery(f"granularity is a number and s, m, h, d, w or M, not {written!r}")
    number, unit = int(found[1]), found[2]
    if not 1 <= number <= _MOST[unit]:
        raise InvalidQuery(f"granularity in {unit} is 1 to {_MOST[unit]}, not {number}")
    if unit == "M":
        return Granularity(0, months=number)
    return Granularity(number * _SECONDS[unit], weekly=unit == "w")


def _month_number(time: datetime) -> int:
    return (time.year - _EPOCH.year) * _MONTHS + time.month - 1


def _month(number: int) -> datetime:
    try:
        return datetime(_EPOCH.year + number // _MONTHS, number % _MONTHS + 1, 1, tzinfo=UTC)
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)


ROW_LIMIT: Final = 100_000
"""The most rows of an answer, and the most buckets of a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsRequest:
    """
    What is to be measured.

    Args:
        start: From this time on; 1970 or later.
        end: Up to this time, without it.
        measures: Which: of events ``count`` and ``rate`` (a second); of attempts also ``successful_count``,
            ``failed_count``, ``error_rate`` (0 to 1), ``first_attempt_count`` (not asked for by hand), ``retry_count``,
            ``manual_retry_count``, ``avg_attempt_number``, ``successful_rate`` and ``failed_rate``.
        dimensions: By which: of events ``tenant``, ``topic`` and ``endpoint_id`` (an event counts for each); of
            attempts also ``endpoint_type``, ``status``, ``code``, ``manual`` and ``attempt_number``.
        granularity: By which span of time: ``30s``, ``5m``, ``1h``, ``1d``, ``1w`` or ``1M`` and the like; None: all
            as one. Buckets are aligned in UTC, and one in which nothing was has zeros.
        tenants: Whose; empty: of all, which is for administrators.
        filters: For dimensions the values that count; one without values lets all.
    """

    start: datetime
    end: datetime
    measures: Sequence[str] = ("count",)
    dimensions: Sequence[str] = ()
    granularity: str | None = None
    tenants: Iterable[str] = ()
    filters: Mapping[str, Iterable[str | int | bool]] = field(default_factory=dict)


class BucketCounts(NamedTuple):
    """What a store counts of the rows of a bucket; of events only how many there are."""

    total: int = 0
    successful: int = 0
    first: int = 0
    retries: int = 0
    manual: int = 0
    numbers: int = 0
    """The sum of the attempts' numbers."""


@dataclass(frozen=True, slots=True)
class DataPoint:
    """One row of an answer."""

    __pydantic_config__ = DESCRIBED

    time_bucket: datetime | None
    """Where its bucket begins; null without a granularity."""
    dimensions: Mapping[str, str]
    measures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Metrics:
    """What was measured, by bucket and dimensions."""

    __pydantic_config__ = DESCRIBED

    data: tuple[DataPoint, ...]
    granularity: str | None = None
    row_count: int = field(init=False, default=0)
    """How many rows there are."""
    row_limit: int = ROW_LIMIT
    truncated: bool = False
    """Rows are missing, because there were more than the limit."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "row_count", len(self.data))


@dataclass(frozen=True, slots=True)
class MetricsQuery:
    """A request that was checked, as stores read it; the values of filters are texts."""

    start: datetime
    end: datetime
    measures: tuple[str, ...]
    dimensions: tuple[str, ...]
    granularity: Granularity | None
    tenants: list[str] | None
    filters: dict[str, list[str]]
    written: str | None


Found = Mapping[tuple[datetime | None, tuple[str, ...]], BucketCounts]
"""By bucket and values of the dimensions."""

_MEASURES: Final[Mapping[str, Callable[[BucketCounts, float], int | float]]] = {
    "count": lambda n, _: n.total,
    "rate": lambda n, seconds: n.total / seconds,
    "successful_count": lambda n, _: n.successful,
    "failed_count": lambda n, _: n.total - n.successful,
    "error_rate": lambda n, _: (n.total - n.successful) / n.total if n.total else 0.0,
    "first_attempt_count": lambda n, _: n.first,
    "retry_count": lambda n, _: n.retries,
    "manual_retry_count": lambda n, _: n.manual,
    "avg_attempt_number": lambda n, _: n.numbers / n.total if n.total else 0.0,
    "successful_rate": lambda n, seconds: n.successful / seconds,
    "failed_rate": lambda n, seconds: (n.total - n.successful) / seconds,
}
EVENT_MEASURES: Final = ("count", "rate")
ATTEMPT_MEASURES: Final = tuple(_MEASURES)
EVENT_DIMENSIONS: Final = ("tenant", "topic", "endpoint_id")
ATTEMPT_DIMENSIONS: Final = (
    *EVENT_DIMENSIONS, "endpoint_type", "status", "code", "manual", "attempt_number",
)  # fmt: skip
_FIRST_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


def query_of(request: MetricsRequest, kind: Literal["event", "attempt"]) -> MetricsQuery:
    """Check a request for metrics."""
    measures = EVENT_MEASURES if kind == "event" else ATTEMPT_MEASURES
    dimensions = EVENT_DIMENSIONS if kind == "event" else ATTEMPT_DIMENSIONS
    _check_span(request)
    granularity = None if request.granularity is None else granularity_of(request.granularity)
    if granularity is not None and granularity.count(request.start, request.end) > ROW_LIMIT:
        raise InvalidQuery(
            f"{request.granularity} cuts that time into more than {ROW_LIMIT:,} buckets: "
            "ask for longer ones, or for less time"
        )
    return MetricsQuery(
        request.start.astimezone(UTC),
        request.end.astimezone(UTC),
        _known("measures", request.measures, measures) or ("count",),
        _known("dimensions", request.dimensions, dimensions),
        granularity,
        sorted({checked_text("tenants", one) for one in request.tenants}) or None,
        _filters(request, dimensions),
        request.granularity,
    )


def metrics_of(query: MetricsQuery, found: Found) -> Metrics:
    """
    The answer to a query, of the counts that were found; those that are zero may be missing.

    InvalidValue: with the zeros between them there would be too many rows.
    """
    truncated = len(found) > ROW_LIMIT
    keys = sorted(found, key=_order)[:ROW_LIMIT] if query.granularity is None else _filled(query, found)
    points = tuple(_point(query, key, found.get(key, BucketCounts())) for key in keys)
    return Metrics(points, query.written, ROW_LIMIT, truncated)


def _check_span(request: MetricsRequest) -> None:
    check_time("start", request.start)
    check_time("end", request.end)
    if not _FIRST_TIME <= request.start < request.end:
        raise InvalidQuery(
            f"start is in 1970 or later and before end, not {request.start} with {request.end}"
        )


def _known(name: str, given: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise InvalidQuery(f"{name} takes several: write [{given!r}]")
    unknown = [one for one in given if one not in known]
    if unknown:
        raise InvalidQuery(f"there is no {unknown[0]!r} among {name}: there are {', '.join(known)}")
    return tuple(dict.fromkeys(given))


def _filters(request: MetricsRequest, dimensions: Sequence[str]) -> dict[str, list[str]]:
    _known("filters", tuple(request.filters), dimensions)
    filters: dict[str, list[str]] = {}
    for name, values in request.filters.items():
        if isinstance(values, str):
            raise InvalidQuery(f"filter {name} takes several values: write [{values!r}]")
        if texts := sorted({_text(name, value) for value in values}):
            filters[name] = texts
    return filters


def _text(name: str, value: str | int | bool) -> str:  # noqa: FBT001 - a value of a filter
    if isinstance(value, bool):
        return str(value).lower()
    return checked_text(f"filter {name}", str(value) if isinstance(value, int) else value)


def _order(key: tuple[datetime | None, tuple[str, ...]]) -> tuple[datetime, tuple[str, ...]]:
    return key[0] or _FIRST_TIME, key[1]


def _filled(query: MetricsQuery, found: Found) -> list[tuple[datetime | None, tuple[str, ...]]]:
    """Every bucket for every combination that was seen; of all rows as one, also when there are none."""
    assert query.granularity is not None  # noqa: S101 - for mypy
    seen = sorted({values for _, values in found})
    if not query.dimensions:
        seen = [()]
    starts = query.granularity.starts(query.start, query.end)
    if len(starts) * len(seen) > ROW_LIMIT:
        raise InvalidQuery(
            f"{len(seen):,} combinations in {len(starts):,} buckets are more than {ROW_LIMIT:,} rows: "
            "ask for fewer dimensions, longer buckets, or less time"
        )
    return [(start, values) for start in starts for values in seen]


def _point(
    query: MetricsQuery, key: tuple[datetime | None, tuple[str, ...]], counts: BucketCounts
) -> DataPoint:
    start, values = key
    seconds = _seconds(query, start)
    return DataPoint(
        start,
        dict(zip(query.dimensions, values, strict=True)),
        {name: _MEASURES[name](counts, seconds) for name in query.measures},
    )


def _seconds(query: MetricsQuery, start: datetime | None) -> float:
    """What rates are over: the whole bucket, also where only a part of it was asked for."""
    if start is None or query.granularity is None:
        return (query.end - query.start).total_seconds()
    return (query.granularity.next(start) - start).total_seconds()
