"""
One poll of the writers for all who read in a process: quick while something happens, slow while nothing does.

A range that has used one poll waits for the next; those in between it may leave out (journal/backtracking.py
says why that is safe). A notification ends the wait at once; a lost one costs latency, nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple, NoReturn, TypeAlias
from weakref import WeakKeyDictionary

from journal.backtracking import END_OF_TIME, Backtracking, WritersPoll
from journal.database import Database, KeptSession, Row
from journal.database.generation import Generation
from journal.entity_types import EntityTypes
from journal.errors import DatabaseUnavailable, NeedsPrimary
from journal.log import Log, as_log
from journal.service import Pace
from journal.standby import NEEDS_PRIMARY, PollAnswer, StandbyPolls, patience
from journal.tasks import happens

CHANNEL = "projections_appended"

log = logging.getLogger("projections")

_GROWTH = 1 / 32
"""An event waits for at most about this part of the time between it and the one before (docs/decisions/polling.md)."""
_LOOKS_BACK = timedelta(minutes=1)
"""How far back a poll looks for new events: looking further would open more partitions each time."""


@dataclass(frozen=True, slots=True)
class PollPacing:
    """
    How often the database is asked for news.

    Args:
        shortest: Pause between polls while events arrive: a floor of the latency without notifications.
        longest: Pause when nothing arrives; it is reached by and by.
    """

    shortest: timedelta = timedelta(milliseconds=5)
    longest: timedelta = timedelta(milliseconds=120)

    def pace(self) -> Pace:
        """The pauses of who polls so."""
        return Pace(self.shortest, self.longest, _GROWTH)


Newest: TypeAlias = Mapping[str | None, datetime | None]
"""The newest event of each entity type, or None: of all."""


@dataclass(frozen=True, slots=True)
class Look:
    """
    A poll as one range sees it: the n-th.

    Args:
        number: Of the poll.
        poll: The result of the poll.
        newest: The newest event of the range's types after its place and after ``since``, if any.
        since: Of events up to this time it tells nothing.
    """

    number: int
    poll: WritersPoll
    newest: datetime | None
    since: datetime
    generation: int
    """How often a poll of this process did not follow the one before: what was remembered at another number is worth
    nothing."""

    def says_nothing_to(self, reader: Backtracking) -> bool:
        """Whether it may be passed over: no event after the reader's place, and no writer gone."""
        place = reader.position.db_timestamp
        nothing_new = place >= self.since and (self.newest is None or self.newest <= place)
        return nothing_new and reader.unchanged(self.poll)


class Polled(NamedTuple):
    """What a poll has told besides; see :func:`hearing_polls`."""

    at: float
    """When it was asked, by the clock of the event loop."""
    generation: Generation
    number: int | None
    """The number that the hearer asks for; None when this poll did not ask: of a standby, or begun before."""


_hearing: WeakKeyDictionary[Database, dict[Callable[[Polled], None], str]] = WeakKeyDictionary()


@contextmanager
def hearing_polls(
    database: Database, heard: Callable[[Polled], None], *, number: str = "0"
) -> Iterator[None]:
    """
    Be told, while the block runs, of each poll that anybody in this process makes of a database.

    Args:
        database: The database that is polled.
        heard: Called after each poll.
        number: An SQL expression of a number that each poll tells, too. When it changes, polls come quicker.
    """
    hearing = _hearing.setdefault(database, {})
    hearing[heard] = number
    try:
        yield
    finally:
        hearing.pop(heard, None)


_shared: dict[Log, WritersPoller] = {}


@asynccontextmanager
async def shared_poller(
    database: Database | Log, pacing: PollPacing, *, listen: bool
) -> AsyncIterator[WritersPoller]:
    """
    The poller of a log for all that runs in this process.

    Args:
        database: Where our journal is, or a log of another kind.
        pacing: How often, at least, while the block runs.
        listen: Be woken by notifications while it does.
    """
    journal = as_log(database)
    poller = _shared.setdefault(journal, WritersPoller(journal, pacing))
    try:
        async with poller.used(pacing, listen=listen):
            yield poller
    finally:
        if not poller.in_use and _shared.pop(journal, None) is not None:
            await poller.close()


