"""How far the ranges of a projection are that have had nothing to handle, stored in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any, NamedTuple

from journal import DatabaseWentBack, ProjectionsError, Session
from offsets.errors import RangeLost
from offsets.store import Claim, OffsetStore

_SAVE_HORIZONS = """
SELECT min_slice FROM projections.save_horizons_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""
# As save_offsets_v1 tells them apart: epochs only rise, and each has one owner.
_WENT_BACK = """
SELECT r.min_slice
FROM unnest($2::integer[], $3::bigint[]) AS n (min_slice, epoch)
INNER JOIN projections.projection_ranges AS r ON n.min_slice = r.min_slice
WHERE r.projection_id = $1 AND (r.epoch < n.epoch OR (r.epoch = n.epoch AND r.owner IS NOT NULL))
"""


class Progress(NamedTuple):
    """How far a claimed range is: everything before the horizon is handled."""

    store: OffsetStore
    horizon: datetime
    import_id: int

    @property
    def claim(self) -> Claim:
        """The range."""
        return self.store.claim


async def save_horizons(
    session: Session, projection_id: int, progress: Sequence[Progress]
) -> list[tuple[Progress, ProjectionsError]]:
    """
    Store how far ranges of one owner are that have had nothing to handle.

    A range that is just storing a batch is left out: that stores how far it is. So is one that is to start again.

    Returns:
        Those that were not stored, because the database does not have them as they are remembered, each with
        :class:`RangeLost` or :class:`DatabaseWentBack`.
    """
    async with AsyncExitStack() as stack:
        by_life: dict[tuple[Any, ...], list[Progress]] = {}
        for one in progress:
            if one.store.outdated is None and not one.store.storing.locked():
                await stack.enter_async_context(one.store.storing)
                by_life.setdefault((one.claim.owner, *one.store.life()), []).append(one)
        refused: list[tuple[Progress, ProjectionsError]] = []
        for life, ranges in by_life.items():  # nearly always one
            refused += await _save_horizons(session, projection_id, life, ranges)
        return refused


async def _save_horizons(
    session: Session, projection_id: int, life: tuple[Any, ...], ranges: Sequence[Progress]
) -> list[tuple[Progress, ProjectionsError]]:
    owner, *seen = life
    rows = await session.fetch(
        _SAVE_HORIZONS,
        projection_id,
        [one.claim.slices.min_slice for one in ranges],
        [one.claim.epoch for one in ranges],
        owner,
        [one.store.commits for one in ranges],
        *seen,
        [one.horizon for one in ranges],
        [one.import_id for one in ranges],
    )
    stored = {row["min_slice"] for row in rows}
    for one in ranges:
        one.store.commits += one.claim.slices.min_slice in stored
    refused = [one for one in ranges if one.claim.slices.min_slice not in stored]
    return await _why_refused(session, projection_id, refused) if refused else []


async def _why_refused(
    session: Session, projection_id: int, refused: Sequence[Progress]
) -> list[tuple[Progress, ProjectionsError]]:
    claims = [one.claim for one in refused]
    rows = await session.fetch(
        _WENT_BACK,
        projection_id,
        [claim.slices.min_slice for claim in claims],
        [claim.epoch for claim in claims],
    )
    went_back = {row["min_slice"] for row in rows}
    return [
        (
            one,
            DatabaseWentBack("the stored horizon is not what it was left at")
            if one.claim.slices.min_slice in went_back
            else RangeLost.of(one.claim.slices),
        )
        for one in refused
    ]
