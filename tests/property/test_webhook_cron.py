"""Lines of cron: no text breaks them, and ticks do not depend on where one begins to look."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from projections.webhooks.cron import CronLine, Standstill
from projections.webhooks.errors import InvalidSchedule
from tests.fixtures.examples import examples

LINES = [
    CronLine(text, zone)
    for text in ("30 2 * * *", "*/20 * * * *", "15 */2 * * *", "0 30 1,2 * * *", "0 3 * * 0", "30 1-3 * * *")
    for zone in ("Europe/Paris", "America/New_York", "UTC")
]
# Around the changes of the clocks in Paris and New York.
times = st.sampled_from(
    ["2026-03-08T07:00", "2026-03-29T01:00", "2026-10-25T01:00", "2026-11-01T06:00"]
).flatmap(
    lambda change: st.integers(-40_000, 40_000).map(
        lambda away: datetime.fromisoformat(change).replace(tzinfo=UTC) + timedelta(seconds=away * 7)
    )
)


@given(st.sampled_from(LINES), times, st.timedeltas(timedelta(0), timedelta(hours=5)))
def test_a_tick_is_the_same_from_wherever_it_is_looked_for(
    line: CronLine, start: datetime, later: timedelta
) -> None:
    tick = line.next_tick(start)
    while tick is not None and tick <= start + later:
        tick = line.next_tick(tick)

    assert line.next_tick(start + later) == tick


@settings(max_examples=examples(50))
@given(st.sampled_from(LINES), times, st.timedeltas(timedelta(0), timedelta(days=3)))
def test_one_sends_for_the_last_of_all_and_both_go_on_alike(
    line: CronLine, start: datetime, away: timedelta
) -> None:
    first = line.next_tick(start)
    assert first is not None

    every = line.due_ticks(first, start + away, "all")
    latest = line.due_ticks(first, start + away, "one", [Standstill(start, start + away)])

    assert latest.ticks == every.ticks[-1:]
    assert latest.next_at == every.next_at


@given(st.text(max_size=30) | st.text("0123456789*/,-#LW @", max_size=30), st.text(max_size=10))
def test_a_text_is_a_line_or_an_invalid_schedule(text: str, zone: str) -> None:
    for name in ("UTC", zone):
        try:
            CronLine(text, name)
        except InvalidSchedule:
            continue


@given(st.lists(st.text("0123456789*/,-#LW", min_size=1, max_size=5), min_size=5, max_size=6))
def test_fields_are_a_line_or_an_invalid_schedule(fields: list[str]) -> None:
    try:
        tick = CronLine(" ".join(fields)).next_tick(datetime(2026, 1, 1, tzinfo=UTC))
    except InvalidSchedule:
        return

    assert tick is not None


# With half an hour (Lord Howe), two hours (Troll), a day that there was not (Apia), and changes backwards in summer.
ZONES = (
    "Australia/Lord_Howe", "Europe/Paris", "Europe/Dublin", "America/New_York", "America/St_Johns", "America/Nuuk",
    "Africa/Casablanca", "Africa/Cairo", "Pacific/Chatham", "Pacific/Apia", "Antarctica/Troll", "Asia/Gaza",
)  # fmt: skip
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
MINUTES = {"*": range(60), "*/20": (0, 20, 40), "7": (7,), "0,30": (0, 30), "15-45/10": (15, 25, 35, 45)}
HOURS = {"*": range(24), "*/2": range(0, 24, 2), "2": (2,), "1-3": (1, 2, 3), "0": (0,), "23,1": (1, 23)}


def _changes(zone: ZoneInfo) -> list[datetime]:
    """When the clocks change, to six hours."""
    times = [
        datetime(year, 1, 1, tzinfo=UTC) + n * 6 * HOUR for year in (2011, 2025, 2026) for n in range(4 * 365)
    ]
    offsets = [at.astimezone(zone).utcoffset() for at in times]
    return [
        times[n]
        for n in range(1, len(times))
        if offsets[n] != offsets[n - 1] and times[n].year == times[n - 1].year
    ]


CHANGES = [(name, change) for name in ZONES for change in _changes(ZoneInfo(name))]


def _expected(zone: ZoneInfo, minutes: str, hours: str, start: datetime, end: datetime) -> list[datetime]:
    """Ticks by looking at the clocks each minute, for longer than they are ever changed by."""
    longest = 26 * 60 if zone.key == "Pacific/Apia" else 5 * 60
    begin = start.replace(second=0, microsecond=0)
    around = [begin + n * MINUTE for n in range(-longest, (end - begin) // MINUTE + longest)]
    said = [(at.astimezone(zone).replace(tzinfo=None), at) for at in around]
    if "*" in minutes[:1] + hours[:1]:
        ticks = [at for wall, at in said if wall.minute in MINUTES[minutes] and wall.hour in HOURS[hours]]
    else:
        ticks, first = [], dict(reversed(said))
        wall = max(first)
        following = first[wall]
        earliest = min(first)
        while wall >= earliest:
            following = first.get(wall, following)  # what was skipped is right after the gap
            if wall.minute in MINUTES[minutes] and wall.hour in HOURS[hours]:
                ticks.append(following)
            wall -= MINUTE
    return sorted({at for at in ticks if start < at <= end})


@settings(max_examples=examples(150))
@given(
    st.sampled_from(CHANGES), st.sampled_from(sorted(MINUTES)), st.sampled_from(sorted(HOURS)),
    st.integers(-8 * 3600, 3 * 3600), st.integers(1, 5),
)  # fmt: skip
def test_ticks_are_those_that_the_clocks_of_the_zone_say(
    change: tuple[str, datetime], minutes: str, hours: str, away: int, length: int
) -> None:
    name, at = change
    start = at + timedelta(seconds=away)
    end = start + length * HOUR
    line, ticks = CronLine(f"{minutes} {hours} * * *", name), []

    tick = line.next_tick(start)
    while tick is not None and tick <= end:
        ticks.append(tick)
        tick = line.next_tick(tick)

    assert ticks == _expected(ZoneInfo(name), minutes, hours, start, end)
