"""The fence of a rebuild: the time before which no append is in flight any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from journal import CLOCK_MARGIN, Session
from journal.writers import Writer, look_at_writers, wait_for_writers

__all__ = ["Fence", "take_fence"]

_IMPORT = "SELECT coalesce(max(import_id), 0) FROM projections.imports"


class Fence(NamedTuple):
    """
    The cut between what a batch reads and what live workers read: events up to a time, and imports up to a number.

    Imports of history come later with older times; their numbers say which are in.
    """

    time: datetime
    import_id: int


async def take_fence(
    session: Session,
    *,
    until: datetime | None = None,
    waiting_for: Callable[[Sequence[Writer]], None] | None = None,
) -> Fence:
    """
    Take the time, or ``until`` when that is earlier, and wait until no append from before it is in flight.

    Needs a session on the primary, outside a transaction. ``waiting_for`` gets who appends, when that has taken
    half a second and then every few seconds.
    """
    first = await look_at_writers(session)
    await wait_for_writers(session, first.holders, tell=waiting_for)
    # Imports that committed while we waited are complete, too, and everything that is read from now on has them.
    import_id = await session.fetchval(_IMPORT)
    time = first.at - CLOCK_MARGIN
    return Fence(time if until is None else min(time, until), import_id)
