"""What rebuilds leave behind, and how it goes."""

from __future__ import annotations

import offsets
from journal import OwnedSession
from spark_projections.rebuilds import bookkeeping

__all__ = ["cancel_rebuild", "drop_old_tables"]


async def cancel_rebuild(session: OwnedSession, name: str) -> list[str]:
    """
    Remove what an interrupted rebuild has left; returns the schemas that are gone.

    Args:
        session: Outside a transaction.
        name: Of the projection.

    Raises:
        UnknownProjection: None of this name has run.
        RebuildUnderWay: A rebuild of it runs: stop that.
    """
    number = (await offsets.status(session, name)).projection_id
    async with bookkeeping.only_one(session, number, name):
        return await bookkeeping.cancel(session, number)


async def drop_old_tables(session: OwnedSession, name: str) -> list[str]:
    """
    Drop the tables that served before the last rebuilds; returns their names.

    Args:
        session: Outside a transaction.
        name: Of the projection.

    Raises:
        UnknownProjection: None of this name has run.
        RebuildUnderWay: A rebuild of it runs.
        DatabaseError: Something depends on one of them; nothing is dropped.
    """
    number = (await offsets.status(session, name)).projection_id
    async with bookkeeping.only_one(session, number, name), bookkeeping.transaction(session):
        return await bookkeeping.drop_old(session, number)
