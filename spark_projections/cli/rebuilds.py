"""``projections rebuilds``: what rebuilds have left in the database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click

import offsets
from journal import OwnedSession, Session
from projections.terminal import Answer, Columns, ListGroup, derived, listing
from spark_projections.rebuilds import bookkeeping

_COLUMNS: Columns = {
    "projection": "projection", "slices": "slices", "state": "state", "started": "started_at", "kept in": "schema",
}  # fmt: skip


@click.group(cls=ListGroup)
def rebuilds() -> None:
    """
    List, cancel and clean up rebuilds.

    \b
      projections rebuilds                          unfinished ones, and those whose old tables are kept
      projections rebuilds cancel carrier-delays
      projections rebuilds drop-old carrier-delays

    To run one, call `projections rebuild NAME`. Without a command, `list` is run.
    """  # noqa: D301 - click reads the escape


@rebuilds.command(name="list")
@derived(sides="read")
async def list_(session: Session, /) -> Answer:
    """List unfinished rebuilds, and finished ones whose replaced tables are kept, with the schema of their tables."""
    nothing = "no rebuild is unfinished, and no replaced table is kept"
    return listing("rebuilds", await bookkeeping.kept(session), _COLUMNS, nothing=nothing)


@rebuilds.command()
@derived(sides="read")
async def cancel(session: OwnedSession, /, name: str) -> Answer:
    """End the unfinished rebuild of the projection NAME, and drop what it has built."""
    async with _only_one(session, name) as number:
        return _dropped(name, await bookkeeping.cancel(session, number))


@rebuilds.command("drop-old")
@derived(sides="read")
async def drop_old(session: OwnedSession, /, name: str) -> Answer:
    """Drop the tables that earlier rebuilds of the projection NAME have replaced."""
    async with _only_one(session, name) as number, bookkeeping.transaction(session):
        return _dropped(name, await bookkeeping.drop_old(session, number))


@asynccontextmanager
async def _only_one(session: OwnedSession, name: str) -> AsyncIterator[int]:
    """Keep others from rebuilding the projection meanwhile; yields its number."""
    number = (await offsets.status(session, name)).projection_id
    async with bookkeeping.only_one(session, number, name):
        yield number


def _dropped(name: str, dropped: list[str]) -> Answer:
    lines = [f"dropped {one}" for one in dropped] or ["nothing to drop"]
    return Answer({"projection": name, "dropped": dropped}, lines)
