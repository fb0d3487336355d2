"""Bounds of every delay, for any policy, answer and chance."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from projections.webhooks.retry_policy import RetryPolicy, answered_at, judge

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)

pauses = st.timedeltas(timedelta(0), timedelta(days=30))
policies = st.builds(
    RetryPolicy,
    schedule=st.lists(pauses, max_size=12).map(tuple),
    jitter=st.floats(0, 0.5),
    max_retry_after=st.just(3600),
)
codes = st.sampled_from(["200", "301", "404", "410", "429", "500", "502", "503", "504", "timeout"]) | st.text(
    max_size=5
)
headers = (
    st.none()
    | st.text()
    | st.integers().map(str)
    | st.from_regex(
        r"(Mon, )?[0-9]{1,2}[ -][A-Z][a-z]{2}[ -][0-9]{2,6} [0-9]{2}:[0-9]{2}(:[0-9]{2})?( [+-]?[A-Z0-9]{0,5})?"
    )
)
chances = st.floats(0, 1)


@given(policy=policies, attempt=st.integers(1, 12), chance=chances)
def test_backoff_schedule_and_jitter_bounds(policy: RetryPolicy, attempt: int, chance: float) -> None:
    verdict = judge("500", None, attempt, policy, random=lambda: chance, now=NOW)

    assert (verdict.state == "retry") == (attempt < policy.retries.attempts)
    if verdict.delay is not None:
        planned = policy.schedule[attempt - 1]
        assert verdict.delay >= timedelta(0)
        assert abs(verdict.delay - planned) <= planned * policy.jitter + timedelta(microseconds=1)


@given(policy=policies, attempt=st.integers(1, 11))
def test_the_middle_of_the_jitter_is_the_schedule(policy: RetryPolicy, attempt: int) -> None:
    verdict = judge("500", None, attempt, policy, random=lambda: 0.5, now=NOW)

    assert verdict.delay == (policy.schedule[attempt - 1] if attempt < policy.retries.attempts else None)


@given(
    policy=policies,
    code=codes,
    header=headers,
    attempt=st.integers(1, 12),
    chance=chances,
    eligible=st.booleans(),
)
def test_no_answer_breaks_a_verdict(
    *, policy: RetryPolicy, code: str, header: str | None, attempt: int, chance: float, eligible: bool
) -> None:
    verdict = judge(
        code, header, attempt, policy, eligible_for_retry=eligible, random=lambda: chance, now=NOW
    )

    assert (verdict.delay is not None) == (verdict.state == "retry")
    assert verdict.pause is None or timedelta(0) < verdict.pause <= policy.max_retry_after
    assert verdict.delay is None or verdict.pause is None or verdict.delay >= verdict.pause
    assert not verdict.disable or code == "410"


@given(headers)
def test_no_date_of_a_receiver_breaks_the_time_of_its_answer(header: str | None) -> None:
    assert answered_at(header, NOW).tzinfo is not None
