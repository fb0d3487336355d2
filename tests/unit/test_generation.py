from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from journal import DatabaseWentBack, Generation

BEFORE = Generation(3, datetime(2026, 1, 1, tzinfo=UTC), 5_000, -7)
OTHERS = {
    "another timeline": replace(BEFORE, timeline=4, position=9_000),
    "another start": replace(BEFORE, started_at=BEFORE.started_at + timedelta(seconds=1), position=9_000),
    "an earlier place": replace(BEFORE, position=4_999),
    "another cluster": replace(BEFORE, system=8, position=9_000),
}


def test_a_later_place_of_the_same_life_follows() -> None:
    assert BEFORE.follows(BEFORE)
    assert replace(BEFORE, position=5_001).follows(BEFORE)


@pytest.mark.parametrize("later", OTHERS.values(), ids=OTHERS)
def test_anything_else_does_not_follow(later: Generation) -> None:
    assert not later.follows(BEFORE)


def test_a_token_is_good_after_a_clean_restart_and_later_in_the_same_log() -> None:
    token = BEFORE.token()

    BEFORE.check(token)
    replace(BEFORE, started_at=BEFORE.started_at + timedelta(hours=1), position=6_000).check(token)


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (OTHERS["another timeline"], "timeline 3.*now on timeline 4.*begin again without it"),
        (OTHERS["an earlier place"], "at 0/1388.*at 0/1387 now.*begin again without it"),
        (OTHERS["another cluster"], "another database cluster.*begin again without it"),
    ],
)
def test_a_token_of_what_may_be_gone_is_refused(now: Generation, says: str) -> None:
    with pytest.raises(DatabaseWentBack, match=says):
        now.check(BEFORE.token())


@pytest.mark.parametrize("text", ["", "1.2", "x.1.1", "1.1.1.1", "1.1.-1", "1" * 99])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a generation of a database"):
        BEFORE.check(text)