class WritersPoller:
    """
    Polls the writers for every range that asks.

    Args:
        database: Where our journal is, or a log of another kind; the primary, or with it, for what the lock tells.
        pacing: The pauses between polls.
    """

    def __init__(self, database: Database | Log, pacing: PollPacing | None = None) -> None:
        journal = as_log(database)
        self._database, self._query = journal.database, journal.queries.poll
        self._pace = (pacing or PollPacing()).pace()
        self._users: list[tuple[PollPacing, bool]] = []
        self._listening = AsyncExitStack()
        # One connection for all polls: lending one from the pool costs a second round trip each time.
        self._session = KeptSession(self._database.session)
        primary = journal.primary
        self._standby = None if primary is None else StandbyPolls(self._database, primary, self._query)
        self._notifying = journal.at_primary.database
        self._places: dict[object, tuple[EntityTypes, datetime, int]] = {}
        self._covered: set[object] = set()
        self._one_at_a_time = asyncio.Lock()
        self._failed: DatabaseUnavailable | None = None
        self._woken = asyncio.Event()
        self._number = 0
        self._generation: Generation | None = None
        self._generations = 0
        self._back_to: list[datetime] = []
        self._asked_at = self._polled_at = self._took = 0.0
        self._numbers: dict[str, int] = {}
        self._row: tuple[WritersPoll, dict[int, str], Newest, datetime] | None = None

    @property
    def number(self) -> int:
        """Number of the last poll; 0 before the first."""
        return self._number

    @property
    def generation(self) -> int:
        """How often a poll did not follow the one before; see :attr:`Look.generation`."""
        return self._generations

    @property
    def seen(self) -> Generation | None:
        """The generation that the last poll has shown."""
        return self._generation

    def back_to(self, generation: int) -> datetime | None:
        """
        From when on a generation has not been seen any more, by the clocks of the databases that answered after it.

        Another server's clock may be behind: what it has stamped since is not older. None where it is the last one.

        Args:
            generation: One that :attr:`generation` was, or is. Whoever waited may have missed more than one change.
        """
        return min(self._back_to[generation:], default=None)

    def wake(self) -> None:
        """Poll at once: something was appended."""
        self._woken.set()

    @property
    def in_use(self) -> bool:
        """Whether anybody uses it now."""
        return bool(self._users)

    @asynccontextmanager
    async def used(self, pacing: PollPacing, *, listen: bool) -> AsyncIterator[None]:
        """Poll as often as the fastest of its users wants, and listen to notifications while one of them does."""
        user, begins = (pacing, listen), listen and not self._is_listening
        self._users.append(user)
        self._set_pace()
        self.wake()
        try:
            if begins:
                await self._listening.enter_async_context(self._notifying.listen(CHANNEL, self.wake))
            yield
        finally:
            self._users.remove(user)
            self._set_pace()
            if listen and not self._is_listening:
                # Another may begin while this one ends.
                ended, self._listening = self._listening, AsyncExitStack()
                await ended.aclose()

    @property
    def _is_listening(self) -> bool:
        return any(listen for _, listen in self._users)

    def _set_pace(self) -> None:
        if self._users:
            wanted = [pacing for pacing, _ in self._users]
            quickest = PollPacing(min(one.shortest for one in wanted), min(one.longest for one in wanted))
            self._pace = quickest.pace()

    async def look(
        self,
        who: object,
        entity_types: EntityTypes,
        place: datetime,
        after: int,
        import_id: int,
        *,
        needs_primary: bool = True,
    ) -> Look:
        """
        The first poll later than number ``after``; waits for it as the pacing says.

        Args:
            who: The asking range.
            entity_types: The types of events that are read.
            place: The time it has read up to.
            after: Number of the last look it has used; 0 for none.
            import_id: The last import it accounts for.
            needs_primary: Whether it relies on the writers that are seen, which on a standby are none.

        Raises:
            NeedsPrimary: A standby answers who needs the primary.
        """
        self._places[who] = (entity_types, place, import_id)
        failed = self._failed
        async with self._one_at_a_time:
            # A poll from before this range asked may leave out imports and events that only it has not seen.
            if self._number <= after or who not in self._covered:
                if self._failed is not None and self._failed is not failed:
                    raise self._failed  # each would wait for as long, one after the other
                await self._wait()
                try:
                    await self._poll()
                except DatabaseUnavailable as error:
                    self._failed = error
                    raise
        assert self._row is not None  # noqa: S101 - set by _poll
        poll, import_types, newest, since = self._row
        if needs_primary and poll.replayed_until is not None:
            await self._refuse_standby()
        imports = {n: t for n, t in poll.imports.items() if n > import_id and import_types[n] in entity_types}
        told = replace(poll, imports=imports)
        new = [at for name in _asked(entity_types) if (at := newest.get(name)) is not None]
        return Look(self._number, told, max(new, default=None), since, self._generations)

    async def _refuse_standby(self) -> NoReturn:
        try:
            raise NeedsPrimary(NEEDS_PRIMARY)
        finally:
            await self.close()  # the next connection may be to the primary

    def forget(self, who: object) -> None:
        """A range has stopped: its place no longer matters."""
        self._places.pop(who, None)
        self._covered.discard(who)

    async def _wait(self) -> None:
        # Where the database is slow, polls fill half of the time of their connection, and not all of it.
        pause = max(self._pace.pause, min(self._took, self._pace.longest))
        remaining = self._polled_at + pause - asyncio.get_running_loop().time()
        if remaining > 0 and await happens(self._woken, remaining):
            self._pace.quicken()
        self._woken.clear()

    async def _ask(
        self, import_id: int, places: dict[str | None, datetime], numbers: Sequence[str]
    ) -> PollAnswer:
        if self._standby is not None:
            return await self._standby.ask(import_id, places)
        query = self._query
        if numbers:  # in the same statement: a poll is one round trip
            query = f"SELECT p.*, ARRAY[{', '.join(numbers)}]::bigint[] AS numbers FROM ({query}\n) AS p"
        asked_at = asyncio.get_running_loop().time()
        async with patience(), self._session.use() as session:
            row = await session.fetchrow(query, import_id, list(places), list(places.values()))
        assert row is not None  # noqa: S101 - the function returns one row
        newest = dict(zip(places, row["newest_events"], strict=True))
        return PollAnswer(row, newest, asked_at, asyncio.get_running_loop().time())

    async def close(self) -> None:
        """Give the connection back; a later poll lends another."""
        await self._session.close()
        if self._standby is not None:
            await self._standby.close()

    async def _compare(self, generation: Generation, polled_at: datetime, told_at: float) -> None:
        """Count when the database that answers is not what the one before has become."""
        before, self._generation = self._generation, generation
        if before is not None and not generation.follows(before):
            self._generations += 1
            self._back_to.append(polled_at - timedelta(seconds=told_at - self._asked_at))
            log.warning(
                "another database answers, or it went back in time (before: %s; now: %s): what is remembered of it is "
                "dropped",
                before, generation, extra={"action": "went_back"},
            )  # fmt: skip
            await self.close()
            # Others of the pool may still be to the server of before, which shows what is no longer true.
            await self._database.renew()

    def _look_since(self) -> datetime:
        """From where on a poll looks for new events. A range that stands before reads to see whether there are any."""
        return END_OF_TIME if self._row is None else self._row[0].polled_at - _LOOKS_BACK

    async def _poll(self) -> None:
        since = self._look_since()
        places: dict[str | None, datetime] = {}
        for entity_types, place, _ in self._places.values():
            for name in _asked(entity_types):
                places[name] = max(since, min(place, places.get(name, place)))
        import_id = min(known for _, _, known in self._places.values())
        covered = set(self._places)
        hearing = _hearing.get(self._database, {})
        asked = sorted({*hearing.values()})
        begun = asyncio.get_running_loop().time()
        told = await self._ask(import_id, places, asked)
        row, newest, asked_at, told_at = told.row, told.newest, told.asked_at, told.told_at
        await self._compare(Generation.of(row), row["polled_at"], told_at)
        self._asked_at = asked_at
        imports = dict(zip(row["import_ids"], row["imported_from"], strict=True))
        types = dict(zip(row["import_ids"], row["import_types"], strict=True))
        poll = WritersPoll(
            row["polled_at"], frozenset(row["holders"]), imports, asked_at, told_at, row["replayed_until"],
            _starts(row), row["wal_position"],
        )  # fmt: skip
        before = {} if self._row is None else self._row[2]
        self._row = poll, types, newest, since
        self._covered = covered
        self._number += 1
        self._polled_at = asyncio.get_running_loop().time()
        self._took = self._polled_at - begun
        numbers = dict(zip(asked, row.get("numbers") or (), strict=False))
        if numbers != self._numbers or _newer(newest, before):
            self._pace.quicken()
        else:
            self._pace.slow_down()
        self._numbers = numbers
        for heard, number in list(hearing.items()):
            heard(Polled(asked_at, Generation.of(row), numbers.get(number)))


def _newer(newest: Newest, before: Newest) -> bool:
    """Whether there are events that the poll before has not seen: of those it has, somebody may take no notice."""
    return any(at is not None and at != before.get(name) for name, at in newest.items())


def _starts(row: Row) -> dict[str, datetime]:
    """When holders began, of those that show it, where the log's bound asks for it."""
    starts = zip(row["holders"], row.get("holder_starts") or (), strict=False)
    return {holder: start for holder, start in starts if start is not None}


def _asked(entity_types: EntityTypes) -> tuple[str | None, ...]:
    """What a poll asks the newest event of: each type, or None for all of them."""
    return (None,) if entity_types.names is None else entity_types.names
