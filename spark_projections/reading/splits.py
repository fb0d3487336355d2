"""Ranges of slices that hold about the same number of events, so that no task works long after the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from journal import ALL_SLICES, EntityTypes, SliceRange
from journal.database import connect_sync

_COUNTS = """
SELECT s.slice, sum(s.seq_nr)::bigint FROM projections.sources AS s
WHERE coalesce(s.entity_type = ANY (%s::text[]), TRUE) GROUP BY s.slice
"""


def slice_counts(dsn: str, entity_types: EntityTypes) -> dict[int, int]:
    """
    Events per slice that has any, as the sources count them: without reading the log.

    An estimate of work: events that were dropped with an old partition still count.
    """
    with connect_sync(dsn) as connection:
        connection.execute("SET LOCAL statement_timeout = 0")
        return dict(connection.execute(_COUNTS, (entity_types.sql,)).fetchall())


def balanced(counts: Mapping[int, int], splits: int, within: SliceRange = ALL_SLICES) -> list[SliceRange]:
    """
    Cut a range of slices so that the largest part is as small as contiguous ranges allow; the parts tile it.

    There are at most ``splits``; fewer when more would not make the largest smaller.
    """
    if splits < 1:
        raise ValueError(f"the number of splits must be at least 1, not {splits}")
    weights = [counts.get(number, 0) for number in range(within.min_slice, within.max_slice + 1)]
    low, high = max(weights), sum(weights)
    while low < high:
        limit = (low + high) // 2
        if len(_cuts(weights, limit)) <= splits:
            high = limit
        else:
            low = limit + 1
    starts = [within.min_slice + cut for cut in _cuts(weights, low)]
    return [SliceRange(start, end - 1) for start, end in pairwise([*starts, within.max_slice + 1])]


def _cuts(weights: Iterable[int], limit: int) -> list[int]:
    """Where parts begin that each take slices while they hold no more than ``limit``, which no slice exceeds."""
    cuts, total = [0], 0
    for index, weight in enumerate(weights):
        if total + weight > limit:
            cuts.append(index)
            total = 0
        total += weight
    return cuts
