"""Lines of cron: no text breaks them, and ticks do not depend on where one begins to look."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from projections.webhooks.cron import CronLine, Standstill
from projections.webhooks.errors import InvalidSchedule

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


@settings(max_examples=50)
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
