"""Recovery strategies, retries and their pauses: pure values."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from projections import Backoff, Recovery, Retries
from projections.failing.recovery import GiveUp

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (10_000, 10)])
def test_delays_double_up_to_the_longest(failures: int, seconds: int) -> None:
    backoff = Backoff(SECOND, 10 * SECOND)

    assert backoff.delay(failures, spread=0.5) == seconds * SECOND


@pytest.mark.parametrize(("spread", "seconds"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
def test_jitter_spreads_a_delay_to_both_sides(spread: float, seconds: float) -> None:
    backoff = Backoff(SECOND, 10 * SECOND, jitter=0.2)

    assert backoff.delay(1, spread).total_seconds() == pytest.approx(seconds)


def test_without_a_given_spread_a_delay_is_random_within_the_jitter() -> None:
    backoff = Backoff(SECOND, 10 * SECOND, jitter=0.5)

    delays = {backoff.delay(1) for _ in range(50)}

    assert len(delays) > 1
    assert all(0.5 * SECOND <= delay <= 1.5 * SECOND for delay in delays)


def test_no_jitter_is_no_spread() -> None:
    assert {Backoff(SECOND, SECOND, jitter=0).delay(3) for _ in range(10)} == {SECOND}


@pytest.mark.parametrize(
    ("recovery", "give_up", "retries"),
    [
        (Recovery.fail(), GiveUp.FAIL, 0),
        (Recovery.skip(), GiveUp.SKIP, 0),
        (Recovery.retry_and_fail(2), GiveUp.FAIL, 2),
        (Recovery.retry_and_skip(2), GiveUp.SKIP, 2),
        (Recovery.retry_and_park(), GiveUp.PARK, 3),
        (Recovery.retry_and_park(0), GiveUp.PARK, 0),
    ],
)
def test_each_strategy_says_how_often_and_what_then(
    recovery: Recovery, give_up: GiveUp, retries: int
) -> None:
    assert (recovery.give_up, recovery.retries.limit) == (give_up, retries)


def test_a_strategy_takes_its_own_retries() -> None:
    retries = Retries.doubling(1, SECOND, SECOND)

    assert Recovery.retry_and_park(retries).retries is retries


def test_retries_are_tried_one_after_another_and_then_none_is_left() -> None:
    retries = Retries([1, 60 * SECOND], jitter=0)

    assert [retries.delay(failures) for failures in (1, 2, 3, 10_000)] == [SECOND, 60 * SECOND, None, None]
    assert retries.attempts == 3


def test_the_last_pause_is_used_again_up_to_the_limit() -> None:
    retries = Retries([1, 2], limit=4, jitter=0)

    assert [retries.delay(failures) for failures in range(1, 6)] == [SECOND, *[2 * SECOND] * 3, None]


def test_a_limit_below_the_number_of_pauses_ends_them() -> None:
    assert [Retries([1, 2], limit=1, jitter=0).delay(failures) for failures in (1, 2)] == [SECOND, None]


@pytest.mark.parametrize(("spread", "seconds"), [(0.0, 8), (0.5, 10), (1.0, 12)])
def test_jitter_spreads_the_pauses_of_retries(spread: float, seconds: float) -> None:
    assert Retries([10]).delay(1, spread) == seconds * SECOND


@pytest.mark.parametrize("limit", [0, 1, 3, 30, 31, 1_000_000])
def test_doubling_retries_pause_as_a_backoff_does(limit: int) -> None:
    retries, backoff = Retries.doubling(limit, 0.1, 5), Backoff(SECOND / 10, 5 * SECOND)

    numbers = [number for number in (1, 2, 5, 30, 31, limit) if 0 < number <= limit]
    assert [retries.delay(n, 0.3) for n in numbers] == [backoff.delay(n, 0.3) for n in numbers]
    assert (retries.limit, retries.delay(limit + 1)) == (limit, None)


def test_retries_are_written_in_any_of_three_ways() -> None:
    assert Retries.of(3) == Retries.doubling(3)
    assert Retries.of([60, 300]) == Retries((60 * SECOND, 300 * SECOND), limit=2, jitter=0.2)
    assert Retries.of(Retries([1])) == Retries([SECOND])


@pytest.mark.parametrize(
    ("pauses", "limit", "jitter", "said"),
    [
        ([60, -1], None, 0.2, "0 or longer, not -1 day, 23:59:59"),
        (["soon"], None, 0.2, r"not \['soon'\]"),
        ([1e300], None, 0.2, "list of seconds"),
        ([float("nan")], None, 0.2, "list of seconds"),
        (60, None, 0.2, "list of seconds or timedeltas, not 60"),
        ([], 1, 0.2, "no pause before them"),
        ([1], -1, 0.2, "0 or more, not -1"),
        ([1], None, 1.5, "0 to 1, not 1.5"),
        ([1], None, float("nan"), "0 to 1, not nan"),
    ],
)
def test_retries_that_can_not_be_are_refused(
    pauses: Any, limit: int | None, jitter: float, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        Retries(pauses, limit, jitter)


def test_fewer_than_no_retries_are_refused() -> None:
    with pytest.raises(ValueError, match="retries must be 0 or more, not -1"):
        Recovery.retry_and_skip(-1)
