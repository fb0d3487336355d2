"""
The port through which projections read: a log is a set of queries, what bounds its late commits, and a decoder.

Our journal is one. What reads asks for nothing else, and so reads any log for which these can be written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Protocol, TypeAlias

from journal.backtracking import INSTANT, Backtracking, SequenceBacktracking, WriterLockBacktracking
from journal.database import Database, OwnedSession, Row
from journal.envelopes import EventEnvelope
from journal.errors import DatabaseUnavailable, InvalidValue, JournalUnavailable, NeedsPrimary
from journal.events import BEGINNING, Origin
from journal.standby import NEEDS_PRIMARY, Primary
from journal.writers import POLL, WRITERS

Decode: TypeAlias = Callable[[Sequence[Row], Origin], Iterable[EventEnvelope]]
"""Makes rows of events envelopes, in their order."""

_COLUMNS = len(EventEnvelope._fields) - 1
_new_envelope = partial(tuple.__new__, EventEnvelope)  # _make would count the fields again, of each event


class LateCommitBound(Protocol):
    """Makes the state machine by which a range of a log finds what commits late, such as a class of one."""

    settles_after: timedelta
    """How long before what is in flight everything is settled."""

    def __call__(
        self, start: datetime, *, margin: timedelta, import_id: int, kept: timedelta = timedelta(0)
    ) -> Backtracking:
        """
        Begin at what is settled.

        Args:
            start: The stored horizon.
            margin: Taken off every bound, for small steps of the clock.
            import_id: The last import that ``start`` accounts for.
            kept: How far back what is handled is known: read again where the clock was set back while nobody read.
        """
        ...


def _envelopes(rows: Sequence[Row], origin: Origin) -> Iterable[EventEnvelope]:
    return (_new_envelope((*islice(row.values(), _COLUMNS), origin)) for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """
    What a log is asked: SQL with fixed parameters and columns; those of our journal are functions of its schema.

    Events are in the order of time, slice, source and number; a place in it is these four values. Rows of events have
    the fields of :class:`EventEnvelope` but the last, as ``decode`` takes them, and end with ``more``: on the last row,
    whether the page ended because of its bytes.

    Args:
        events: A page of events of entity types (NULL: all), from one slice to another, after a place (four values), up
            to and including a time; as many as a number of rows and a number of bytes allow.
        keys: Source, number, time and slice of such a page; without the bytes. Where pages may end early, there is
            ``more``, too.
        heads: As ``keys``, and the event type and the entity type.
        load: Events by their source ids, numbers and times, which are in order, up to a number of bytes.
        predecessors: Of events, by source ids and numbers, ``source_id``, ``seq_nr`` and the ``db_timestamp`` of the
            event before each, where that is from one time on and before another.
        source: Events of a source, from one number to another; whether backwards; rows; bytes.
        latest: Number of a source's latest event, or NULL.
        find: The event with an id, or no row.
        types: The entity types (``entity_type``) that it has, or has had, events of.
        now: Its time (``now``), and the last import (``import_id``) that reads which follow can see, or 0.
        poll: What is in flight, with the columns of ``_poll_writers_v1`` and, where the bound asks for it, when each
            holder began; the last import that is known, entity types, and for each a time to look for events after.
        writers: Who that is, for people: ``pid``, ``application_name``, ``started_at``, and the name as holder.
        counts: About how many ``events`` and ``sources`` of entity types each ``slice`` has.
        counts_until: How many ``events`` of entity types each ``slice`` has, from one slice to another and up to a
            time; exactly.
        relation: What can be read as a whole, to stand after FROM: rows as ``decode`` takes them, and of other logs
            than ours the ``place`` and the ``source`` as they are stored.
        sources: Its sources as a whole, to stand after FROM: ``source_id``, ``entity_type``, ``slice``, the ``seq_nr``
            and the ``db_timestamp`` of the last event, and of other logs than ours the ``source`` as it is stored.
        passed_over: How many events no page has, for their place or their slice is none; cheap. Empty: there are none.
        stores_slices: Whether a slice is a column, and is not computed.
        decode: Makes rows of events envelopes.
    """

    events: str
    keys: str
    heads: str
    load: str
    predecessors: str
    source: str
    latest: str
    find: str
    types: str
    now: str
    poll: str
    writers: str
    counts: str
    counts_until: str
    relation: str
    sources: str
    passed_over: str = ""
    stores_slices: bool = True
    decode: Decode = _envelopes


JOURNAL = Queries(
    events="SELECT * FROM projections.read_events_by_slices_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    keys="""
    SELECT source_id, seq_nr, db_timestamp, slice
    FROM projections._read_keys_by_slices_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)
    """,
    heads="SELECT * FROM projections._read_keys_by_slices_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, TRUE)",
    load="SELECT * FROM projections._load_events_v1($1, $2, $3, $4)",
    predecessors="SELECT * FROM projections._predecessors_v1($1, $2, $3, $4)",
    source="SELECT * FROM projections.read_source_v1($1, $2, $3, $4, $5, $6)",
    latest="SELECT projections.latest_seq_nr_v1($1)",
    find="SELECT * FROM projections.find_event_v1($1)",
    types="SELECT projections._entity_types_v1() AS entity_type",
    now="""
    SELECT
        coalesce(projections._replayed_until_v1(), clock_timestamp()) AS now, coalesce(max(import_id), 0) AS import_id
    FROM projections.imports
    """,
    poll=POLL,
    writers=WRITERS,
    counts="""
    SELECT s.slice, sum(s.seq_nr)::bigint AS events, count(*) AS sources FROM projections.sources AS s
    WHERE coalesce(s.entity_type = ANY ($1::text[]), TRUE) GROUP BY s.slice
    """,
    counts_until="""
    SELECT e.slice, count(*) AS events FROM projections.events AS e
    WHERE ($1::text[] IS NULL OR e.entity_type = ANY ($1)) AND e.slice BETWEEN $2 AND $3 AND e.db_timestamp <= $4
    GROUP BY e.slice
    """,
    relation="projections.events",
    sources="projections.sources",
)
"""Those of our own journal."""


HISTORY = """
SELECT j.* FROM projections.events AS j
WHERE ($1::text[] IS NULL OR j.entity_type = ANY ($1::text[])) AND j.slice BETWEEN $2 AND $3
    AND j.db_timestamp <= $4::timestamptz AND j.event_type = ANY ($5::text[])
