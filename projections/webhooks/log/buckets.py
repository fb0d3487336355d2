"""Spans of time that metrics are counted by: aligned, so that the same span is the same bucket in every request."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from projections.webhooks.errors import InvalidQuery

__all__ = ["Granularity", "granularity_of"]

_WRITTEN = re.compile(r"(\d{1,3})([smhdwM])", re.ASCII)
_MOST: Final = {"s": 60, "m": 60, "h": 24, "d": 31, "w": 4, "M": 12}
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SUNDAY: Final = datetime(1970, 1, 4, tzinfo=UTC)
_MONTHS: Final = 12


@dataclass(frozen=True, slots=True)
class Granularity:
    """
    How long a bucket is: so many seconds, or so many months in UTC. Weeks begin on Sunday.

    Args:
        seconds: Its length; 0 where it is in months.
        months: Its length in months.
        weekly: Whether it is in weeks.
    """

    seconds: int
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
    """
    Read a granularity: ``30s``, ``5m``, ``1h``, ``1d``, ``1w`` or ``1M``.

    Raises:
        InvalidQuery: It is none.
    """
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
