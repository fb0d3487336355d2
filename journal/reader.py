"""Reading the journal: one source, one event, or a range of slices page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple, TypeVar, overload
from uuid import UUID

from pydantic import BaseModel

from journal.backtracking import END_OF_TIME
from journal.database import Database, Row, Session
from journal.entity_types import EntityTypes
from journal.envelopes import EventEnvelope, decoder
from journal.event_types import event_type_of
from journal.events import BEGINNING, Origin, Position
from journal.log import JOURNAL, Log, Queries, as_log
from journal.slices import ALL_SLICES, SliceRange

T = TypeVar("T")
M1 = TypeVar("M1", bound=BaseModel)
M2 = TypeVar("M2", bound=BaseModel)
M3 = TypeVar("M3", bound=BaseModel)

PAGE_SIZE = 1000
PAGE_BYTES = 8 * 2**20
"""A page ends with the event with which it has this number of bytes; an event has up to 16 MiB itself."""

_LATEST = 2**63 - 1
_NO_ID = UUID(int=0)


class Key(NamedTuple):
    """Names an event, and says where in the log it stands."""

    source_id: str
    seq_nr: int
    db_timestamp: datetime
    slice: int

    @property
    def position(self) -> Position:
        """Its place in the order of the log."""
        return Position(self.db_timestamp, self.slice, self.source_id, self.seq_nr)


class Page(list[T]):
    """What was read at once, in its order."""

    more = False
    """Whether it ends because of its rows or its bytes: then what follows is still to be read."""

    @classmethod
    def of(cls, items: Iterable[T], *, more: bool) -> Page[T]:
        """A page of items."""
        page = cls(items)
        page.more = more
        return page


def _page(
    queries: Queries,
    rows: Sequence[Row],
    origin: Origin = Origin.QUERY,
    *,
    page_size: int | None = None,
    page_bytes: int = PAGE_BYTES,
) -> Page[EventEnvelope]:
    more = bool(rows) and (len(rows) == page_size or rows[-1]["more"])
    if queries is JOURNAL:
        return Page.of(queries.decode(rows, origin), more=more)
    # What was packed by the application may be a thousand times as long as the database could tell.
    page, left = Page[EventEnvelope](), page_bytes
    for envelope in queries.decode(rows, origin):
        page.append(envelope)
        left -= len(envelope.payload_json)
        if left <= 0:
            break
    page.more = more or len(page) < len(rows)
    return page


@overload
def read_source(
    session: Session,
    source_id: str,
    *,
    first: int = 1,
    last: int | None = None,
    backwards: bool = False,
    queries: Queries = JOURNAL,
) -> AsyncIterator[EventEnvelope]: ...
# An event is one of the models: mypy would join them to BaseModel without being told.
@overload
def read_source(
    session: Session, source_id: str, one: type[M1], /, *, first: int = 1, last: int | None = None,
    backwards: bool = False, queries: Queries = JOURNAL,
) -> AsyncIterator[M1]: ...  # fmt: skip
@overload
def read_source(
    session: Session, source_id: str, one: type[M1], two: type[M2], /, *, first: int = 1, last: int | None = None,
    backwards: bool = False, queries: Queries = JOURNAL,
) -> AsyncIterator[M1 | M2]: ...  # fmt: skip
@overload
def read_source(
    session: Session, source_id: str, one: type[M1], two: type[M2], three: type[M3], /, *, first: int = 1,
    last: int | None = None, backwards: bool = False, queries: Queries = JOURNAL,
) -> AsyncIterator[M1 | M2 | M3]: ...  # fmt: skip
@overload
def read_source(
    session: Session, source_id: str, *models: type[BaseModel], first: int = 1, last: int | None = None,
    backwards: bool = False, queries: Queries = JOURNAL,
) -> AsyncIterator[Any]: ...  # fmt: skip
async def read_source(
    session: Session,
    source_id: str,
    *models: type[BaseModel],
    first: int = 1,
    last: int | None = None,
    backwards: bool = False,
    queries: Queries = JOURNAL,
) -> AsyncIterator[Any]:
    """
    Events of one source, a page at a time: envelopes, or the payloads of some models.

    Args:
        session: Where to read; every page is a query of its own.
        source_id: The source; an unknown one has no events.
        models: Give the payloads of these models, in their newest versions, and leave out all other events; none: give
            the envelopes of all. Type checkers tell up to three apart.
        first: The ``seq_nr`` of the first event to read, from 1 on.
        last: The ``seq_nr`` of the last event to read; None: up to the newest.
        backwards: Read from ``last`` down to ``first``.
        queries: The queries of the log.

    Raises:
        InvalidPayload: A payload does not fit its model.
    """
    if models:
        decoders = {event_type_of(model).name: decoder(model) for model in models}
        async for envelope in read_source(
            session, source_id, first=first, last=last, backwards=backwards, queries=queries
        ):
            if (decode := decoders.get(envelope.event_type)) is not None:
                yield decode(envelope)
        return
    low, high = first, _LATEST if last is None else last
    while low <= high:
        page = await read_source_page(session, source_id, low, high, backwards=backwards, queries=queries)
        for envelope in page:
            yield envelope
        if not page.more:
            return
        if backwards:
            high = page[-1].seq_nr - 1
        else:
            low = page[-1].seq_nr + 1


async def read_source_page(
    session: Session,
    source_id: str,
    first: int,
    last: int,
    *,
    backwards: bool = False,
    page_bytes: int = PAGE_BYTES,
    queries: Queries = JOURNAL,
) -> Page[EventEnvelope]:
    """The first events of a source from one number to another, or the last, as many as a page has."""
    rows = await session.fetch(queries.source, source_id, first, last, backwards, PAGE_SIZE, page_bytes)
    return _page(queries, rows, page_size=PAGE_SIZE, page_bytes=page_bytes)


async def latest_seq_nr(session: Session, source_id: str, *, queries: Queries = JOURNAL) -> int:
    """Number of a source's latest event; 0 when it has none."""
    return int(await session.fetchval(queries.latest, source_id) or 0)


