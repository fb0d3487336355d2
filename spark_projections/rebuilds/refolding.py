"""Handling events of sources again, up to where workers have handled them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import count
from typing import Any, NamedTuple

import offsets
from journal import DatabaseError, EntityTypes, EventEnvelope, OwnedSession, Session, read_source
from journal.database import Fault, fault_of, is_conflict
from projections.defining import Kind, Projection, Table
from projections.errors import HandlerFailed, describe, name_of
from projections.failing import ALIKE, Streak
from projections.running import BatchWriter, Dispatcher, LoopMonitor, ReadModelWriter, call_hook
from spark_projections.errors import NotRebuildable, RebuildFailed
from spark_projections.rebuilds.definition import rebuildable
from spark_projections.rebuilds.journal import JournalSession, RebuiltFrom
from spark_projections.rebuilds.sources import Source

LISTED = 100
"""What is listed of rows that differ, and of events that are left out."""

_HANDLED = """
SELECT s.source_id, p.evicted_before, coalesce(
    (SELECT o.seq_nr FROM projections.source_offsets AS o WHERE o.projection_id = $1 AND o.source_id = s.source_id),
    (SELECT k.seq_nr - 1 FROM projections.parked_sources AS k WHERE k.projection_id = $1 AND k.source_id = s.source_id),
    -- As the workers decide: what is older than the offsets that are kept has been handled.
    CASE WHEN s.db_timestamp < p.evicted_before THEN s.seq_nr END
) AS seq_nr
FROM unnest($2::text[], $3::bigint[], $4::timestamptz[]) AS s (source_id, seq_nr, db_timestamp)
INNER JOIN projections.projections AS p ON p.projection_id = $1
"""
_PARKED = """
SELECT count(*) OVER () AS total, k.source_id, k.seq_nr FROM projections.parked_sources AS k
WHERE k.projection_id = $1 AND ($2::text[] IS NULL OR k.source_id = ANY ($2)) ORDER BY k.source_id LIMIT $3
"""
_CODE = "SELECT version, entity_types FROM projections.projections WHERE projection_id = $1"
_READ_MODELS = 10
"""Of a projection, so many may need models to read events of one batch."""
_BATCH = 5_000
_TIMEOUT = timedelta(minutes=10)  # of a handler


class EventOf(NamedTuple):
    """An event of a source."""

    source_id: str
    seq_nr: int


class Handled(NamedTuple):
    """How far workers have handled a source."""

    source_id: str
    evicted_before: datetime
    """Up to this time, where there is no number."""
    seq_nr: int | None


async def comparable(
    session: Session, definition: Any, journal: RebuiltFrom, *, shared: bool
) -> tuple[Projection, list[Table], int]:
    """
    What a projection declares, the tables that it writes, and its number in the database.

    With ``shared``, rows that several sources share can be compared, too. Raises NotFound where no worker
    has run it on this database yet, WrongJournal where it reads another journal, and NotRebuildable where its rows
    cannot be made again here, or another version of its code runs, or one that reads other entity types.
    """
    projection, written = rebuildable(definition)
    name, tables = projection.name, [one.table for one in written if one.table is not None]
    if projection.kind not in {Kind.TABLE, Kind.STATEMENT} or len(tables) < len(written):
        raise NotRebuildable(
            f"the handlers of projection {name!r} write by themselves, so which rows are a source's is not known: "
            f"to build the whole read model again, run `projections rebuild {name} --app MODULE`"
        )
    if not shared and (sharing := [str(table) for table in tables if not table.per_source]):
        raise NotRebuildable(
            f"the rows of table {', '.join(sharing)} are made of the events of several sources, so those of one source "
            f"cannot be told apart. To compare all rows, add --all to `projections verify {name}`; to build the whole "
            f"read model again, run `projections rebuild {name}`"
        )
    await offsets.refuse_several(session, name, "this is of one")
    found = await offsets.status(session, name)
    _check_journal(found, journal)
    await _check_code(session, projection, found.projection_id)
    return projection, tables, found.projection_id


def _check_journal(found: offsets.ProjectionStatus, journal: RebuiltFrom) -> None:
    if found.journal == journal.name:
        return
    reads = "the journal here" if found.journal is None else f"journal {found.journal!r} of another database"
    named = "none was named" if journal.name is None else f"{journal.name!r} was named"
    raise offsets.WrongJournal(
        f"projection {found.name!r} reads {reads}, and {named}: name the one that it reads"
    )


async def _check_code(session: Session, projection: Projection, number: int) -> None:
    name = projection.name
    (row,) = await session.fetch(_CODE, number)
    if row["version"] != projection.version:
        raise NotRebuildable(
            f"projection {name!r} runs version {row['version']}, and this is the code of version {projection.version}: "
            "use the code that the workers run, or rebuild the whole read model to change the version"
        )
    if (stored := EntityTypes.stored(row["entity_types"])) != projection.entity_types:
        raise NotRebuildable(
            f"{name}: {projection.reads_others(stored)}: use the code that the workers run, or raise its version and "
            "rebuild the whole read model"
        )


async def handled_until(session: Session, number: int, sources: Sequence[Source]) -> list[Handled]:
    """How far the workers of a projection have handled sources, as the transaction sees it."""
    columns = [[source[place] for source in sources] for place in range(len(Source._fields))]
    return [Handled(*row.values()) for row in await session.fetch(_HANDLED, number, *columns)]


async def parked_at(
    session: Session, number: int, source_ids: Sequence[str] | None
) -> tuple[int, list[EventOf]]:
    """How many of some sources, or of all, are parked, and the events at which the first of them are."""
    ids = None if source_ids is None else list(source_ids)
    rows = await session.fetch(_PARKED, number, ids, LISTED)
    return rows[0]["total"] if rows else 0, [EventOf(row["source_id"], row["seq_nr"]) for row in rows]


class Refolding:
    """
    Handles events of sources again, as workers have; what they write goes to temporary tables of the transaction.

    With ``skip`` it goes on after events that the handlers cannot handle, which are counted; with ``from_first_kept``
    sources may begin after 1, because their first events have been deleted; in a journal of another system, others may
    be, too.
    """

    def __init__(
        self,
        session: OwnedSession,
        reading: JournalSession,
        dispatcher: Dispatcher,
        *,
        skip: bool,
        from_first_kept: bool,
    ) -> None:
        self._session = session
        self._reading = reading
        self._dispatcher = dispatcher
        self._skip = skip
        self._from_first_kept = from_first_kept
        self._alike = Streak(ALIKE)
        self._waiting: list[EventEnvelope] = []
        self._folded: dict[str, int] = {}
        self.events = 0
        self.skipped = 0
        self.skipped_events: list[EventOf] = []

    async def fold(self, handled: Sequence[Handled]) -> None:
        """
        Fold what workers have handled of sources, and what was not folded before; HandlerFailed: an event fails.

        RebuildFailed: the journal does not have all of it any more, or an offset was set back since the last call.
        """
        for source in handled:
            await self._fold_source(source)
        await self._handle_all()

    def forget(self) -> None:
        """Forget what was folded, where it is not to be gone on from: memory is that of a page of sources."""
        self._folded.clear()

    async def _fold_source(self, source: Handled) -> None:
        known = self._folded.get(source.source_id, 0)
        if source.seq_nr is not None and source.seq_nr < known:
            raise RebuildFailed(
                f"the offset of source {source.source_id!r} was set back meanwhile: run it again"
            )
        async for envelope in read_source(
            self._reading.session, source.source_id, first=known + 1, last=source.seq_nr,
            queries=self._reading.queries,
        ):  # fmt: skip
            if source.seq_nr is None and envelope.db_timestamp >= source.evicted_before:
                break
            if envelope.seq_nr != known + 1 and not (self._may_be_gone(known) and self._from_first_kept):
                raise self._gone(
                    describe(envelope) + f" follows seq_nr {known}", kept=self._may_be_gone(known)
                )
            known = envelope.seq_nr
            self._waiting.append(envelope)
            if len(self._waiting) >= _BATCH:
                await self._handle_all()
        if source.seq_nr is not None and known < source.seq_nr:
            kept = self._reading.has_gaps
            if not (kept and self._from_first_kept):
                raise self._gone(
                    f"source {source.source_id!r} ends at seq_nr {known}, and {source.seq_nr} are handled",
                    kept=kept,
                )
        self._folded[source.source_id] = known

    def _may_be_gone(self, known: int) -> bool:
        """Whether the events after a number may have been deleted."""
        return known == 0 or self._reading.has_gaps

    @staticmethod
    def _gone(what: str, *, kept: bool = False) -> RebuildFailed:
        hint = ", or go by those that are left: --from-first-kept" if kept else ""
        return RebuildFailed(f"{what}: events are no longer in the journal; restore them{hint}")

    async def _handle_all(self) -> None:
        page, self._waiting = self._waiting, []
        self.events += len(page)
        if page:
            await self._handle(page)

    async def _handle(self, page: Sequence[EventEnvelope]) -> None:
        """Handle events, by halves where one fails that may be skipped."""
        try:
            await self._try(page)
        except Exception as error:
            doubtful = isinstance(error, HandlerFailed) and error.fault is Fault.PROJECTION
            if not self._skip or not (isinstance(error, HandlerFailed) or fault_of(error) is Fault.EVENT):
                raise
            if doubtful and len(page) == 1 and self._fail_alike(error, page[0]):
                raise
            if isinstance(error, HandlerFailed) and error.fault is Fault.BATCH and len(page) == 1:
                raise
            if len(page) == 1:
                self.skipped += 1
                if len(self.skipped_events) < LISTED:
                    self.skipped_events.append(EventOf(page[0].source_id, page[0].seq_nr))
                return
            middle = len(page) // 2
            await self._handle(page[:middle])
            await self._handle(page[middle:])
        else:
            self._alike.handled({envelope.event_type for envelope in page})

    async def _try(self, page: Sequence[EventEnvelope]) -> None:
        """Handle events; after a conflict again: each has one more read model whose events models are to read."""
        for attempt in count():
            try:
                async with self._session.savepoint():
                    await self._dispatcher.handle(self._session, page)
            except DatabaseError as error:
                if attempt == _READ_MODELS or not is_conflict(error):
                    raise
            else:
                return

    def _fail_alike(self, error: Exception, envelope: EventEnvelope) -> bool:
        kind = name_of(error.__cause__ or error)
        return self._alike.failed(envelope.event_type, kind, envelope.source_id)


@asynccontextmanager
async def refolding(
    session: OwnedSession,
    reading: JournalSession,
    projection: Projection,
    rows: BatchWriter,
    *,
    skip: bool,
    from_first_kept: bool,
) -> AsyncIterator[Refolding]:
    """Handle events again, with an object of the projection that is started and stopped as a range does it."""
    target = projection.make()
    monitor = LoopMonitor(timedelta(seconds=1), _TIMEOUT)
    dispatcher = Dispatcher(
        projection, target, rows, monitor, _TIMEOUT, read_models=ReadModelWriter("pg_temp"),
        in_place=reading.session is session,
    )  # fmt: skip
    await call_hook(projection.name, target, "start", _TIMEOUT)
    try:
        yield Refolding(session, reading, dispatcher, skip=skip, from_first_kept=from_first_kept)
    finally:
        await call_hook(projection.name, target, "stop", _TIMEOUT)
