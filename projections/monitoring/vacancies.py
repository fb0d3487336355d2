"""
Roles that are needed and that nobody has: what is to be done, and no process does.

A lag of 0 says nothing where nobody makes the work that would lag. Each package tells of its own roles, by
:meth:`Observed.vacancies`; here are those of the core, and the list of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import offsets
from journal import Session
from journal.partitions import unmaintained
from projections.extras import registered
from projections.monitoring.registration import GROUP, Monitored, Observed, Vacancy

_OWN = ("worker", "maintenance")


def roles() -> list[str]:
    """All roles that may have nobody, in the order of :func:`vacancies`."""
    return [*_OWN, *(role for one in registered(GROUP) for role in one.roles)]


async def vacancies(
    session: Session,
    summaries: Sequence[offsets.ProjectionSummary] | None = None,
    others: Sequence[Observed] | None = None,
) -> list[Vacancy]:
    """
    The roles that are needed and have nobody.

    Args:
        session: Where; inside or outside of a transaction.
        summaries: All projections, where they have been read; else they are.
        others: What was seen of all that is registered, in that order; else it is looked at.
    """
    monitored: Sequence[Monitored] = registered(GROUP)
    if summaries is None:
        summaries = await offsets.summaries(session)
    if others is None:
        others = [await one.look(session) for one in monitored]
    idle = [one.name for one in summaries if not one.paused and not any(part.alive for part in one.ranges)]
    internal = tuple(name for one in monitored for name in one.internal)
    found = [_without_worker(name) for name in idle if not name.startswith(internal)]
    found += [_not_maintained(*one) for one in await unmaintained(session)]
    for one, seen in zip(monitored, others, strict=True):
        found += seen.vacancies([name for name in idle if name.startswith(tuple(one.internal))])
    return found


def _without_worker(name: str) -> Vacancy:
    return Vacancy("worker", f"no worker runs projection {name!r}", "projections worker")


def _not_maintained(table: str, until: datetime) -> Vacancy:
    text = f"nobody maintains the partitions of {table}: there is none from {until:%Y-%m-%d %H:%M} UTC on"
    return Vacancy("maintenance", text, "projections maintain")
