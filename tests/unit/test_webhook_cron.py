"""Lines of cron: what is refused, changes of the clocks, and ticks that passed unseen."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from projections.webhooks.cron import CronLine, DueTicks, Standstill
from projections.webhooks.errors import InvalidSchedule

PARIS, NEW_YORK = "Europe/Paris", "America/New_York"


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _ticks(line: CronLine, start: str, end: str) -> list[str]:
    """All ticks in a span of UTC, as UTC."""
    ticks, tick = [], line.next_tick(_utc(start) - timedelta(microseconds=1))
    while tick is not None and tick < _utc(end):
        ticks.append(f"{tick:%H:%M}")
        tick = line.next_tick(tick)
    return ticks


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "* * * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "5-1 * * * *",
        "a * * * *",
        "@never",
        "@reboot",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "0 0 0 30 2 *",
        "² * * * *",
    ],
)
def test_cron_invalid_rejected_at_create(text: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        CronLine(text, PARIS)

    assert repr(text) in str(refused.value)


def test_a_long_line_is_refused() -> None:
    with pytest.raises(InvalidSchedule, match="up to 256 characters, not"):
        CronLine("0," * 200 + "0 * * * *")


@pytest.mark.parametrize(
    "zone",
    [
        "",
        "Mars/Base",
        "Europe",
        "../etc/passwd",
        "/etc/localtime",
        "localtime",
        "right/UTC",
        "a\0b",
        "é",
        ".",
    ],
)
def test_an_unknown_time_zone_is_named(zone: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        CronLine("* * * * *", zone)

    assert repr(zone) in str(refused.value)


@pytest.mark.parametrize(
    ("alias", "tick"),
    [
        ("@hourly", "2026-03-04T06:00"),
        ("@daily", "2026-03-05T00:00"),
        ("@midnight", "2026-03-05T00:00"),
        ("@weekly", "2026-03-08T00:00"),
        ("@monthly", "2026-04-01T00:00"),
        ("@yearly", "2027-01-01T00:00"),
        (" @Annually ", "2027-01-01T00:00"),
    ],
)
def test_aliases_stand_for_the_first_moment_of_their_span(alias: str, tick: str) -> None:
    assert CronLine(alias).next_tick(_utc("2026-03-04T05:06:07")) == _utc(tick)


def test_a_tick_is_later_than_the_time_it_follows() -> None:
    line = CronLine("*/5 * * * *")

    assert line.next_tick(_utc("2026-01-01T00:04:59.999999")) == _utc("2026-01-01T00:05")
    assert line.next_tick(_utc("2026-01-01T00:05:00")) == _utc("2026-01-01T00:10")


def test_ticks_are_in_utc_whatever_the_zones() -> None:
    after = datetime.fromisoformat("2026-07-01T00:00:00+09:00")

    tick = CronLine("0 9 * * *", PARIS).next_tick(after)

    assert tick == _utc("2026-07-01T07:00")
    assert tick is not None
    assert tick.tzinfo is UTC


def test_six_fields_have_the_seconds_first() -> None:
    assert CronLine("15,45 30 2 * * *").next_tick(_utc("2026-01-01T02:30:15")) == _utc("2026-01-01T02:30:45")


def test_a_leap_day_comes_every_four_years() -> None:
    line = CronLine("0 0 29 2 *", PARIS)

    assert line.next_tick(_utc("2026-01-01")) == _utc("2028-02-28T23:00")
    assert line.next_tick(_utc("2096-03-01")) == _utc("2104-02-28T23:00")


def test_the_last_day_of_a_month_can_be_asked_for() -> None:
    assert CronLine("0 0 L * *").next_tick(_utc("2028-02-01")) == _utc("2028-02-29")


# In Paris, 02:00 became 03:00 at 01:00 UTC on 29 March 2026; in New York at 07:00 UTC on 8 March.
@pytest.mark.parametrize(
    ("text", "paris", "new_york"),
    [
        ("30 2 * * *", ["01:00"], ["07:00"]),
        ("0,30 2 * * *", ["01:00"], ["07:00"]),
        ("30 1 * * *", ["00:30"], ["06:30"]),
        ("30 3 * * *", ["01:30"], ["07:30"]),
        ("0 1-3 * * *", ["00:00", "01:00"], ["06:00", "07:00"]),
        ("*/30 * * * *", ["00:00", "00:30", "01:00", "01:30"], ["06:00", "06:30", "07:00", "07:30"]),
        ("0 30 2 * * *", [], []),
    ],
)
def test_cron_dst_gap(text: str, paris: list[str], new_york: list[str]) -> None:
    assert _ticks(CronLine(text, PARIS), "2026-03-29T00:00", "2026-03-29T02:00") == paris
    assert _ticks(CronLine(text, NEW_YORK), "2026-03-08T06:00", "2026-03-08T08:00") == new_york


# In Paris, 03:00 became 02:00 at 01:00 UTC on 25 October 2026;
# in New York 02:00 became 01:00 at 06:00 UTC on 1 November.
@pytest.mark.parametrize(
    ("zone", "text", "start", "end", "ticks"),
    [
        (PARIS, "30 2 * * *", "2026-10-25T00:00", "2026-10-25T02:00", ["00:30"]),
        (PARIS, "0 2,3 * * *", "2026-10-25T00:00", "2026-10-25T03:00", ["00:00", "02:00"]),
        (PARIS, "*/30 * * * *", "2026-10-25T00:00", "2026-10-25T02:00", ["00:00", "00:30", "01:00", "01:30"]),
        (PARIS, "0 30 2 * * *", "2026-10-25T00:00", "2026-10-25T02:00", ["00:30", "01:30"]),
        (NEW_YORK, "30 1 * * *", "2026-11-01T05:00", "2026-11-01T07:00", ["05:30"]),
        (NEW_YORK, "30 2 * * *", "2026-11-01T05:00", "2026-11-01T08:00", ["07:30"]),
        (NEW_YORK, "0 * * * *", "2026-11-01T05:00", "2026-11-01T08:00", ["05:00", "06:00", "07:00"]),
        (NEW_YORK, "0 30 1 * * *", "2026-11-01T05:00", "2026-11-01T07:00", ["05:30", "06:30"]),
    ],
)
def test_cron_dst_fold(zone: str, text: str, start: str, end: str, ticks: list[str]) -> None:
    assert _ticks(CronLine(text, zone), start, end) == ticks


def test_in_the_repeated_hour_no_tick_is_in_the_past() -> None:
    # 02:15 for the second time: 02:30 was an hour and a quarter ago, and comes tomorrow.
    tick = CronLine("30 2 * * *", PARIS).next_tick(_utc("2026-10-25T01:15"))

    assert tick == _utc("2026-10-26T01:30")


def test_nothing_is_due_before_its_time() -> None:
    first = _utc("2026-01-01T01:00")

    assert CronLine("@hourly").due_ticks(first, first - timedelta(microseconds=1), "all") == DueTicks(
        (), first
    )


@pytest.mark.parametrize("missed", ["skip", "one", "all"])
def test_a_tick_in_time_is_sent_under_every_policy(missed: object) -> None:
    first = _utc("2026-01-01T01:00")

    due = CronLine("@hourly").due_ticks(first, first + timedelta(seconds=1), missed)  # type: ignore[arg-type]

    assert due == DueTicks((first,), _utc("2026-01-01T02:00"))


def _away(until: str) -> list[Standstill]:
    return [Standstill(_utc("2025-12-31T00:00"), _utc(until))]


def test_cron_missed_ticks_policy_skip() -> None:
    line, first = CronLine("@hourly"), _utc("2026-01-01T01:00")

    assert line.due_ticks(first, _utc("2026-01-01T04:30"), "skip", _away("2026-01-01T04:30")) == DueTicks(
        (), _utc("2026-01-01T05:00"), 4
    )
    assert line.due_ticks(
        first, _utc("2026-01-01T05:00:59"), "skip", _away("2026-01-01T05:00:59")
    ) == DueTicks((_utc("2026-01-01T05:00"),), _utc("2026-01-01T06:00"), 4)


def test_cron_missed_ticks_policy_one() -> None:
    due = CronLine("@hourly").due_ticks(
        _utc("2026-01-01T01:00"), _utc("2026-01-01T04:30"), "one", _away("2026-01-01T04:10")
    )

    assert due == DueTicks((_utc("2026-01-01T04:00"),), _utc("2026-01-01T05:00"), 3)


@pytest.mark.parametrize("missed", ["skip", "one", "all"])
def test_a_tick_that_was_due_while_somebody_could_send_is_late_and_not_missed(missed: Any) -> None:
    first, now = _utc("2026-01-01T01:00"), _utc("2026-01-01T08:30")
    nobody = [Standstill(_utc("2026-01-01T03:00"), _utc("2026-01-01T06:30"))]

    due = CronLine("@hourly").due_ticks(first, now, missed, nobody)

    between = {"skip": [], "one": ["06"], "all": ["04", "05", "06"]}[missed]
    assert [f"{tick:%H}" for tick in due.ticks] == ["01", "02", "03", *between, "07", "08"]
    assert due.next_at == _utc("2026-01-01T09:00")
    assert due.skipped == {"skip": 3, "one": 2, "all": 0}[missed]


def test_cron_missed_ticks_policy_all() -> None:
    line, now = CronLine("@hourly"), _utc("2026-01-01T05:30")

    some = line.due_ticks(_utc("2026-01-01T01:00"), now, "all", limit=3)
    assert some.next_at is not None
    rest = line.due_ticks(some.next_at, now, "all", limit=3)

    assert [f"{tick:%H}" for tick in some.ticks + rest.ticks] == ["01", "02", "03", "04", "05"]
    assert rest.next_at == _utc("2026-01-01T06:00")


def test_a_year_of_missed_seconds_is_not_walked_through() -> None:
    line = CronLine("* * * * * *")
    now = _utc("2026-12-31T00:00:00.5")

    due = line.due_ticks(_utc("2026-01-01T00:00"), now, "one", [Standstill(_utc("2025-12-31T00:00"), now)])

    assert due == DueTicks((_utc("2026-12-31T00:00"),), _utc("2026-12-31T00:00:01"), 100)


@pytest.mark.slow
def test_without_the_extra_the_error_names_it() -> None:
    program = """
import sys
sys.modules["cronsim"] = None
from projections.webhooks.cron import CronLine
try:
    CronLine("@daily")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "pip install 'slice-projections[webhooks]'" in done.stdout
