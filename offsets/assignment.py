"""
Who is to hold which range: a pure function of the ranges, the workers, and what was assigned before.

Even: no worker has two ranges more than another. Minimal: a range moves only when its worker is gone or has more than
its share. Contiguous where that leaves a choice, so that a worker keeps its slices together when ranges are cut anew.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

__all__ = ["assign"]


def assign(
    assigned: Sequence[str | None], workers: Sequence[str], sizes: Sequence[int] | None = None
) -> list[str | None]:
    """
    Assign ranges to workers.

    Args:
        assigned: The worker of each range, in the order of slices; None for none yet. Names that are not among the
            workers are of those that have gone.
        workers: Who is there. Where shares can not be equal, those that have most keep it, then the first here.
        sizes: How many slices each range has: of two ends that a worker could give up, the smaller goes.

    Returns:
        The worker of each range; None only without workers.
    """
    if not workers:
        return [None] * len(assigned)
    here = set(workers)
    result = [holder if holder in here else None for holder in assigned]
    counts = Counter(holder for holder in result if holder is not None)
    shares = _shares(len(result), counts, workers)
    given: list[int] = []
    for worker, runs in _runs(result).items():
        _give_up(runs, len(given) + counts[worker] - shares[worker], given, sizes or [1] * len(result))
    for index in given:
        result[index] = None
    missing = {worker: max(0, shares[worker] - counts[worker]) for worker in workers}
    ends = _ends_of_free(result)
    for index, end in ends.items():
        result[index] = chosen = _taker(result, index, end, missing)
        missing[chosen] -= 1
    return result


def _shares(ranges: int, counts: Mapping[str, int], workers: Sequence[str]) -> dict[str, int]:
    """How many ranges each worker is to have: equal, and the rest to those that have most already."""
    share, rest = divmod(ranges, len(workers))
    by_most = sorted(workers, key=lambda worker: -counts.get(worker, 0))  # stable: then the first
    return {worker: share + (place < rest) for place, worker in enumerate(by_most)}


def _runs(assigned: Sequence[str | None]) -> dict[str, list[list[int]]]:
    """The ranges of each worker, those that lie side by side together."""
    runs: defaultdict[str, list[list[int]]] = defaultdict(list)
    for index, holder in enumerate(assigned):
        if holder is None:
            continue
        if index and assigned[index - 1] == holder:
            runs[holder][-1].append(index)
        else:
            runs[holder].append([index])
    return runs


def _give_up(runs: Sequence[list[int]], until: int, given: list[int], sizes: Sequence[int]) -> None:
    """Add a worker's ranges to those given up: its shortest runs, so that longer ones stay whole, and an end of one."""
    mean = sum(sizes) / len(sizes)
    for run in sorted(runs, key=len):
        count = min(len(run), until - len(given))
        if count <= 0:
            break
        wanted = mean * (len(given) + count) - sum(sizes[index] for index in given)
        # Of its two ends the one that keeps the slices that move at their share: ranges differ by a slice.
        given += min(run[-count:], run[:count], key=lambda end: abs(sum(sizes[i] for i in end) - wanted))


def _ends_of_free(assigned: Sequence[str | None]) -> dict[int, int]:
    """Each free range, in order, with the first one after it that is not free."""
    ends: dict[int, int] = {}
    end = len(assigned)
    for index in reversed(range(len(assigned))):
        if assigned[index] is None:
            ends[index] = end
        else:
            end = index
    return dict(reversed(ends.items()))


def _taker(assigned: Sequence[str | None], index: int, end: int, missing: Mapping[str, int]) -> str:
    """Who gets a free range: the neighbour on its left, the one after the free run, or whoever lacks most."""
    left = assigned[index - 1] if index else None
    if left is not None and missing.get(left, 0) > 0:
        return left
    right = assigned[end] if end < len(assigned) else None
    if right is not None and missing.get(right, 0) >= end - index:
        return right
    return max(missing, key=lambda worker: missing[worker])
