"""Turns: of all processes one does a piece of work for all, each time that it is due."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial

from journal.database import Database, Session
from journal.schema import check_version
from journal.service import AT_ONCE, WHEN_WOKEN, Service, Step
from journal.tasks import together

_TAKE = "SELECT projections._take_turn_v1($1, $2)"
_TAKEN = """
SELECT EXISTS (SELECT FROM projections.turns AS t WHERE t.chore = $1 AND t.taken_at > clock_timestamp() - $2::interval)
"""
_LOOKS_IN_A_TURN = 4


async def take_turn(database: Database, chore: str, every: timedelta) -> bool:
    """
    Whether the caller is to do a chore now, since nobody has for this long; the role needs projections_worker.

    Raises:
        SchemaError: The schema is missing, or of another version.
        MissingPrivilege: The role may not.
    """
    async with database.session() as session:
        await check_version(session)
        return await take(session, chore, every)


async def take(session: Session, chore: str, every: timedelta) -> bool:
    """As :func:`take_turn`, in a session that has checked the schema."""
    return bool(await session.fetchval(_TAKE, chore, every))


async def is_done(session: Session, chore: str, within: timedelta) -> bool:
    """Whether a process has taken its turn in a chore within this time."""
    return bool(await session.fetchval(_TAKEN, chore, within))


class Turns:
    """
    Takes turns with all other processes in a chore. One of its works that fails holds up no other.

    Nothing depends on its being one process: each work is safe when two do it at once, and what one leaves undone that
    dies is done in the next turn.

    Args:
        database: Where; one connection of it is used.
        chore: Its name in the table of turns.
        every: How often one of all processes does it.
        works: By their names for the log; each does a part, and returns whether there is more.
        service: Makes a service of a name and a step.
    """

    def __init__(
        self,
        database: Database,
        chore: str,
        every: timedelta,
        works: Mapping[str, Callable[[], Awaitable[bool]]],
        service: Callable[[str, Step], Service],
    ) -> None:
        self._database = database
        self._chore = chore
        self._every = every
        self._look_every = every.total_seconds() / _LOOKS_IN_A_TURN
        self._one_at_a_time = asyncio.Lock()
        self._turn = service("turn", self._take)
        self._works = [service(name, partial(self._do, work)) for name, work in works.items()]

    def stop(self) -> None:
        """End after what is being done."""
        self._turn.stop()

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Do the chore in turns until stopped; a process that has just started has better things to do."""
        async with together() as group:
            for work in self._works:
                group.create_task(work.run(self._turn.stopping, first=WHEN_WOKEN))
            await self._turn.run(stop, first=self._look_every)

    async def _take(self) -> float:
        if await take_turn(self._database, self._chore, self._every):
            for work in self._works:
                work.wake()
        return self._look_every

    async def _do(self, work: Callable[[], Awaitable[bool]]) -> float:
        async with self._one_at_a_time:
            return AT_ONCE if await work() else WHEN_WOKEN
