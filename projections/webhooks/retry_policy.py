"""
What follows an attempt: done, another attempt and when, or a dead letter; and whether the endpoint waits or stops.

Pure: no clock and no chance of its own, so that every rule is tested by itself. The rules are those of Standard
Webhooks (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md):

- Only 2xx is a success. A redirection is a failure.
- 410 Gone: the receiver wants no more; the endpoint is disabled.
- 429, 502, 503, 504: the receiver has too much to do. The whole endpoint waits, for what `Retry-After` says
  (RFC 9110 §10.2.3) or else for a minute. Zero, or a date that has passed, is now: it does not wait. The delivery
  that failed follows its schedule all the same.
- `Retry-After` with any other failure is heeded too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator

from projections.failing import Backoff, Retries
from projections.webhooks.errors import fields_of

THROTTLED = frozenset({"429", "502", "503", "504"})
GONE = "410"

_SHORTEST_THROTTLE = timedelta(minutes=1)
_SUCCESS = re.compile(r"2[0-9][0-9]")
_SECONDS = re.compile(r"[0-9]+")
_LONGEST_HEADER = 64
_MOST_DIGITS = 10

_Delay = Annotated[timedelta, Field(ge=timedelta(0), le=timedelta(days=30))]


class RetryPolicy(BaseModel):
    """
    When an endpoint is tried again, and when it is given up.

    As JSON, durations are seconds: `RetryPolicy.model_validate_json(policy.model_dump_json()) == policy`.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_timedelta="float", use_attribute_docstrings=True
    )

    schedule: Annotated[tuple[_Delay, ...], Field(max_length=100)] = (
        timedelta(seconds=5),
        timedelta(minutes=5),
        timedelta(minutes=30),
        timedelta(hours=2),
        timedelta(hours=5),
        timedelta(hours=10),
        timedelta(hours=14),
        timedelta(hours=20),
        timedelta(hours=24),
    )
    """Pauses after the first, second … failed attempt; after the last one the delivery is a dead letter. So there is
    one attempt more than pauses: ten over three days by default, as Standard Webhooks proposes. Empty: no retries."""

    jitter: float = Field(default=0.2, ge=0, le=0.5)
    """Share of a pause that is random: 0.2 spreads it from 80 % to 120 %, so that what failed together does not come
    back together."""

    timeout: timedelta = Field(
        default=timedelta(seconds=15), ge=timedelta(seconds=1), le=timedelta(seconds=60)
    )
    """For a whole attempt, from the look-up of the name to the last byte of the answer that is read."""

    max_retry_after: timedelta = Field(
        default=timedelta(hours=24), ge=timedelta(seconds=1), le=timedelta(days=30)
    )
    """No receiver makes us wait longer by `Retry-After`."""

    disable_after_failures: int | None = Field(default=100, ge=1)
    """How many failed attempts in a row, over all deliveries, disable the endpoint. None: no number does."""

    disable_after: timedelta | None = Field(default=timedelta(days=5), ge=timedelta(minutes=1))
    """How long only failures go on before the endpoint is disabled. None: it is not."""

    breaker_failures: int = Field(default=10, ge=1)
    """How many failed attempts in a row open the circuit: the endpoint pauses, then a single attempt probes it."""

    breaker_pause: Backoff = Backoff(timedelta(seconds=30), timedelta(minutes=10))
    """Pause of an open circuit: the first, the longest, and its own jitter; it doubles with every probe that fails."""

    @field_validator("breaker_pause")
    @classmethod
    def _pauses(cls, pause: Backoff) -> Backoff:
        if not timedelta(seconds=1) <= pause.first <= pause.longest <= timedelta(days=1):
            raise ValueError("first and longest are 1 second to 1 day, and first is not longer than longest")
        if not 0 <= pause.jitter <= 0.5:  # noqa: PLR2004 - as for `jitter`
            raise ValueError("jitter is 0 to 0.5")
        return pause

    @property
    def retries(self) -> Retries:
        """When a delivery is tried again; when no attempt is left it is a dead letter."""
        return Retries(self.schedule, jitter=self.jitter)


def parse_policy(written: Mapping[str, Any]) -> RetryPolicy:
    """Read a policy from JSON, as somebody has written it; InvalidValue names every field that is wrong."""
    with fields_of("a retry policy"):
        return RetryPolicy.model_validate(written)


class AttemptVerdict(NamedTuple):
    """What follows an attempt."""

    state: Literal["done", "retry", "dead"]
    delay: timedelta | None = None
    """Until the next attempt of this delivery; only with `retry`."""
    pause: timedelta | None = None
    """How long the whole endpoint is left alone."""
    disable: bool = False
    """The endpoint wants no more."""


def judge(
    code: str,
    retry_after: str | None,
    attempt: int,
    policy: RetryPolicy,
    *,
    eligible_for_retry: bool = True,
    random: Callable[[], float],
    now: datetime,
) -> AttemptVerdict:
    """
    Decide what follows an attempt, made by the clock or by hand.

    An attempt by hand counts like any other: while the schedule has pauses left it goes on, and after that a failure
    is a dead letter again.
    """
    if attempt < 1:
        raise ValueError(f"attempts count from 1, not {attempt}")
    if is_success(code):
        return AttemptVerdict("done")
    if code == GONE:
        return AttemptVerdict("dead", disable=True)
    pause = _endpoint_pause(code, retry_after, policy, now)
    delay = policy.retries.delay(attempt, random()) if eligible_for_retry else None
    if delay is None:
        return AttemptVerdict("dead", pause=pause)
    return AttemptVerdict("retry", max(delay, pause or timedelta(0)), pause)


def is_success(code: int | str) -> bool:
    """Whether the status or the code of an attempt says that a webhook was taken: 2xx, and nothing else."""
    return _SUCCESS.fullmatch(str(code)) is not None


def wait_asked_for(retry_after: str | None, now: datetime, longest: timedelta) -> timedelta | None:
    """
    Read the header `Retry-After`: seconds, or a date of HTTP in any of its three forms; None for garbage.

    Nothing for zero, and for dates that have passed: now.
    """
    text = (retry_after or "").strip()
    if _SECONDS.fullmatch(text):
        digits = text.lstrip("0")
        wait = timedelta(seconds=int(digits or 0)) if len(digits) <= _MOST_DIGITS else longest
    elif (date := _http_date(text)) is not None:
        wait = date - now
    else:
        return None
    return max(timedelta(0), min(wait, longest))


def answered_at(date: str | None, now: datetime) -> datetime:
    """When the receiver answered by its own clock, by which it wrote `Retry-After`."""
    return _http_date(date or "") or now


def _endpoint_pause(
    code: str, retry_after: str | None, policy: RetryPolicy, now: datetime
) -> timedelta | None:
    asked = wait_asked_for(retry_after, now, policy.max_retry_after)
    if asked is None and code in THROTTLED:
        return min(_SHORTEST_THROTTLE, policy.max_retry_after)
    return asked or None


def _http_date(text: str) -> datetime | None:
    if len(text) > _LONGEST_HEADER:
        return None
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError, IndexError):  # what email.utils makes of garbage
        return None
    return date.replace(tzinfo=UTC) if date.tzinfo is None else date
