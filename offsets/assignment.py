"""
Who is to hold which range: a pure function of the ranges, the workers, and what was assigned before.

Even: no worker has two ranges more than another. Minimal: a range moves only when its worker is gone or has more than
its share. Contiguous where that leaves a choice, so that a worker keeps its slices together when ranges are cut anew.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["assign"]


def assign(assigned: Sequence[str | None], workers: Sequence[str]) -> list[str | None]:
    """
    Assign ranges to workers.

    Args:
        assigned: The worker of each range, in the order of slices; None for none yet. Names that are not among the
            workers are of those that have gone.
        workers: Who is there. Where shares can not be equal, those that have most keep it, then the first here.

    Returns:
        The worker of each range; None only without workers.
    """
    if not workers:
        return [None] * len(assigned)
    here = set(workers)
    result = [holder if holder in here else None for holder in assigned]
    shares = _shares(result, workers)
    for worker in workers:
        for _ in range(result.count(worker) - shares[worker]):
            result[_dispensable(result, worker)] = None
    missing = {worker: shares[worker] - result.count(worker) for worker in workers}
    for index, holder in enumerate(result):
        if holder is None:
            result[index] = chosen = _taker(result, index, missing)
            missing[chosen] -= 1
    return result


def _shares(assigned: Sequence[str | None], workers: Sequence[str]) -> dict[str, int]:
    """How many ranges each worker is to have: equal, and the rest to those that have most already."""
    share, rest = divmod(len(assigned), len(workers))
    by_most = sorted(workers, key=lambda worker: -assigned.count(worker))  # stable: then the first
    return {worker: share + (place < rest) for place, worker in enumerate(by_most)}


def _dispensable(assigned: Sequence[str | None], worker: str) -> int:
    """Which range of a worker is to go: the last of its shortest run, so that its longer runs stay whole."""
    runs: list[list[int]] = []
    for index, holder in enumerate(assigned):
        if holder != worker:
            continue
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return min(runs, key=len)[-1]


def _taker(assigned: Sequence[str | None], index: int, missing: dict[str, int]) -> str:
    """Who gets a free range: the neighbour on its left, the one after the free run, or whoever lacks most."""
    left = assigned[index - 1] if index else None
    if left is not None and missing.get(left, 0) > 0:
        return left
    end = index
    while end < len(assigned) and assigned[end] is None:
        end += 1
    right = assigned[end] if end < len(assigned) else None
    if right is not None and missing.get(right, 0) >= end - index:
        return right
    return max(missing, key=lambda worker: missing[worker])
