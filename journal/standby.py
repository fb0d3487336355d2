"""
Reading a standby: what is open is asked at its primary, and counts once that has been replayed.

Which transactions hold a lock, when they began and where a sequence stands, only the primary shows. A poll there
ends with the place where its log ends. What the poll does not show as open has its commit in the log before that place,
so it is visible on the standby once that has replayed so far: what is read there by later statements misses only what
the poll has shown, or what began after it, as on the primary itself. Until then the poll before counts on.

docs/decisions/standby.md has the argument.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from journal.database import Database, KeptSession, Row, Session
from journal.database.generation import Generation
from journal.errors import (
    DatabaseUnavailable,
    ForeignJournalError,
    MissingPrivilege,
    NeedsPrimary,
)
from journal.sql_files import sql_root

PATIENCE = 10
"""Seconds that a poll may take. It takes milliseconds: a connection that says nothing for that long is dead."""

_NO_IMPORTS = 2**63 - 1
_PAUSES = 0.005, 0.1
"""Seconds between two looks at a standby that is not as far yet: the shortest, and the longest."""
_KEPT = 32
"""About this many polls wait for a standby that is late, spread over its delay."""


@asynccontextmanager
async def patience() -> AsyncIterator[None]:
    """
    Wait ten seconds for what a poll asks.

    Raises:
        DatabaseUnavailable: There was no answer.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    except TimeoutError as error:
        raise DatabaseUnavailable(f"no connection to the database: no answer for {PATIENCE} s") from error


@dataclass(frozen=True, slots=True)
class PollAnswer:
    """
    What a poll of the writers has told.

    Args:
        row: The columns of the poll.
        newest: For each entity type that was asked, its newest event after the time asked, or None.
        asked_at: The reader's own steady clock before it asked, in seconds.
        told_at: The same clock when it had the answer.
    """

    row: Row
    newest: Mapping[str | None, datetime | None]
    asked_at: float
    told_at: float


@dataclass(frozen=True, slots=True)
class PrimaryPoll:
    """
    A poll at the primary.

    Args:
        row: Its columns.
        place: What a standby must have replayed before it counts, in bytes of the log.
        import_id: Imports after this one are in it.
        asked_at: As in :class:`PollAnswer`.
        told_at: As in :class:`PollAnswer`.
    """

    row: Row
    place: int
    import_id: int
    asked_at: float
    told_at: float

    @property
    def generation(self) -> Generation:
        """That of the primary."""
        return Generation.of(self.row)

    def why_not(self, seen: Row) -> str | None:
        """Why a server, as it was seen, cannot be read with it; None where it can."""
        if seen["system_identifier"] != self.row["system_identifier"]:
            return "the server that is read is not of the primary's cluster"
        if not seen["is_standby"]:
            # Also the primary itself may be read, where a name leads to whoever is there.
            same = seen["started_at"] == self.row["started_at"]
            return None if same else "the server that is read is not a standby of the primary any more"
        if seen["timeline"] is None:
            return f"the standby does not stream, or does not show it: role {seen['role']} needs pg_read_all_stats"
        if seen["timeline"] != self.row["timeline"]:
            return f"the standby follows timeline {seen['timeline']}, and its primary is on {self.row['timeline']}"
        if (behind := self.place - seen["replayed_until"]) > 0:
            return f"the standby has not replayed the last {behind:,} bytes of what its primary has written"
        return None