"""
"""Events of our own journal as they are stored: of entity types (NULL: all), slices, up to a time, of event types."""

OWN_NAME = "journal"
"""What a journal of this library is called, unless it is given a name."""


@dataclass(frozen=True, slots=True)
class Log:
    """
    A log, and where it is.

    Args:
        database: Lends the sessions that read; they need read only.
        name: What offsets that belong to it are stored with, and messages call it.
        queries: The statements that read it.
        bound: What bounds its late commits.
        primary: Where ``database`` is a standby, its primary, which shows what is open: one object for each standby.
        told: How many events that are passed over have been told of.
    """

    database: Database
    name: str = OWN_NAME
    queries: Queries = JOURNAL
    bound: LateCommitBound = WriterLockBacktracking
    primary: Primary | None = None
    told: int = 0

    @property
    def has_tokens(self) -> bool:
        """Whether it is a journal of this library: what is appended there has a token."""
        return self.queries is JOURNAL

    def stored_name(self, database: Database) -> str | None:
        """The name that it goes by where offsets are in a database: None of our journal in that one."""
        return None if self.queries is JOURNAL and self.database is database else self.name

    @property
    def is_by_number(self) -> bool:
        """Whether it is ordered by numbers: the number n is the time n microseconds after 1970."""
        return self.bound is SequenceBacktracking

    def shown(self, place: datetime) -> str:
        """A place in its order for people: a number, or a time."""
        return f"{(place - BEGINNING) // INSTANT:,}" if self.is_by_number else f"{place}"

    @property
    def at_primary(self) -> Log:
        """The same where it is written: it has what a standby has not replayed yet."""
        return self if self.primary is None else replace(self, database=self.primary.database, primary=None)

    def check_interval(self) -> None:
        """
        Refuse to read it by interval backtracking where that cannot be right.

        Raises:
            InvalidValue: Its events have no times, or its primary is named, which knows better.
        """
        if self.is_by_number:
            raise InvalidValue(
                f"journal {self.name!r} is ordered by a sequence, which is not a time: it cannot be read by interval. "
                "Read it at the primary, or name that alongside the standby"
            )
        if self.primary is not None:
            raise InvalidValue(
                f"journal {self.name!r}: reading by interval asks no primary: leave out the one or the other"
            )

    async def passed_over(self) -> int:
        """
        How many events no projection gets, because their position or their slice is none.

        Raises:
            JournalUnavailable: It cannot be reached.
        """
        if not self.queries.passed_over:
            return 0
        async with self.session() as session:
            return int(await session.fetchval(self.queries.passed_over))

    @staticmethod
    def passed_over_said(events: int) -> str:
        """That events are passed over, and why."""
        return (
            f"{events:,} events are passed over: their position is before 1970 or after the year 9998 (a sequence "
            "counts from 0), or their slice is not one of 0 to 1023, and no projection gets them by themselves"
        )

    async def check(self, *, alone: bool) -> None:
        """
        Refuse a standby whose primary is not named, or another; see :meth:`journal.standby.Primary.check`.

        Args:
            alone: Whether a standby may be read without its primary.

        Raises:
            ProjectionsError: They do not belong together, or one cannot be reached.
        """
        if self.primary is None and alone:
            return
        async with self.session() as session:
            if self.primary is not None:
                await self.primary.check(session)
            elif await session.fetchval("SELECT pg_is_in_recovery()"):
                raise NeedsPrimary(NEEDS_PRIMARY)

    @contextmanager
    def named(self) -> Iterator[None]:
        """
        Have errors say that it is the database of this log which cannot be reached.

        Raises:
            JournalUnavailable: It cannot.
        """
        try:
            yield
        except JournalUnavailable:
            raise
        except DatabaseUnavailable as error:
            raise JournalUnavailable(f"journal {self.name!r}: {error}") from error

    @asynccontextmanager
    async def session(self) -> AsyncIterator[OwnedSession]:
        """Lend a session to read with; see :meth:`named` and :meth:`lend`."""
        with self.named():
            async with self.lend() as session:
                yield session

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[OwnedSession]:
        """Lend a session to read with; on a standby, one that has replayed what readers rely on."""
        async with self.database.session() as session:
            if self.primary is not None:
                await self.primary.wait_until_replayed(session)
            yield session


@dataclass(frozen=True, slots=True)
class LogToOpen:
    """
    A log in another database than the read models, which may not be reached yet.

    Args:
        name: That of the log.
        open: Connects to its database for the length of a block, and gives the log.
    """

    name: str
    open: Callable[[], AbstractAsyncContextManager[Log]]


def as_log(where: Database | Log) -> Log:
    """The log that is meant: of a database, our journal in it."""
    return where if isinstance(where, Log) else Log(where)


Journals: TypeAlias = Database | Log | Sequence[Database | Log] | None
"""One log or several, each as :func:`as_log` takes it."""


def as_logs(where: Journals) -> list[Log]:
    """The logs that are meant; none for None."""
    several = where if isinstance(where, Sequence) else [] if where is None else [where]
    return [as_log(one) for one in several]
