"""What the pools of all drivers share: what sessions begin with, listening, and connections that must go."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, ClassVar, Self

from journal.database.base import BaseSession
from journal.database.doubts import Doubt, Doubts
from journal.database.session import OwnedSession, Session
from journal.database.session_settings import OF_A_FOREIGN_JOURNAL, PINNED, set_local
from journal.database.settings import ConnectionSettings
from journal.tasks import running

log = logging.getLogger("projections")


class BaseDatabase(ABC):
    """A pool over one driver; see :class:`journal.Database` for the methods."""

    errors: tuple[type[BaseException], ...]
    pinned: ClassVar[Mapping[str, str]] = PINNED

    def __init__(self, pool: Any, dsn: str, settings: ConnectionSettings, *, pooled: bool) -> None:
        self._pool = pool
        self._dsn = dsn
        self._settings = settings
        self.pooled = pooled
        self._pins: Sequence[str] = ()
        self._doubts = Doubts()
        self._said_that_it_polls = False

    @property
    def dsn(self) -> str:
        """See :class:`journal.Database`."""
        return self._dsn

    @property
    def max_connections(self) -> int:
        """See :class:`journal.Database`."""
        return self._settings.max_connections

    @classmethod
    @abstractmethod
    async def open(cls, dsn: str, settings: ConnectionSettings, *, pooled: bool) -> Self:
        """Open the pool, with sessions of its own or ``pooled``; raises DatabaseUnavailable where that fails."""

    @classmethod
    def pinned_for(cls, settings: ConnectionSettings) -> Mapping[str, str]:
        """What every session has, by the settings of a connection."""
        return {**cls.pinned, **(OF_A_FOREIGN_JOURNAL if settings.foreign_journal else {})}

    @staticmethod
    @abstractmethod
    def announced_pid(connection: Any) -> int:
        """The process that the server named when it was connected to; a pooler makes one up."""

    async def pin(self) -> None:
        """Set in every transaction what the sessions that a pooler lends have otherwise."""
        pinned, found = self.pinned_for(self._settings), dict[str, str]()
        if not self._settings.foreign_journal:  # whose owner may change later what sessions begin with
            async with self.session() as session:
                found = {name: await session.fetchval(f"SHOW {name}") for name in pinned}
        self._pins = [
            set_local(name, value)
            for name, value in pinned.items()
            if not found.get(name, "").lower().startswith(value.lower())
        ]

    @abstractmethod
    def session(self) -> AbstractAsyncContextManager[OwnedSession]: ...

    @abstractmethod
    async def _listen(self, channel: str, heard: Callable[[], None]) -> None:
        """Listen on a connection of its own until that is lost."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        async with self.session() as session, session.transaction(idle=None):  # it is the application's
            yield session

    @asynccontextmanager
    async def listen(self, channel: str, heard: Callable[[], None]) -> AsyncIterator[None]:
        if self.pooled:
            self._say_that_it_polls()
            yield
            return
        async with running(self._keep_listening(channel, heard)):
            yield

    def _say_that_it_polls(self) -> None:
        """Once: all that listen are in the same place."""
        if not self._said_that_it_polls:
            self._said_that_it_polls = True
            log.info(
                "a pooler is between this process and the database, and keeps notifications to itself: polling instead"
            )

    async def _keep_listening(self, channel: str, heard: Callable[[], None]) -> None:
        while True:
            with suppress(*self.errors):
                await self._listen(channel, heard)
            await asyncio.sleep(self._settings.listen_retry.total_seconds())

    def _pool_is_full(self) -> TimeoutError:
        size, wait = self._settings.max_connections, self._settings.pool_timeout.total_seconds()
        return TimeoutError(
            f"all {size} connections of the pool were in use for {wait:g} s: raise max_connections"
        )

    async def _dismiss(self, session: BaseSession) -> None:
        """Before a session's connection goes back: end it, or have all replaced, where they cannot be trusted."""
        if session.doubt is not Doubt.NONE:
            await session.discard()
        if self._doubts.all_go():
            await self.renew()

    @abstractmethod
    async def renew(self) -> None: ...

    async def close(self) -> None:
        await self._pool.close()
