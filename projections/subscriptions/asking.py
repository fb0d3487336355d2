"""One session for all that a consumer asks the database, and no answer that is waited for without an end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Concatenate, ParamSpec, TypeVar

from journal import Database, DatabaseUnavailable, KeptSession, OwnedSession, ProjectionsError

P = ParamSpec("P")
T = TypeVar("T")


class Asking:
    """
    Calls functions with a session, which is borrowed when it is first needed.

    Args:
        database: Lends it.
        patience: How long to wait for a session, and for each answer.
    """

    def __init__(self, database: Database, patience: timedelta) -> None:
        self._session = KeptSession(database.session)
        self._patience = patience

    async def __call__(
        self, call: Callable[Concatenate[OwnedSession, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """
        Call a function with the session and the arguments; returns what it does.

        Raises:
            DatabaseUnavailable: No session, or no answer, came in time.
        """
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                session = await self._session.get()
        except TimeoutError as error:
            raise DatabaseUnavailable(
                f"no connection to the database within {self._patience.total_seconds():g} s"
            ) from error
        session.patience = self._patience
        return await call(session, *args, **kwargs)

    async def close(self, limit: float) -> None:
        """Give the session back within so many seconds: a network that is cut must not keep anybody."""
        with suppress(ProjectionsError, TimeoutError):
            async with asyncio.timeout(limit):
                await self._session.close()
