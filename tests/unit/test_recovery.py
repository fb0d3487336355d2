"""Recovery strategies and their delays: pure values."""

from __future__ import annotations

from datetime import timedelta

import pytest

from projections import Backoff, Recovery
from projections.recovery import GiveUp

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
    assert (recovery.give_up, recovery.retries) == (give_up, retries)


def test_a_strategy_takes_its_own_backoff() -> None:
    backoff = Backoff(SECOND, SECOND)

    assert Recovery.retry_and_park(1, backoff).backoff is backoff


def test_fewer_than_no_retries_are_refused() -> None:
    with pytest.raises(ValueError, match="retries must be 0 or more, not -1"):
        Recovery.retry_and_skip(-1)
