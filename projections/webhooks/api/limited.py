"""A database whose statements are given up after a time, so that no request holds a connection for long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from journal import Database, OwnedSession

__all__ = ["LimitedDatabase"]

_LIMIT = "SELECT set_config('statement_timeout', $1, TRUE)"


class LimitedDatabase:
    """
    A :class:`journal.Database` of which each session is a transaction with a ``statement_timeout``.

    The setting goes with the transaction, so that it works behind PgBouncer too.

    Args:
        database: The pool that it borrows from; closing it is its owner's.
        longest: How long a statement may take.
    """

    def __init__(self, database: Database, longest: timedelta) -> None:
        self._database = database
        self._idle = longest
        self._longest = f"{longest // timedelta(milliseconds=1)}ms"

    @property
    def max_connections(self) -> int:
        """How many sessions can be lent at a time."""
        return self._database.max_connections

    @asynccontextmanager
    async def session(self) -> AsyncIterator[OwnedSession]:
        """Lend a session with an open transaction: commits at the end, rolls back on an error."""
        async with self._database.session() as session:
            # Nor does a process that is frozen or cut off hold its locks for longer.
            await session.begin(idle=self._idle)
            try:
                await session.execute(_LIMIT, self._longest)
                yield session
            except BaseException:
                await session.rollback()
                raise
            await session.commit()

    def transaction(self) -> AbstractAsyncContextManager[OwnedSession]:
        """Lend such a session."""
        return self.session()

    def listen(self, channel: str, heard: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Listen as the pool does."""
        return self._database.listen(channel, heard)

    async def renew(self) -> None:
        """Replace the connections of the pool."""
        await self._database.renew()

    async def close(self) -> None:
        """Leave the pool open: it is its owner's."""
