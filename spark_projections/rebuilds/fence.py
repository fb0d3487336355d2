"""The fence of a rebuild: the time before which no append is in flight any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from journal import Log, NeedsPrimary, Session, now
from journal.writers import NO_IMPORTS, Writer, look_at_writers, wait_for_writers
from spark_projections.errors import NotRebuildable, RebuildFailed


class Fence(NamedTuple):
    """
    The cut between what a batch reads and what live workers read: events up to a time, and imports up to a number.

    Imports of history come later with older times; their numbers say which are in.
    """

    time: datetime
    import_id: int
    life: str | None = None
    """Of a journal in another database."""


async def take_fence(
    session: Session,
    log: Log,
    *,
    until: datetime | None = None,
    waiting_for: Callable[[Sequence[Writer]], None] | None = None,
) -> Fence:
    """
    Take the time of a log, or ``until`` when that is earlier, from when on no append from before it is in flight.

    Holders that show since when they are open are not waited for: the fence is before them.

    Args:
        session: On the database of the log, the primary, outside a transaction.
        log: The log.
        until: No later than this.
        waiting_for: Gets who appends, when that has taken half a second and then every few seconds.

    Raises:
        NotRebuildable: The bound of the log does not tell what is in flight, or knows no times for ``until``.
        NeedsPrimary: A standby answers.
        RebuildFailed: Another database than at first answered at last.
    """
    margin = getattr(log.bound, "settles_after", None)
    if margin is None:
        raise NotRebuildable(
            f"the bound of journal {log.name!r} does not tell what is in flight: up to when it is complete is not known"
        )
    if until is not None and not getattr(log.bound, "by_time", True):
        raise NotRebuildable(
            f"journal {log.name!r} is in the order of a number, and knows no times: rebuild all of it"
        )
    queries = log.queries
    first = await look_at_writers(session, poll=queries.poll)
    if first.standby:
        raise NeedsPrimary(
            "this server is a standby, which does not show what is still open on the primary: connect to that"
        )
    waited_for = first.holders - first.starts.keys()
    await wait_for_writers(session, waited_for, tell=waiting_for, queries=(queries.poll, queries.writers))
    # Imports that committed while we waited are complete, too, and everything that is read from now on has them.
    import_id = (await now(session, queries=queries)).import_id
    last = await look_at_writers(session, NO_IMPORTS, poll=queries.poll)
    assert first.generation is not None and last.generation is not None  # noqa: S101, PT018 - of a poll
    if not last.generation.follows(first.generation):
        raise RebuildFailed("another database answers for the journal, or it went back in time: run it again")
    # Who was waited for may be open by now, and show since when.
    time = min([first.at, *first.starts.values(), *last.starts.values()]) - margin
    return Fence(time if until is None else min(time, until), import_id, last.generation.life)
