"""Slices are cut into ranges that tile, are few enough, and whose largest is as small as it can be."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal import ALL_SLICES, NUMBER_OF_SLICES, SliceRange
from spark_projections.reading.splits import balanced

slices = st.integers(0, NUMBER_OF_SLICES - 1)
ranges = st.tuples(slices, slices).map(lambda ends: SliceRange(min(ends), max(ends)))
counts = st.dictionaries(slices, st.integers(0, 1_000_000))


def weight(counted: dict[int, int], part: SliceRange) -> int:
    return sum(counted.get(number, 0) for number in range(part.min_slice, part.max_slice + 1))


def largest_of_the_best_cut(weights: list[int], splits: int) -> int:
    """By trying all cuts."""
    places = range(1, len(weights))
    return min(
        max(sum(weights[a:b]) for a, b in pairwise((0, *cuts, len(weights))))
        for number in range(min(splits, len(weights)))
        for cuts in combinations(places, number)
    )


@given(counts, st.integers(1, 64), ranges)
def test_the_ranges_tile_what_is_cut(counted: dict[int, int], splits: int, within: SliceRange) -> None:
    found = balanced(counted, splits, within)

    assert [number for part in found for number in range(part.min_slice, part.max_slice + 1)] == [
        *range(within.min_slice, within.max_slice + 1)
    ]


@given(counts, st.integers(1, 64), ranges)
def test_there_are_at_most_as_many_ranges_as_asked_for(
    counted: dict[int, int], splits: int, within: SliceRange
) -> None:
    assert 1 <= len(balanced(counted, splits, within)) <= splits


@given(st.lists(st.integers(0, 20), min_size=1, max_size=9), st.integers(1, 10), st.integers(0, 1000))
def test_no_contiguous_cut_has_a_smaller_largest_range(weights: list[int], splits: int, first: int) -> None:
    counted = {first + index: count for index, count in enumerate(weights)}

    found = balanced(counted, splits, SliceRange(first, first + len(weights) - 1))

    assert max(weight(counted, part) for part in found) == largest_of_the_best_cut(weights, splits)


def test_an_empty_journal_is_one_range() -> None:
    assert balanced({}, 8) == [ALL_SLICES]


def test_a_slice_with_half_of_all_events_does_not_take_its_neighbours_along() -> None:
    counted = {**dict.fromkeys(range(NUMBER_OF_SLICES), 1), 500: NUMBER_OF_SLICES}

    found = balanced(counted, 8)

    assert SliceRange(500, 500) in [
        part for part in found if weight(counted, part) == max(weight(counted, p) for p in found)
    ]


def test_no_splits_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        balanced({}, 0)
