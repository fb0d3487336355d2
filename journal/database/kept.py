"""A session that is borrowed when it is first needed, and kept until it is given back."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from journal.database.session import OwnedSession


class KeptSession:
    """Saves whoever needs a session often the round trip of borrowing it each time."""

    def __init__(self, lend: Callable[[], AbstractAsyncContextManager[OwnedSession]]) -> None:
        self._lend = lend
        self._lent = AsyncExitStack()
        self._session: OwnedSession | None = None

    async def get(self) -> OwnedSession:
        """The session; borrows one if there is none."""
        if self._session is None:
            self._session = await self._lent.enter_async_context(self._lend())
        return self._session

    @asynccontextmanager
    async def use(self) -> AsyncIterator[OwnedSession]:
        """The session; after an error in the block it is given back."""
        try:
            yield await self.get()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Give it back, also after an error on it; a later :meth:`get` borrows another."""
        self._session = None
        # The error that is being handled tells the lender whether the connection is still of use.
        await self._lent.__aexit__(*sys.exc_info())
