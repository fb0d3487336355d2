"""How the demo's projections run: in this process, or, see :mod:`projections.demo.crew`, in others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

import offsets
from journal import Database
from offsets import UnknownProjection
from projections.demo.read_models import PROJECTIONS
from projections.demo.stopping import StopRequest
from projections.demo.watch import Watch
from projections.running.runner import run as run_projections

CLASSES = tuple(projection_class for projection_class, _ in PROJECTIONS.values())

T = TypeVar("T")


class Moves(NamedTuple):
    """What became of the ranges, as the workers and the database tell."""

    takeovers: int = 0
    """Ranges that were taken over from a worker whose lease had ended."""
    rescales: int = 0
    """How often the slices were cut into another number of ranges."""


class Projecting(Protocol):
    """Runs the projections."""

    @property
    def moves(self) -> Moves:
        """What became of the ranges until now."""

    async def during(self, watch: Watch, work: Coroutine[Any, Any, T]) -> T:
        """Do something while the projections run, then let them catch up."""

    async def incidents(self, watch: Watch, left: int) -> None:
        """What happens while so many events are appended."""


class InProcess:
    """
    Runs them here.

    Args:
        database: The database that has the schema, as :func:`journal.connect` opens it.
        ranges: Of each projection.
        stopping: Whether to stop.
    """

    def __init__(self, database: Database, ranges: int, stopping: StopRequest) -> None:
        self._database = database
        self._ranges = ranges
        self._stopping = stopping

    @property
    def moves(self) -> Moves:
        """See :class:`Projecting`."""
        return Moves()

    async def during(self, watch: Watch, work: Coroutine[Any, Any, T]) -> T:
        """See :class:`Projecting`."""
        ended = asyncio.Event()
        running = asyncio.create_task(
            run_projections(self._database, *CLASSES, ranges=self._ranges, observer=watch, stop=ended)
        )
        try:
            result = await self._stopping.unless(work, running)
        finally:
            ended.set()
            await running
        await run_projections(
            self._database, *CLASSES, observer=watch, stop=self._stopping.event, until_caught_up=True
        )
        self._stopping.check()
        return result

    async def incidents(self, watch: Watch, left: int) -> None:
        """See :class:`Projecting`: nothing."""


async def settle(database: Database, ranges: int) -> None:
    """
    Leave nothing of an earlier run's workers, and cut the slices as this one begins.

    Workers that were killed would keep their ranges until their leases end. Only one demo runs on a database, so
    all of them are of runs that have ended.
    """
    async with database.session() as session:
        for worker in await offsets.workers(session):
            if PROJECTIONS.keys() >= set(worker.projections):
                await offsets.leave(session, worker.owner)
        for name in PROJECTIONS:
            with suppress(UnknownProjection):  # it is cut when it runs for the first time
                if len((await offsets.status(session, name)).ranges) != ranges:
                    await offsets.rescale(session, name, ranges)
