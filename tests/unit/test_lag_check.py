"""A lag that lasts is told of; one that does not, or that nobody has seen, is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from journal import SliceRange
from projections.monitoring.health import LagCheck, LagChecks
from projections.monitoring.registration import Place

T0 = datetime(2030, 1, 1, tzinfo=UTC)
PLACE = Place("projection", "p", SliceRange(0, 127))
OTHER = Place("projection", "p", SliceRange(128, 255))
ABOVE, LASTING, GAP = timedelta(seconds=30), timedelta(minutes=5), timedelta(minutes=1)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def check() -> LagCheck:
    return LagCheck(ABOVE, LASTING, GAP)


def observe(lag_check: LagCheck, at: float, lag: float) -> bool:
    return bool(lag_check.observe(T0 + seconds(at), {PLACE: seconds(lag)}))


def test_a_lag_that_is_as_old_as_limit_and_time_together_is_told_by_the_first_sample() -> None:
    assert not observe(check(), 0, 330)
    assert observe(check(), 0, 331)


def test_a_lag_that_hovers_above_the_limit_is_told_once_samples_span_the_time() -> None:
    hovering = check()

    told = [observe(hovering, at, 31) for at in range(0, 361, 60)]

    assert told == [False, False, False, False, False, True, True]


def test_a_lag_that_was_seen_at_the_limit_begins_anew() -> None:
    lag_check = check()
    for at in range(0, 300, 60):
        observe(lag_check, at, 31)
    observe(lag_check, 300, 30)

    assert not observe(lag_check, 340, 31)


def test_samples_too_far_apart_tell_nothing_of_the_time_between() -> None:
    lag_check = check()
    observe(lag_check, 0, 31)

    assert not observe(lag_check, 3600, 31)


def test_samples_far_apart_count_when_the_oldest_event_waited_all_the_time() -> None:
    lag_check = check()
    observe(lag_check, 0, 32)

    assert observe(lag_check, 301, 333)


def test_a_range_that_is_gone_is_forgotten() -> None:
    lag_check = check()
    for at in range(0, 300, 60):
        observe(lag_check, at, 31)
    lag_check.observe(T0 + seconds(300), {OTHER: seconds(31)})

    assert not observe(lag_check, 310, 31)


def test_the_range_that_lags_is_named_with_its_lag_and_since_when() -> None:
    lags = {PLACE: seconds(3600), OTHER: seconds(0)}

    (found,) = check().observe(T0, lags)

    assert found == (PLACE, seconds(3600), T0 - seconds(3570))


@given(st.data())
def test_nothing_is_told_of_a_lag_that_any_sample_of_the_time_has_seen_at_the_limit(
    data: st.DataObject,
) -> None:
    """Events wait from when they come until they are handled: the lag grows with the time, and falls at once."""
    lag_check, at, lag, low_at = check(), 0.0, 0.0, None
    for _ in range(data.draw(st.integers(1, 40))):
        passed = data.draw(st.floats(0.1, 100))
        at += passed
        lag = data.draw(st.floats(0, lag + passed))
        if lag <= ABOVE.total_seconds():
            low_at = at

        told = observe(lag_check, at, lag)

        if lag > (ABOVE + LASTING).total_seconds():
            assert told
        if low_at is not None and at - low_at <= LASTING.total_seconds():
            assert not told


def test_checks_are_kept_for_each_limit_and_time() -> None:
    checks = LagChecks()

    for at in range(0, 361, 60):
        short = checks.observe(ABOVE, seconds(60), T0 + seconds(at), {PLACE: seconds(31)})
        long = checks.observe(ABOVE, seconds(3600), T0 + seconds(at), {PLACE: seconds(31)})

    assert len(short) == 1
    assert long == []


def test_of_many_checks_the_one_asked_for_longest_ago_is_dropped() -> None:
    checks = LagChecks()
    for number in range(1000):
        checks.observe(ABOVE, seconds(number), T0, {})

    assert len(checks._checks) == 16
    assert min(lasting for _, lasting in checks._checks) == seconds(984)
