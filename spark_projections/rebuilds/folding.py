"""
One part of a batch projection: read a range of slices in the order of its sources, run the handlers, write alongside.

Invariant: the position of a part moves in the transaction of its effects, and whoever folds it holds its row locked. So
a task that is repeated goes on where the last one's commits end, and two that fold one part at once take turns: every
event has its effect once, however often tasks are killed, repeated or doubled.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from journal import (
    ConnectionSettings,
    DatabaseError,
    EventEnvelope,
    MissingPrivilege,
    OwnedSession,
    ProjectionsError,
    SliceRange,
    connect,
)
from journal.database import Fault, chain, fault_of, is_conflict, quote
from offsets import TransactionEnded
from projections.defining import Kind, projection_of
from projections.errors import HandlerFailed, describe, name_of, storable, text_of
from projections.failing import ALIKE, GiveUp, Streak
from projections.running import Dispatcher, LoopMonitor, call_hook
from spark_projections.errors import NotRebuildable, RebuildFailed
from spark_projections.reading.batches import Reading
from spark_projections.reading.logs import ReadLog
from spark_projections.rebuilds.bookkeeping import transaction
from spark_projections.rebuilds.definition import tables_of
from spark_projections.rebuilds.pickling import cloudpickle
from spark_projections.rebuilds.shadow import ShadowWriter, schema_of
from spark_projections.rebuilds.statements import ShadowReadModels, folds_as_a_whole

log = logging.getLogger("projections")

_LOCK = "SELECT source_id, seq_nr, done FROM projections._lock_rebuild_part_v1($1, $2, $3)"
_MOVE = """
UPDATE projections.rebuild_parts
SET source_id = $3, seq_nr = $4, events = events + $5, skipped = skipped + $6, done = $7
WHERE rebuild_id = $1 AND min_slice = $2
"""
_FAIL = "UPDATE projections.rebuild_parts SET error = $3 WHERE rebuild_id = $1 AND min_slice = $2"
_SEARCH_PATH = "SELECT set_config('search_path', $1 || ', ' || current_setting('search_path'), TRUE)"
# What this transaction has written outside of the rebuild; its own temporary tables are its own business.
_WRITTEN = """
SELECT schemaname, relname FROM pg_catalog.pg_stat_xact_user_tables
WHERE n_tup_ins + n_tup_upd + n_tup_del > 0 AND schemaname <> $1 AND schemaname NOT LIKE 'pg\\_temp\\_%'
AND (schemaname <> 'projections' OR relname NOT LIKE 'rebuild\\_%') LIMIT 1
"""
_OFFSETS = ("source_id", "slice", "seq_nr", "db_timestamp", "events", "newest")
_BATCH = 20_000
"""Events of a transaction of a table projection: the more of a source are together, the fewer rows are written."""
_CONFLICT_RETRIES = 10
_COLLECT_AFTER = 50_000
"""Objects that may be new before the garbage collector looks; 700 by default."""


@dataclass(frozen=True, slots=True)
class Job:
    """
    What every part of a rebuild needs to know. Picklable.

    Args:
        dsn: The database of the read models; not shown.
        definition: The projection, pickled by cloudpickle: its module must be importable where tasks run.
        path: Where modules are found besides the usual places.
        rebuild_id: The number of the rebuild.
        until: The fence.
        skip: Go on after events that the handlers cannot handle.
        from_first_kept: Sources may begin after 1, because their first events have been deleted; in a journal of
            another system, others may be, too.
        handler_timeout: How long a handler may take.
        started_at: When the rebuild began, which tells it from another with its number; None: whichever has it.
        journal: What is read, pickled by cloudpickle; None for the journal in the same database.
    """

    dsn: str = field(repr=False)
    definition: bytes = field(repr=False)
    path: tuple[str, ...]
    rebuild_id: int
    until: datetime
    skip: bool = False
    from_first_kept: bool = False
    handler_timeout: timedelta = timedelta(minutes=10)
    started_at: datetime | None = None
    journal: bytes | None = field(default=None, repr=False)

    def log(self) -> ReadLog:
        """The journal, in the process that reads it."""
        return ReadLog(self.dsn) if self.journal is None else cloudpickle().loads(self.journal)

    def load(self) -> Any:
        """The projection's class or object, in the process that runs it."""
        sys.path.extend(entry for entry in self.path if entry not in sys.path)
        return cloudpickle().loads(self.definition)


class _Place(NamedTuple):
    source_id: str
    seq_nr: int
    done: bool


class _Moved(Exception):
    """Another task has folded on, or the rebuild has ended."""


def fold_part(job: Job, slices: SliceRange) -> None:
    """
    Fold what is left of a part; does nothing where nothing is, or where the rebuild has ended or failed.

    journal.DatabaseError: another attempt may get through; what another does not fix is noted for whoever waits for
    the parts.
    """
    with _rarely_collecting():
        asyncio.run(_fold(job, slices))


