"""Ranges are shared evenly, and as few of them move as can be."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Protocol

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from journal import slice_ranges

NAMES = [f"w{number}" for number in range(12)]
members = st.lists(st.sampled_from(NAMES), min_size=1, unique=True)
holders = st.lists(st.none() | st.sampled_from([*NAMES, "gone"]), max_size=64)
numbers_of_ranges = st.integers(1, 1024)
Assigned = Sequence[str | None]
on_the_database = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


class Assign(Protocol):
    """Who is to hold each range, as the database says."""

    def __call__(self, assigned: Assigned, workers: Sequence[str]) -> list[str | None]: ...


@pytest.fixture
def assign(dsn: str) -> Iterator[Assign]:
    with psycopg.connect(dsn, autocommit=True) as connection:

        def share(assigned: Assigned, workers: Sequence[str]) -> list[str | None]:
            begin = [low for low, _ in slice_ranges(len(assigned))] if assigned else []
            moved = connection.execute(
                "SELECT * FROM projections._share_ranges_v1(%s::smallint[], %s::text[], %s::text[])",
                [begin, list(assigned), list(workers)],
            )
            changes = dict(moved.fetchall())
            assert all(
                changes[low] != old for low, old in zip(begin, assigned, strict=True) if low in changes
            )
            return [changes.get(low, old) for low, old in zip(begin, assigned, strict=True)]

        yield share


def sizes_of(ranges: int) -> list[int]:
    return [high - low + 1 for low, high in slice_ranges(ranges)]


def shared(assign: Assign, ranges: int, workers: Sequence[str]) -> list[str | None]:
    """Assigned to workers that came one after another."""
    assigned: list[str | None] = [None] * ranges
    for number in range(1, len(workers) + 1):
        assigned = assign(assigned, workers[:number])
    return assigned


def is_even(assigned: Assigned, workers: Sequence[str]) -> bool:
    counts = Counter(assigned)
    shares = [counts[worker] for worker in workers]
    return sum(shares) == len(assigned) and max(shares) - min(shares) <= 1


def moved(before: Assigned, after: Assigned) -> list[int]:
    return [index for index, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]


@on_the_database
@given(holders, members)
def test_every_range_has_a_worker_and_none_has_two_more_than_another(
    assign: Assign, before: list[str | None], workers: list[str]
) -> None:
    assert is_even(assign(before, workers), workers)


@on_the_database
@given(holders, members)
def test_assigning_again_changes_nothing(
    assign: Assign, before: list[str | None], workers: list[str]
) -> None:
    assigned = assign(before, workers)

    assert assign(assigned, workers) == assigned


@on_the_database
@given(holders, members)
def test_a_range_moves_only_from_who_has_gone_or_has_more_than_its_share(
    assign: Assign, before: list[str | None], workers: list[str]
) -> None:
    after = assign(before, workers)

    had, has = Counter(before), Counter(after)
    for worker in workers:
        given_up = sum(before[index] == worker for index in moved(before, after))
        assert given_up == max(0, had[worker] - has[worker])


@on_the_database
@given(numbers_of_ranges, members)
def test_from_nothing_each_worker_gets_ranges_side_by_side(
    assign: Assign, ranges: int, workers: list[str]
) -> None:
    assigned = assign([None] * ranges, workers)

    runs = [worker for worker, _ in groupby(assigned)]
    assert len(runs) == len(set(runs)) == min(ranges, len(workers))


@on_the_database
@given(numbers_of_ranges, members, st.data())
def test_when_a_worker_leaves_only_its_ranges_move(
    assign: Assign, ranges: int, workers: list[str], data: st.DataObject
) -> None:
    before = shared(assign, ranges, workers)
    leaving = data.draw(st.sampled_from(workers))
    left = [worker for worker in workers if worker != leaving]

    after = assign(before, left)

    if left:
        assert {before[index] for index in moved(before, after)} <= {leaving}
    else:
        assert after == [None] * ranges


@on_the_database
@given(numbers_of_ranges, members)
@example(624, NAMES)
@example(680, NAMES[:4])
def test_when_a_worker_joins_no_more_than_its_share_of_the_slices_moves(
    assign: Assign, ranges: int, workers: list[str]
) -> None:
    before, sizes = shared(assign, ranges, workers), sizes_of(ranges)

    after = assign(before, [*workers, "new"])

    n, going = len(workers), moved(before, after)
    assert {after[index] for index in going} <= {"new"}
    assert sum(sizes[index] for index in going) <= -(-1024 // (n + 1)) + max(sizes)


@on_the_database
@given(
    st.lists(
        st.sampled_from(NAMES).map(lambda name: ("join", name))
        | st.sampled_from(NAMES).map(lambda name: ("leave", name))
        | st.integers(1, 1024).map(lambda ranges: ("rescale", ranges)),
        max_size=30,
    )
)
def test_whatever_comes_and_goes_the_ranges_stay_even(
    assign: Assign, changes: list[tuple[str, str | int]]
) -> None:
    assigned: list[str | None] = [None] * 8
    workers: list[str] = []
    for what, value in changes:
        if what == "rescale":
            assigned = cut(assigned, int(value))
        workers = [worker for worker in workers if worker != value]
        if what == "join":
            workers.append(str(value))
        assigned = assign(assigned, workers)

        assert is_even(assigned, workers) if workers else assigned == [None] * len(assigned)


def cut(assigned: Assigned, ranges: int) -> list[str | None]:
    """As the database does it: a new range goes to whom its first slice was assigned."""
    by_slice = [
        holder for holder, size in zip(assigned, sizes_of(len(assigned)), strict=True) for _ in range(size)
    ]
    return [by_slice[low] for low, _ in slice_ranges(ranges)]


def test_a_thousand_ranges_and_a_hundred_workers_are_shared_at_once(assign: Assign) -> None:
    workers = [f"w{number}" for number in range(100)]
    worst = [workers[index * 7 % 50] for index in range(1024)]
    assign(worst[:2], workers)

    took = math.inf
    while took > 0.5:  # a step for each pair of ranges takes seconds, however often it is tried
        begun = time.perf_counter()
        assigned = assign(worst, workers)
        took = time.perf_counter() - begun

    assert is_even(assigned, workers)
