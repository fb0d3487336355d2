"""What an interrupted rebuild has left, to go on with: also asked before Spark starts."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import offsets
from journal import Log, OwnedSession, ProjectionsError, generation
from projections.defining import projection_of
from spark_projections.errors import RebuildFailed, RebuildUnderWay
from spark_projections.rebuilds import bookkeeping
from spark_projections.rebuilds.bookkeeping import Rebuild
from spark_projections.rebuilds.definition import fingerprint
from spark_projections.rebuilds.options import RebuildOptions

_STATE = "SELECT state FROM projections.rebuilds WHERE rebuild_id = $1"
_NUMBER = "SELECT projection_id FROM projections.projections WHERE name = $1"


class Left(NamedTuple):
    """What an interrupted rebuild has left."""

    rebuild: Rebuild | None
    """To go on with."""
    outdated: str | None = None
    """What has changed since, where it is of no use any more."""


def mark_of(definition: Any, options: RebuildOptions, journal: Log | None) -> str:
    """
    Tells the code of a projection, and what else decides what is built.

    Args:
        definition: The projection.
        options: What is asked of the rebuild.
        journal: The journal, where that is in another database: of another system, also what its columns mean.
    """
    elsewhere: tuple[str, ...] = ()
    if journal is not None:
        elsewhere = (journal.name,) if journal.has_tokens else (journal.name, journal.queries.relation)
    return fingerprint(definition, options.until, options.from_first_kept, *elsewhere)


async def left_behind(
    session: OwnedSession, number: int, definition: Any, options: RebuildOptions, journal: Log | None
) -> Left:
    """What is there of a rebuild that has not ended; RebuildUnderWay: it is of other slices, or with other tables."""
    found = await bookkeeping.unfinished(session, number)
    if found is None or options.restart:
        return Left(None)
    if found.timeline != (await generation(session)).timeline:
        return Left(None, "the database was failed over, or restored,")
    if not await bookkeeping.whole(session, found):
        return Left(None, "a table that it fills was dropped")
    if found.fingerprint != mark_of(definition, options, journal):
        return Left(None, "the code has changed, or the options, or the mapping of the journal,")
    if (found.slices, found.method) != (options.slices, options.method):
        raise RebuildUnderWay(
            f"an interrupted rebuild of slices {found.slices} of projection {projection_of(definition).name!r} is "
            "unfinished: run that one again to go on, or begin again with --restart"
        )
    return Left(found)


async def refuse_cancelled(session: OwnedSession, rebuild: Rebuild) -> None:
    """RebuildFailed: somebody else has ended this rebuild. An open transaction is rolled back."""
    state = None
    with suppress(ProjectionsError):  # the connection may be what is broken
        await session.rollback()
        state = await session.fetchval(_STATE, rebuild.rebuild_id)
    if state == "cancelled":
        raise RebuildFailed(
            "somebody has cancelled the rebuild; what was built is dropped, and what serves has not changed"
        )


async def refuse_a_second(
    session: OwnedSession, definition: Any, options: RebuildOptions, journal: Log | None = None
) -> None:
    """
    Refuse what could not begin now, before anything is started for it; outside a transaction.

    RebuildUnderWay: another rebuild of the projection runs, or one of other slices is unfinished.
    InvalidValue: it reads several journals.
    """
    name = projection_of(definition).name
    await offsets.refuse_several(session, name, "a rebuild is of one")
    number = await session.fetchval(_NUMBER, name)
    if number is not None:
        async with bookkeeping.only_one(session, number, name):
            await left_behind(session, number, definition, options, journal)