@contextmanager
def _rarely_collecting() -> Iterator[None]:
    """
    Look for cycles less often: thousands of events live for a page, make none, and would be looked at again and again.

    A sixth of the time of a fold.
    """
    before = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def _fold(job: Job, slices: SliceRange) -> None:
    settings = ConnectionSettings(
        max_connections=1, application_name=f"slice-projections rebuild {job.rebuild_id}"
    )
    async with connect(job.dsn, settings) as database, database.session() as session:
        try:
            await _Part(job, slices, session).run()
        except Exception as error:
            if _may_pass(error):
                raise
            await session.rollback()
            text = "" if isinstance(error, ProjectionsError) else f"{name_of(error)}: "
            text = storable(text + text_of(error), 2000)
            await session.execute(_FAIL, job.rebuild_id, slices.min_slice, text)
            raise


def _may_pass(error: Exception) -> bool:
    """Whether another attempt may get through."""
    if any(isinstance(cause, MissingPrivilege | TransactionEnded) for cause in chain(error)):
        return True
    return fault_of(error) in {Fault.BATCH, Fault.DATABASE}


class _Part:
    def __init__(self, job: Job, slices: SliceRange, session: OwnedSession) -> None:
        definition = job.load()
        self._job, self._slices, self._session = job, slices, session
        self._projection, self._log = projection_of(definition), job.log()
        self._target = self._projection.make()
        written = tables_of(definition)
        self._in_place = job.journal is None
        self._read_models = ShadowReadModels(job.rebuild_id, written)
        self._dispatcher = Dispatcher(
            self._projection,
            self._target,
            ShadowWriter(job.rebuild_id, written),
            LoopMonitor(timedelta(seconds=1), job.handler_timeout),
            job.handler_timeout,
            read_models=self._read_models,
            in_place=self._in_place,
        )
        self._alike = Streak(ALIKE)
        self._by_itself = self._projection.kind not in {Kind.TABLE, Kind.STATEMENT}
        self._skip = job.skip or self._projection.recovery.give_up is GiveUp.SKIP
        self._size = self._projection.batch_size if self._by_itself else _BATCH

    async def run(self) -> None:
        await self._hook("start")
        try:
            while (place := await self._look()) is not None and not place.done:
                try:
                    await self._from(place)
                except _Moved:
                    continue  # from where it is now
        finally:
            await self._hook("stop")

    async def _hook(self, name: str) -> None:
        await call_hook(self._projection.name, self._target, name, self._job.handler_timeout)

    async def _look(self) -> _Place | None:
        async with transaction(self._session):
            return await self._lock()

    async def _lock(self) -> _Place | None:
        row = await self._session.fetchrow(
            _LOCK, self._job.rebuild_id, self._slices.min_slice, self._job.started_at
        )
        return None if row is None else _Place(*row.values())

    async def _from(self, place: _Place) -> None:
        as_a_whole = self._in_place and not place.source_id and folds_as_a_whole(self._projection)
        if not (as_a_whole and await self._fold_whole(place)):
            await self._fold_pages(place)

    async def _fold_whole(self, place: _Place) -> bool:
        """Fold the part by statements; not, where an event is at fault, which pages will find."""
        try:
            async with transaction(self._session, snapshot_after="SELECT 1"):
                if await self._lock() != place:
                    raise _Moved
                events = await self._read_models.fold(
                    self._session, self._projection, self._slices, self._job.until,
                    from_first_kept=self._job.from_first_kept,
                )  # fmt: skip
                await self._session.execute(
                    _MOVE, self._job.rebuild_id, self._slices.min_slice, "", 0, events, 0, True
                )
        except DatabaseError as error:
            if is_conflict(error):
                raise _Moved from error
            if fault_of(error) in {Fault.EVENT, Fault.PROJECTION}:
                return False
            raise
        return True

    async def _fold_pages(self, place: _Place) -> None:
        reading = Reading(
            self._projection.entity_types, self._slices, until=self._job.until, is_fence=True,
            order="source", after=place[:2] if place.source_id else None,
        )  # fmt: skip
        async with aclosing(_pages(self._log, reading, self._size)) as pages:
            async for page in pages:
                self._check_numbers(place, page)
                place = await self._commit(place, page)
        await self._transaction(place, [], done=True)

    def _check_numbers(self, place: _Place, page: Sequence[EventEnvelope]) -> None:
        source_id, seq_nr, _ = place
        for envelope in page:
            known = seq_nr if envelope.source_id == source_id else 0
            may_be_gone = known == 0 or self._log.has_gaps
            if envelope.seq_nr != known + 1 and not (may_be_gone and self._job.from_first_kept):
                raise RebuildFailed(
                    f"{describe(envelope)} follows seq_nr {known}: the events between are no longer in the journal; "
                    "restore them"
                    + (", or build from those that are left: --from-first-kept" if may_be_gone else "")
                )
            source_id, seq_nr = envelope.source_id, envelope.seq_nr

    async def _commit(self, place: _Place, page: Sequence[EventEnvelope]) -> _Place:
        """Handle a page, in one transaction; by halves where less may pass, or it is not clear which event fails."""
        try:
            return await self._transaction(place, page)
        except HandlerFailed as failure:
            says_which = failure.index is not None or len(page) == 1
            if says_which and not self._may_skip(failure, page):
                raise
            if len(page) == 1:
                log.warning(
                    "skipped %s", failure, extra={"action": "skipped", "projection": self._projection.name}
                )
                return await self._transaction(place, page, skipped=True)
        except Exception as error:
            if len(page) == 1 or fault_of(error) is not Fault.BATCH:
                raise
        middle = len(page) // 2
        return await self._commit(await self._commit(place, page[:middle]), page[middle:])

    def _may_skip(self, failure: HandlerFailed, page: Sequence[EventEnvelope]) -> bool:
        """Whether events may be left out that fail; not so many alike, where it may be the fault of all."""
        if not self._skip or failure.fault is Fault.EVENT or len(page) > 1:
            return self._skip
        if failure.fault is Fault.BATCH:  # the next attempt may pass
            return False
        kind = name_of(failure.__cause__ or failure)
        return not self._alike.failed(page[0].event_type, kind, page[0].source_id)

    async def _transaction(
        self, place: _Place, page: Sequence[EventEnvelope], *, skipped: bool = False, done: bool = False
    ) -> _Place:
        for attempt in range(1, _CONFLICT_RETRIES + 1):
            try:
                return await self._try(place, page, skipped=skipped, done=done)
            except DatabaseError as error:
                if attempt == _CONFLICT_RETRIES or not is_conflict(error):
                    raise
            await asyncio.sleep(0.01 * attempt)
        raise AssertionError("unreachable")  # pragma: no cover - the last attempt raises or returns

    async def _try(
        self, place: _Place, page: Sequence[EventEnvelope], *, skipped: bool, done: bool
    ) -> _Place:
        session, schema, last = self._session, schema_of(self._job.rebuild_id), page[-1] if page else place
        async with transaction(session):
            if await self._lock() != place:
                raise _Moved
            if page and not skipped:
                if self._by_itself:
                    await session.execute(_SEARCH_PATH, quote(schema))
                await self._dispatcher.handle(session, page)
                await self._check_written()
                self._alike.handled({envelope.event_type for envelope in page})
            await session.copy_rows((schema, "_offsets"), _OFFSETS, _last(page))
            await session.execute(
                _MOVE, self._job.rebuild_id, self._slices.min_slice, last.source_id, last.seq_nr, len(page),
                int(skipped), done,
            )  # fmt: skip
        return _Place(last.source_id, last.seq_nr, done)

    async def _check_written(self) -> None:
        """A handler that writes by itself must not write to what serves now."""
        if not self._by_itself:
            return
        row = await self._session.fetchrow(_WRITTEN, schema_of(self._job.rebuild_id))
        if row is None:
            return
        name = ".".join(row.values())
        if row["schemaname"] == "projections":
            raise NotRebuildable(
                f"a handler of projection {self._projection.name!r} appended events (it wrote to {name}), which a "
                "rebuild would append again: move that into a method marked with @reacts, which no rebuild calls"
            )
        raise NotRebuildable(
            f"a handler of projection {self._projection.name!r} wrote to {name}, which is not one of the "
            f"tables that are rebuilt: declare it, @projection(..., tables=({row['relname']!r}, ...)), and name it "
            "without its schema"
        )


def _last(page: Sequence[EventEnvelope]) -> list[tuple[Any, ...]]:
    """For each source the last event, how many there are, and the latest time of them."""
    found: dict[str, tuple[Any, ...]] = {}
    for e in page:
        count, newest = 1, e.db_timestamp
        if (before := found.get(e.source_id)) is not None:
            count, newest = before[4] + 1, max(before[5], newest)
        found[e.source_id] = (e.source_id, e.slice, e.seq_nr, e.db_timestamp, count, newest)
    return list(found.values())


async def _pages(log: ReadLog, reading: Reading, size: int) -> AsyncGenerator[list[EventEnvelope], None]:
    """Pages of events, the next read by a thread while one is handled."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as thread, closing(log.pages(reading, size)) as pages:
        coming = loop.run_in_executor(thread, next, pages, None)
        while (page := await coming) is not None:
            coming = loop.run_in_executor(thread, next, pages, None)
            try:
                yield page
            except GeneratorExit:
                await asyncio.wait([coming])  # the connection cannot be closed while it is read
                raise
