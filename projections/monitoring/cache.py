"""One look at the database for all who ask within a few seconds: scrapes and probes cannot pile up on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Generic, TypeVar

import offsets
from journal import Database, Journals, ProjectionsError, hide_password
from journal.tasks import end
from projections.monitoring.snapshot import Snapshot, snapshot

KEEP = timedelta(seconds=5)
"""How long a look is kept."""
PATIENCE = timedelta(seconds=10)
"""How long a look may take."""

T = TypeVar("T")


class LookFailed(ProjectionsError):
    """The database could not be asked; the message says why, without a password."""


class Cache(Generic[T]):
    """
    Keeps what the last look has seen, or why it failed; while one is under way, all wait for that one.

    Args:
        look: Asks the database.
        keep: How long a look is kept, or as long as it took where that is longer: looking must not be what loads the
            database. 0: not at all.
        patience: How long it may take.
    """

    def __init__(
        self, look: Callable[[], Awaitable[T]], *, keep: timedelta = KEEP, patience: timedelta = PATIENCE
    ) -> None:
        self._look = look
        self._keep = keep.total_seconds()
        self._patience = patience.total_seconds()
        self._task: asyncio.Task[T | LookFailed] | None = None
        self._ended_at = 0.0
        self._took = 0.0

    @property
    def is_looking(self) -> bool:
        """Whether a look is under way."""
        return self._task is not None and not self._task.done()

    async def get(self) -> T:
        """
        What is known.

        Raises:
            LookFailed: The database does not answer, or refuses.
        """
        if self._task is None or self._is_stale(self._task):
            self._task = asyncio.create_task(self._try())
        # One who stops waiting must not end it for the others.
        found = await asyncio.shield(self._task)
        if isinstance(found, LookFailed):
            raise LookFailed(str(found))
        return found

    async def close(self) -> None:
        """End a look that is under way."""
        if self._task is not None:
            await end(self._task)

    def _is_stale(self, task: asyncio.Task[T | LookFailed]) -> bool:
        keep = max(self._keep, self._took) if self._keep else 0.0
        return task.done() and asyncio.get_running_loop().time() - self._ended_at >= keep

    async def _try(self) -> T | LookFailed:
        begun = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._patience):
                return await self._look()
        except TimeoutError:
            return LookFailed(f"no answer within {self._patience:g} s")
        except ProjectionsError as error:
            return LookFailed(hide_password(str(error)))
        finally:
            self._ended_at = asyncio.get_running_loop().time()
            self._took = self._ended_at - begun


def cached_snapshot(
    database: Database,
    names: Callable[[], list[str] | None] = lambda: None,
    *,
    everything: bool = False,
    journal: Journals = None,
    keep: timedelta = KEEP,
) -> Cache[Snapshot]:
    """
    Looks at projections, and on request at everything else that is monitored.

    Which projections, ``names`` is asked before each look; None for all.
    """

    async def look() -> Snapshot:
        async with database.session() as session:
            wanted = names()
            # Without those that have been deleted meanwhile: they must not hide the others.
            found = None if wanted is None else await offsets.known(session, wanted)
            return await snapshot(session, found, everything=everything, journal=journal, partly=True)

    return Cache(look, keep=keep)


@asynccontextmanager
async def closing(*caches: Cache[T]) -> AsyncIterator[None]:
    """End what is under way at the end of the block: the database may be closed after it."""
    try:
        yield
    finally:
        for cache in caches:
            await cache.close()
