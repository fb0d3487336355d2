"""A journal whose sequence or clock was set back gives its events places that count as handled: that is refused."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from journal import DatabaseWentBack, Log, Look, SliceRange
from offsets import AheadOfJournal
from projections.errors import ProjectionFailed

log = logging.getLogger("projections")

_NAMED = 10
"""The most sources that a message names."""


def check_place(journal: Log, look: Look, handled_before: datetime) -> None:
    """
    Make sure that events get places from a bound on.

    Args:
        journal: The log that a range reads.
        look: The last poll of that log.
        handled_before: Events before this place count as handled.

    Raises:
        ProjectionFailed: They get earlier ones.
    """
    poll = look.poll
    if poll.replayed_until is not None or poll.polled_at >= handled_before:
        return
    what, which = ("numbers", "sequence") if journal.is_by_number else ("times", "clock")
    raise ProjectionFailed(
        f"the {which} of journal {journal.name!r} has gone back to {journal.shown(poll.polled_at)}, and what is "
        f"before {journal.shown(handled_before)} counts as handled: set it forward. Events that have such {what} by "
        "now are not handled: append them again, or empty the read model and clear its offsets"
    )


def tell_ahead(name: str, slices: SliceRange, ahead: Sequence[AheadOfJournal]) -> DatabaseWentBack:
    """Log that a journal has lost events that a projection has handled; returns what was said."""
    named = ", ".join(map(str, ahead[:_NAMED])) + (", ..." if len(ahead) > _NAMED else "")
    error = DatabaseWentBack(
        f"the journal went back in time and has lost events that are handled, of {len(ahead)} sources, which are "
        f"parked (projections parked list {name}): {named}"
    )
    log.error(
        "%s: slices %s: %s", name, slices, error,
        extra={"action": "ahead_of_journal", "projection": name, "slices": str(slices)},
    )  # fmt: skip
    return error