class Primary:
    """
    The primary of a standby that is read.

    Args:
        database: Its pool; three connections are enough. The role needs what it needs on a primary that is read itself,
            and ``pg_read_all_stats``, to see on the standby which timeline that follows.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.relied_on: PrimaryPoll | None = None
        """What readers of the standby rely on; None before the first poll."""

    async def check(self, standby: Session) -> None:
        """
        Refuse two servers that do not belong together.

        Args:
            standby: A session on the standby.

        Raises:
            NeedsPrimary: What was named as the primary is a standby, too.
            ForeignJournalError: They are not of one cluster.
            MissingPrivilege: The role does not see which timeline the standby follows.
            DatabaseUnavailable: The primary cannot be reached.
        """
        seen = await _replayed(standby)
        async with self.database.session() as session:
            here = await _replayed(session)
        if here["is_standby"]:
            raise NeedsPrimary(_IS_STANDBY)
        if here["system_identifier"] != seen["system_identifier"]:
            raise ForeignJournalError(
                "what was named as the primary is of another cluster than the server that is read"
            )
        if seen["is_standby"] and not seen["sees_timeline"]:
            raise MissingPrivilege(
                f"role {seen['role']} does not see which timeline the standby follows, and events could be lost after "
                f"a fail-over: GRANT pg_read_all_stats TO {seen['role']}, on the primary"
            )

    async def wait_until_replayed(self, server: Session) -> None:
        """
        Wait until a server has replayed what readers rely on: a name may lead to several.

        Raises:
            DatabaseUnavailable: It has not for ten seconds; the message says why.
        """
        until, pause = _clock() + PATIENCE, _PAUSES[0]
        while self.relied_on is not None and (why := self.relied_on.why_not(await _replayed(server))):
            if _clock() > until:
                raise DatabaseUnavailable(why)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])


class StandbyPolls:
    """
    Polls at the primary, each told once the standby can be read with it.

    A poll that counts is reported again while later ones wait: what the standby shows is read at once, however late it
    is, and only what is settled waits.

    Args:
        standby: The pool on it.
        primary: Its primary.
        poll: The query.
    """

    def __init__(self, standby: Database, primary: Primary, poll: str) -> None:
        self._primary = primary
        self._poll = poll
        self._asking = KeptSession(primary.database.session)
        self._looking = KeptSession(standby.session)
        self._waiting: list[PrimaryPoll] = []
        self._counts: PrimaryPoll | None = None

    async def ask(self, import_id: int, places: Mapping[str | None, datetime]) -> PollAnswer:
        """
        The newest poll that counts.

        Args:
            import_id: Imports after this one are wanted.
            places: Entity types, and for each a time to look for events after.

        Raises:
            NeedsPrimary: What was named as the primary is a standby.
            DatabaseUnavailable: One cannot be reached; or for ten seconds the standby could not be read with any poll.
        """
        until, pause = _clock() + PATIENCE, _PAUSES[0]
        while True:
            await self._ask_primary(import_id)
            async with patience(), self._looking.use() as session:
                seen = await _replayed(session)
                if (counts := self._newest_that_counts(seen, import_id)) is not None:
                    row = await session.fetchrow(self._poll, _NO_IMPORTS, list(places), list(places.values()))
                    assert row is not None  # noqa: S101 - a poll has one row
                    newest = dict(zip(places, row["newest_events"], strict=True))
                    return PollAnswer(counts.row, newest, counts.asked_at, counts.told_at)
            if _clock() > until:
                raise DatabaseUnavailable(
                    self._waiting[0].why_not(seen) or "no poll of the primary counts yet"
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])

    async def close(self) -> None:
        """Give the connections back; a later poll lends others."""
        try:
            await self._asking.close()
        finally:
            await self._looking.close()

    async def _ask_primary(self, import_id: int) -> None:
        """Poll the primary, unless enough polls wait for the standby."""
        asked_at = _clock()
        waiting = self._waiting
        if waiting and asked_at - waiting[-1].asked_at < (asked_at - waiting[0].asked_at) / _KEPT:
            return
        try:
            async with patience(), self._asking.use() as session:
                row = await session.fetchrow(_query(self._poll), import_id, [], [])
                assert row is not None  # noqa: S101 - a poll has one row
                if row["inserted_until"] is None:
                    raise NeedsPrimary(_IS_STANDBY)  # the next connection may be to the primary
        except DatabaseUnavailable as error:
            raise DatabaseUnavailable(f"the primary: {error}") from error
        asked = PrimaryPoll(row, _end_of_record(row), import_id, asked_at, _clock())
        before = waiting[-1] if waiting else self._counts
        if before is not None and not asked.generation.follows(before.generation):
            waiting.clear()
            self._counts = None
            await self._primary.database.renew()
        waiting.append(asked)

    def _newest_that_counts(self, seen: Row, import_id: int) -> PrimaryPoll | None:
        """The newest poll that the standby, as it was seen, can be read with."""
        ready = [poll for poll in self._waiting if poll.why_not(seen) is None]
        if ready:
            self._counts = self._primary.relied_on = ready[-1]
            self._waiting = [poll for poll in self._waiting if poll.place > ready[-1].place]
        counts = self._counts
        fits = counts is not None and counts.import_id <= import_id and counts.why_not(seen) is None
        return counts if fits else None


NEEDS_PRIMARY = (
    "this server is a standby, which does not show what is still open on the primary: those events would be lost. "
    "Connect to the primary (target_session_attrs=read-write where the DSN has several hosts), or name it alongside "
    "the standby (--journal-primary), or read by interval (--backtracking interval, IntervalBacktracking)"
)
_IS_STANDBY = (
    "what was named as the primary is a standby, too, which does not show what is open: name the primary"
)
_HEADS = 24, 40
"""Bytes that a page of the log begins with, and the first page of a segment."""


def _end_of_record(row: Row) -> int:
    """Where the last record before it ends: behind the head of a page, that is the end of the page before."""
    place: int = row["inserted_until"]
    page, first = _HEADS
    if place % row["segment_size"] == first:
        return place - first
    return place - page if place % row["page_size"] == page else place


async def _replayed(session: Session) -> Row:
    row = await session.fetchrow(_file("replayed"))
    assert row is not None  # noqa: S101 - it has one row
    return row


@cache
def _query(poll: str) -> str:
    return _file("poll").replace("standby_poll", f"(\n{poll}\n)")


@cache
def _file(name: str) -> str:
    return (sql_root() / "standby" / f"{name}.sql").read_text()


def _clock() -> float:
    return asyncio.get_running_loop().time()
