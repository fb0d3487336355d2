"""The model of ``_share_ranges_v1``: which ranges another member is to hold."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

SLICES = 1024


def share_ranges(
    min_slices: Sequence[int], assigned: Sequence[str | None], members: Sequence[str]
) -> dict[int, str | None]:
    """``_share_ranges_v1``: for the ranges that move, who is to hold them."""
    number, count = len(assigned), max(len(members), 1)
    places = {member: place for place, member in enumerate(members)}
    holders: list[int | None] = [places.get(one) if one is not None else None for one in assigned]
    held = [holders.count(place) for place in range(count)]
    richest = sorted(range(count), key=lambda place: (-held[place], place))
    missing = [
        number // count - held[place] + (richest.index(place) < number % count) for place in range(count)
    ]
    ends = [*min_slices, SLICES]
    _give_up(holders, missing, ends)
    _fill(holders, missing)
    shared = [members[h] if members and h is not None else None for h in holders]
    return {first: new for first, old, new in zip(min_slices, assigned, shared, strict=True) if new != old}


def _give_up(holders: list[int | None], missing: list[int], ends: Sequence[int]) -> None:
    """Who has too many gives up its shortest runs, and an end of one."""
    number, given, given_slices = len(holders), 0, 0
    for holder, first, length in _runs(holders, missing):
        count = min(length, -missing[holder])
        if count == 0:
            continue
        start = first + length - count
        head = ends[first + count] - ends[first]
        slices = ends[start + count] - ends[start]
        wanted = SLICES * (given + count) - number * given_slices
        if abs(number * head - wanted) < abs(number * slices - wanted):
            start, slices = first, head
        given, given_slices = given + count, given_slices + slices
        holders[start : start + count] = [None] * count
        missing[holder] += count


def _runs(holders: Sequence[int | None], missing: Sequence[int]) -> list[tuple[int, int, int]]:
    """Of holders with too many: holder, first place and length of each run, in the order in which they are given up."""
    runs, place = [], 0
    for holder, group in groupby(holders):
        length = len(list(group))
        if holder is not None and missing[holder] < 0:
            runs.append((holder, place, length))
        place += length
    return sorted(runs, key=lambda run: (run[0], run[2], run[1]))


def _fill(holders: list[int | None], missing: list[int]) -> None:
    """A free range goes to its neighbour on the left, to the one after the free run, or to whoever lacks most."""
    number, end = len(holders), 0
    for place in range(number):
        if holders[place] is not None:
            continue
        if end <= place:
            end = place + 1
            while end < number and holders[end] is None:
                end += 1
        left = holders[place - 1] if place > 0 else None
        right = holders[end] if end < number else None
        if left is not None and missing[left] > 0:
            taker = left
        elif right is not None and missing[right] >= end - place:
            taker = right
        else:
            taker = min(range(len(missing)), key=lambda one: (-missing[one], one))
        holders[place] = taker
        missing[taker] -= 1
