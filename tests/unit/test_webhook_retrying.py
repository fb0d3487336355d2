"""What follows an attempt, status by status, and what a policy may be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from projections.failing.retries import Backoff
from projections.webhooks.errors import InvalidEndpoint
from projections.webhooks.retry_policy import (
    AttemptVerdict,
    RetryPolicy,
    answered_at,
    judge,
    parse_policy,
    wait_asked_for,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


def _judge(code: str, retry_after: str | None = None, attempt: int = 1, **changes: Any) -> AttemptVerdict:
    policy = changes.pop("policy", RetryPolicy())
    return judge(code, retry_after, attempt, policy, **{"random": lambda: 0.5, "now": NOW} | changes)


@pytest.mark.parametrize("code", ["200", "201", "202", "204", "299"])
def test_2xx_is_done(code: str) -> None:
    assert _judge(code, attempt=10, eligible_for_retry=False) == AttemptVerdict("done")


@pytest.mark.parametrize(
    "code",
    [
        "100",
        "301",
        "302",
        "304",
        "307",
        "308",
        "400",
        "401",
        "404",
        "422",
        "500",
        "501",
        "timeout",
        "dns_error",
        "connection_refused",
        "tls_error",
        "blocked_address",
        "20",
        "2000",
        "2xx",
        "٢٠٠",
        "",
    ],
)
def test_all_else_is_tried_again_by_the_schedule(code: str) -> None:
    assert _judge(code) == AttemptVerdict("retry", timedelta(seconds=5))
    assert _judge(code, attempt=2) == AttemptVerdict("retry", timedelta(minutes=5))


def test_410_is_a_dead_letter_and_disables_the_endpoint() -> None:
    assert _judge("410", "60") == AttemptVerdict("dead", disable=True)


@pytest.mark.parametrize("code", ["429", "502", "503", "504"])
def test_too_much_to_do_pauses_the_endpoint_for_a_minute_at_least(code: str) -> None:
    assert _judge(code) == AttemptVerdict("retry", MINUTE, MINUTE)
    assert _judge(code, attempt=3) == AttemptVerdict("retry", timedelta(minutes=30), MINUTE)


def test_retry_after_seconds() -> None:
    assert _judge("429", "120") == AttemptVerdict("retry", timedelta(seconds=120), timedelta(seconds=120))
    assert _judge("500", " 120 ").pause == timedelta(seconds=120)


def test_retry_after_does_not_use_up_the_schedule_sooner() -> None:
    assert _judge("503", "1", attempt=2) == AttemptVerdict(
        "retry", timedelta(minutes=5), timedelta(seconds=1)
    )


@pytest.mark.parametrize(
    "text",
    ["Sat, 21 Nov 2026 12:02:00 GMT", "Saturday, 21-Nov-26 12:02:00 GMT", "Sat Nov 21 12:02:00 2026"],
)
def test_retry_after_http_date(text: str) -> None:
    assert _judge("429", text).pause == timedelta(minutes=2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "1.5",
        "1e3",
        "+5",
        "0x10",
        "٣",
        "120, 60",
        "Sat, 99 Nov 2026 12:02:00 GMT",
        "\x00",
        "9" * 65 + " Nov",
        "-5",
    ],
)
def test_retry_after_garbage_is_ignored(text: str) -> None:
    assert _judge("500", text) == AttemptVerdict("retry", timedelta(seconds=5))
    assert _judge("503", text).pause == MINUTE


@pytest.mark.parametrize(
    "text", ["0", "000", "Sat, 21 Nov 2026 11:59:59 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"]
)
def test_retry_after_of_zero_or_in_the_past_is_now(text: str) -> None:
    assert _judge("500", text) == AttemptVerdict("retry", timedelta(seconds=5))
    assert _judge("429", text) == AttemptVerdict("retry", timedelta(seconds=5))
    assert wait_asked_for(text, NOW, DAY) == timedelta(0)


@pytest.mark.parametrize("text", ["Tue, 01 Jan 2999 00:00:00 GMT", "99999999999999", "9" * 5000, "86401"])
def test_retry_after_year_2999_is_capped(text: str) -> None:
    assert _judge("503", text) == AttemptVerdict("retry", DAY, DAY)


def test_leading_zeros_of_retry_after_are_no_long_number() -> None:
    assert wait_asked_for("0" * 30 + "7", NOW, DAY) == timedelta(seconds=7)


def test_the_cap_holds_for_the_minute_of_throttling_too() -> None:
    assert _judge("429", policy=RetryPolicy(max_retry_after=timedelta(seconds=10))).pause == timedelta(
        seconds=10
    )


def test_a_date_counts_from_the_receivers_clock() -> None:
    slow = answered_at("Sat, 21 Nov 2026 11:00:00 GMT", NOW)

    assert _judge("503", "Sat, 21 Nov 2026 11:05:00 GMT", now=slow).pause == timedelta(minutes=5)
    assert answered_at(None, NOW) == answered_at("nonsense", NOW) == NOW


def test_the_last_attempt_leaves_a_dead_letter() -> None:
    assert RetryPolicy().retries.attempts == 10
    assert _judge("500", attempt=9).state == "retry"
    assert _judge("500", attempt=10) == AttemptVerdict("dead")
    assert _judge("500", attempt=11) == AttemptVerdict("dead")


def test_an_endpoint_waits_even_if_the_delivery_is_dead() -> None:
    assert _judge("503", "300", attempt=10) == AttemptVerdict("dead", pause=timedelta(minutes=5))


def test_what_is_not_eligible_is_tried_once() -> None:
    assert _judge("500", eligible_for_retry=False) == AttemptVerdict("dead")


def test_an_empty_schedule_means_no_retries() -> None:
    assert _judge("500", policy=RetryPolicy(schedule=())) == AttemptVerdict("dead")


def test_attempts_count_from_one() -> None:
    with pytest.raises(ValueError, match="from 1, not 0"):
        _judge("500", attempt=0)


def test_the_default_schedule_is_that_of_standard_webhooks() -> None:
    total = sum(RetryPolicy().schedule, timedelta(0))

    assert total == timedelta(hours=75, minutes=35, seconds=5)


def test_a_policy_is_json_in_seconds_and_back() -> None:
    policy = RetryPolicy(
        schedule=(timedelta(seconds=1.5), MINUTE),
        disable_after=None,
        breaker_pause=Backoff(timedelta(seconds=2), MINUTE, 0),
    )

    stored = policy.model_dump(mode="json")

    assert stored["schedule"] == [1.5, 60]
    assert stored["breaker_pause"] == {"first": 2, "longest": 60, "jitter": 0}
    assert parse_policy(stored) == RetryPolicy.model_validate_json(policy.model_dump_json()) == policy
    assert parse_policy({}) == RetryPolicy()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"schedule": [1, -1]}, "schedule.1"),
        ({"schedule": [1e12]}, "schedule.0"),
        ({"schedule": ["soon"]}, "schedule.0"),
        ({"schedule": [1] * 101}, "schedule"),
        ({"jitter": 0.51}, "jitter"),
        ({"jitter": float("nan")}, "jitter"),
        ({"timeout": 0.5}, "timeout"),
        ({"timeout": 61}, "timeout"),
        ({"max_retry_after": 0}, "max_retry_after"),
        ({"disable_after_failures": 0}, "disable_after_failures"),
        ({"breaker_failures": 0}, "breaker_failures"),
        ({"breaker_pause": {"first": 60, "longest": 30}}, "breaker_pause"),
        ({"breaker_pause": {"first": 1, "longest": 30, "jitter": 1}}, "breaker_pause"),
        ({"retries": 3}, "retries"),
    ],
)
def test_a_policy_that_can_not_be_is_refused_by_the_name_of_its_field(
    wrong: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidEndpoint, match=f"a retry policy is invalid: {named}"):
        parse_policy(wrong)


def test_a_policy_does_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        RetryPolicy().jitter = 0  # type: ignore[misc]
