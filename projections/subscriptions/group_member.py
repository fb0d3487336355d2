"""
A consumer as the database knows it: by a name in its group, for as long as its lease.

It has one session for all that it asks, and waits for no answer without an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Concatenate, ParamSpec, TypeVar

import offsets
from journal import Database, DatabaseUnavailable, KeptSession, OwnedSession
from journal.database import Fault
from projections.running import blame_beside
from projections.subscriptions.groups import GroupRange, poll_group

P = ParamSpec("P")
T = TypeVar("T")

_GOODBYE = 2
"""Seconds for the last words to a database that may be gone."""


class GroupMember:
    """
    A member of a group. Calling it calls a function with its session, which is borrowed when it is first needed.

    Its name nobody else has. Whenever it joins again it takes another: what was begun under the old one can store
    nothing any more. Its ranges are its own for ``lease`` without another word; half as long it waits for an answer.
    """

    def __init__(self, database: Database, group: str, name: str, lease: timedelta) -> None:
        self._session = KeptSession(database.session)
        self._patience = lease / 2
        self._group = group
        self._name = name
        self._lease = lease
        self._times = 1
        self._joined = False

    @property
    def owner(self) -> str:
        """The name by which it has joined."""
        return self._name if self._times == 1 else f"{self._name}.{self._times}"

    async def __call__(
        self, call: Callable[Concatenate[OwnedSession, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function with the session and the arguments; DatabaseUnavailable: no answer came in time."""
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                session = await self._session.get()
        except TimeoutError as error:
            raise DatabaseUnavailable(
                f"no connection to the database within {self._patience.total_seconds():g} s"
            ) from error
        session.patience = self._patience
        return await call(session, *args, **kwargs)

    async def stay(self, handlers: Sequence[int]) -> list[GroupRange]:
        """
        Join, or say that it is still there, with the numbers of its handlers; returns the ranges that it has.

        NotFound: the group was removed. DatabaseWentBack: it had joined, and the database does not know it.
        """
        held = await self(
            poll_group, self._group, self.owner, self._lease, joined=self._joined, handlers=handlers
        )
        self._joined = True
        return held

    async def blame(self, error: BaseException) -> Fault:
        """Whose fault an error of a handler is, which may use the database of the group, too."""
        return await self(blame_beside, error)

    async def leave(self) -> None:
        """Give all ranges back; the next :meth:`stay` joins again."""
        await self(offsets.leave, self.owner)
        self._times += 1
        self._joined = False

    async def close(self) -> None:
        """Give the session back."""
        await self._session.close_within(_GOODBYE)