async def find_event(session: Session, event_id: UUID, *, queries: Queries = JOURNAL) -> EventEnvelope | None:
    """The event of an id, or None. Looking up a UUIDv7 spares the partitions before its time."""
    page = _page(queries, await session.fetch(queries.find, event_id))
    return page[0] if page else None


async def entity_types(session: Session, *, queries: Queries = JOURNAL) -> list[str]:
    """The entity types that the log has, or has had, events of."""
    return [row["entity_type"] for row in await session.fetch(queries.types)]


class Now(NamedTuple):
    """The time of a log, and the last import that reads which follow can see."""

    time: datetime
    import_id: int


async def now(session: Session, *, queries: Queries = JOURNAL) -> Now:
    """What time it is in a log: what is committed later is stamped later, come what is in flight."""
    row = await session.fetchrow(queries.now)
    assert row is not None  # noqa: S101 - the query returns one row
    return Now(row["now"], row["import_id"])


async def now_in(log: Log) -> Now:
    """As :func:`now`: of a standby alongside its primary, the time of that, and the last import that it shows."""
    async with log.lend() as session:
        seen = await now(session, queries=log.queries)
    if log.primary is None:
        return seen
    async with log.at_primary.lend() as session:
        return seen._replace(time=(await now(session, queries=log.queries)).time)


async def current_events(
    database: Database | Log,
    entity_type: str | Collection[str] | EntityTypes,
    slices: SliceRange = ALL_SLICES,
    *,
    start: datetime = BEGINNING,
) -> AsyncIterator[EventEnvelope]:
    """
    Events of a range of slices that are in the log now, in the order of time; ends with the last.

    Events whose transaction has not committed yet are not among them; :func:`projections.live_events` waits
    for those.

    Args:
        database: Where our journal is, or a log of another kind.
        entity_type: The kind of sources, several, or ``ALL_TYPES``.
        slices: Range of slices.
        start: Leave out events before this time.
    """
    log = as_log(database)
    async with log.lend() as session:
        until = (await now(session, queries=log.queries)).time
        reader = SliceReader(entity_type, slices, queries=log.queries)
        position = Position.before(start)
        while page := await reader.events(session, position, until):
            for envelope in page:
                yield envelope
            position = page[-1].position


