"""Checkpoints: the cursor follows what is done, and never passes what is not. In any order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.subscriptions.handler_queues import Checkpoints
from projections.subscriptions.reading import MatchPlace as P

PAGES = st.lists(st.integers(0, 3), min_size=1, max_size=12)
"""How many handlers have something to do for each page."""


@given(PAGES, st.randoms(use_true_random=False))
def test_the_cursor_is_always_where_everything_before_is_done(parts: list[int], random: object) -> None:
    tracked = Checkpoints(P(0))
    pages = [tracked.add(P(10 * (place + 1)), count) for place, count in enumerate(parts)]
    left = [page for page, count in zip(pages, parts, strict=True) for _ in range(count)]
    random.shuffle(left)  # type: ignore[attr-defined]

    while True:
        unfinished = [page.cursor.match_id for page in pages if page in left]
        assert tracked.cursor.match_id == (min(unfinished) - 10 if unfinished else pages[-1].cursor.match_id)
        assert len(tracked) == (len(pages) - tracked.cursor.match_id // 10)
        if not left:
            break
        tracked.done(left.pop())


@given(PAGES, st.data())
def test_pages_that_come_while_others_end_are_all_passed_at_last(
    parts: list[int], data: st.DataObject
) -> None:
    tracked, left = Checkpoints(P(0)), []
    for place, count in enumerate(parts):
        left += [tracked.add(P(place + 1), count)] * count
        for _ in range(data.draw(st.integers(0, len(left)))):
            tracked.done(left.pop(data.draw(st.integers(0, len(left) - 1))))
            assert tracked.cursor.match_id < min(
                (page.cursor.match_id for page in left), default=len(parts) + 1
            )
    while left:
        tracked.done(left.pop(0))

    assert tracked.cursor.match_id == len(parts)
    assert len(tracked) == 0


def test_a_page_without_a_handler_is_passed_at_once() -> None:
    tracked = Checkpoints(P(5))

    tracked.add(P(9), 0)

    assert tracked.cursor.match_id == 9


def test_a_page_without_a_handler_waits_for_those_before_it() -> None:
    tracked = Checkpoints(P(0))
    first = tracked.add(P(1), 1)

    tracked.add(P(2), 0)

    assert tracked.cursor.match_id == 0
    tracked.done(first)
    assert tracked.cursor.match_id == 2


def test_all_that_was_begun_is_done_only_when_the_cursor_is_past_the_last_page_begun() -> None:
    tracked = Checkpoints(P(0))
    first, second = tracked.add(P(1), 1), tracked.add(P(2), 1)
    assert tracked.all_begun_are_done

    tracked.begin(second)
    tracked.done(second)

    assert not tracked.all_begun_are_done
    tracked.begin(first)
    tracked.done(first)
    assert tracked.all_begun_are_done


@pytest.mark.parametrize("cursor", [3, 5])
def test_a_page_that_does_not_come_after_the_one_before_is_refused(cursor: int) -> None:
    tracked = Checkpoints(P(0))
    tracked.add(P(5), 1)

    with pytest.raises(ValueError, match=f"ends at {cursor} does not come after 5"):
        tracked.add(P(cursor), 1)


def test_what_is_not_for_the_range_is_passed_over_only_when_every_page_is_done() -> None:
    tracked = Checkpoints(P(0))
    page = tracked.add(P(5), 1)

    tracked.pass_over(P(9))
    assert tracked.cursor.match_id == 0
    tracked.done(page)
    tracked.pass_over(P(9))
    tracked.pass_over(P(7))

    assert tracked.cursor.match_id == 9