class SliceReader:
    """
    The queries that read a range of slices; a page starts after a position and has up to ``page_size`` rows.

    Args:
        entity_type: The kind of sources to read, several, or ``ALL_TYPES``.
        slices: The range.
        page_size: Rows of a page: what a batch holds.
        page_bytes: Bytes of a page, which bound the memory: payloads, metadata, and half a KiB for each event. It
            ends with the event with which it has this number.
        queries: The queries of the log.
    """

    def __init__(
        self,
        entity_type: str | Collection[str] | EntityTypes,
        slices: SliceRange,
        page_size: int = PAGE_SIZE,
        page_bytes: int = PAGE_BYTES,
        queries: Queries = JOURNAL,
    ) -> None:
        self.entity_types = EntityTypes.of(entity_type)
        self.slices = slices
        self.page_size = page_size
        self.page_bytes = page_bytes
        self.queries = queries

    async def events(self, session: Session, after: Position, until: datetime) -> Page[EventEnvelope]:
        """The next events, up to and including the time ``until``."""
        page = (self.entity_types.sql, *self.slices, *after, until, self.page_size, self.page_bytes)
        rows = await session.fetch(self.queries.events, *page)
        return _page(self.queries, rows, page_size=self.page_size, page_bytes=self.page_bytes)

    async def keys(self, session: Session, after: Position, until: datetime) -> Page[Key]:
        """The keys of the next events, without their payload: what backtracking compares."""
        rows = await session.fetch(
            self.queries.keys, self.entity_types.sql, *self.slices, *after, until, self.page_size
        )
        return Page.of((Key._make(islice(row.values(), 4)) for row in rows), more=self._more(rows))

    def _more(self, rows: Sequence[Row]) -> bool:
        """Whether keys may follow: a log may end a page early, and says so."""
        return len(rows) == self.page_size or (bool(rows) and bool(rows[-1].get("more")))

    async def load(self, session: Session, keys: Sequence[Key]) -> tuple[Page[EventEnvelope], Sequence[Key]]:
        """A page of the events of keys, which are in the order of the log; and the keys that are left."""
        if not keys:
            return Page(), ()
        columns = [[key[i] for key in keys] for i in range(3)]
        rows = await session.fetch(self.queries.load, *columns, self.page_bytes)
        page = _page(self.queries, rows, Origin.BACKTRACKING, page_bytes=self.page_bytes)
        if not page.more:
            return page, ()
        return page, [key for key in keys if key.position > page[-1].position]

    async def of_source(self, session: Session, source_id: str, first: int, last: int) -> Page[EventEnvelope]:
        """The first events of a source from one number to another, as many as a page has."""
        return await read_source_page(
            session, source_id, first, last, page_bytes=self.page_bytes, queries=self.queries
        )

    async def missing(
        self, session: Session, source_id: str, first: int, last: int, *, since: datetime = BEGINNING
    ) -> list[EventEnvelope]:
        """Events of a source that a gap leaves out, as far as they are visible and not older than ``since``."""
        found: list[EventEnvelope] = []
        # Backwards, so that a long history is not read where only its end is wanted.
        queries = self.queries
        async for envelope in read_source(
            session, source_id, first=first, last=last, backwards=True, queries=queries
        ):
            if envelope.db_timestamp < since:
                break
            found.append(envelope._replace(origin=Origin.GAP))
        return found[::-1]

    async def predecessors(
        self, session: Session, keys: Sequence[tuple[str, int]], since: datetime, until: datetime
    ) -> dict[tuple[str, int], datetime]:
        """
        When the event before each (source_id, seq_nr) was written, if that was between two times.

        Another system may stamp an event with the start of a transaction that began before the event before it was
        written: there the predecessor may be the later one, and any time is looked for.

        Args:
            session: A session on the database of the log.
            keys: The events.
            since: Nothing is said of what was written earlier, as of what was deleted.
            until: When the newest of the events was written.
        """
        if self.queries is not JOURNAL:
            until = END_OF_TIME
        source_ids, seq_nrs = [k[0] for k in keys], [k[1] for k in keys]
        rows = await session.fetch(self.queries.predecessors, source_ids, seq_nrs, since, until)
        return {(row["source_id"], row["seq_nr"]): row["db_timestamp"] for row in rows}


class HeadReader(SliceReader):
    """Reads pages without event ids, payloads, metadata and tags: for those who need few events whole."""

    async def events(self, session: Session, after: Position, until: datetime) -> Page[EventEnvelope]:
        """The next events, up to and including the time ``until``."""
        rows = await session.fetch(
            self.queries.heads, self.entity_types.sql, *self.slices, *after, until, self.page_size
        )
        query = Origin.QUERY
        heads = (
            EventEnvelope(
                source_id, seq_nr, at, slice_number, _NO_ID, entity_type, event_type, 0, "", None, None, query
            )
            for source_id, seq_nr, at, slice_number, event_type, entity_type, *_ in (
                row.values() for row in rows
            )
        )
        return Page.of(heads, more=self._more(rows))
