"""
Rebuilding a read model: cut, fold alongside, verify, swap.

The tables that serve stay as they are, and live workers keep them fresh, until one transaction puts the new ones in
their place and makes the workers go on from the cut. Whatever ends the process before that leaves nothing that anybody
reads; run again, it goes on where the database says it was.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import offsets
from journal import (
    ALL_SLICES,
    ConnectionSettings,
    Database,
    DatabaseError,
    Log,
    OwnedSession,
    ProjectionsError,
    SchemaError,
    SliceRange,
    connect,
)
from journal.database import quote
from journal.schema import check_version
from journal.writers import Writer
from projections.defining import Projection
from spark_projections.engine.parallel import parallelism, spread
from spark_projections.errors import BEGIN_AGAIN, NotRebuildable, RebuildFailed
from spark_projections.reading.splits import balanced
from spark_projections.rebuilds import bookkeeping, verifying
from spark_projections.rebuilds.bookkeeping import Rebuild, Wanted
from spark_projections.rebuilds.combining import combine_parts
from spark_projections.rebuilds.definition import WrittenTable, rebuildable
from spark_projections.rebuilds.fence import take_fence
from spark_projections.rebuilds.fitting import refuse_not_copied, refuse_unfit
from spark_projections.rebuilds.folding import Job, fold_part
from spark_projections.rebuilds.interrupted import left_behind, mark_of, refuse_cancelled
from spark_projections.rebuilds.journal import JournalWentBack, RebuiltFrom
from spark_projections.rebuilds.options import RebuildOptions, RebuildProgress, RebuildResult
from spark_projections.rebuilds.pickling import cloudpickle
from spark_projections.rebuilds.shadow import schema_of
from spark_projections.rebuilds.statements import marks
from spark_projections.rebuilds.swapping import copy_foreign_keys, swap

log = logging.getLogger("projections")

T = TypeVar("T")

_VERSION = "SELECT version FROM projections.projections WHERE projection_id = $1"
_SPLITS_PER_CORE = 4
_ATTEMPTS = 4
"""How often tasks are begun again after the database or a process was lost; Spark repeats tasks by itself, too."""
_LOOK = 0.25  # seconds
_OFFSETS_GONE = "PJ041"
_WENT_BACK = "PJ013"


async def rebuild(
    database: Database,
    dsn: str,
    definition: Any,
    options: RebuildOptions | None = None,
    *,
    spark: Any = None,
    progress: RebuildProgress | None = None,
    journal: Database | Log | None = None,
) -> RebuildResult:
    """
    Build the read model of a projection again, and put it in the place of the one that serves.

    Args:
        database: That of the read model, the primary. The role must own the tables and may make schemas.
        dsn: The same database, as the tasks reach it.
        definition: A class decorated with :func:`projections.projection`; tasks must be able to import its module.
        options: The range of slices, the method and time limits; None: the defaults.
        spark: A ``SparkContext`` that tasks run on; None for processes of this machine.
        progress: Gets how far it is.
        journal: What the projection reads, where that is in another database, which is only read; of a standby, its
            primary.

    Raises:
        InvalidValue: The projection reads another journal.
        RebuildError: The projection cannot be run as a batch; another rebuild of it runs, or one of other slices is
            unfinished; the tables were changed meanwhile, stay in use, or the swap takes too long; an event could not
            be handled, or the result is not what the journal says: it stays as it is, to go on from when it is run
            again, and ``projections rebuilds cancel NAME`` drops it.
        TableError: A table does not fit its declaration.
        DatabaseError: The database refused, or was lost.
        asyncio.CancelledError: It was cancelled, and has removed what it had made.
    """
    return await _Run(
        database, dsn, definition, options or RebuildOptions(), spark, progress or RebuildProgress(),
        RebuiltFrom.named(database, journal),
    ).run()  # fmt: skip


@dataclass(slots=True)
class _Run:
    database: Database
    dsn: str
    definition: Any
    options: RebuildOptions
    spark: Any
    progress: RebuildProgress
    journal: RebuiltFrom
    seconds: dict[str, float] = field(default_factory=dict)
    resumed: bool = False
    counts: Mapping[int, int] | None = None
    beats: int = 0

    async def run(self) -> RebuildResult:
        projection, written = rebuildable(self.definition, self.options.slices)
        async with self.database.session() as session:
            await check_version(session)
            await offsets.refuse_several(session, projection.name, "a rebuild is of one")
            number = await offsets.register(
                session,
                projection.name,
                projection.entity_types,
                version=projection.version,
                journal=self.journal.name,
            )
            async with bookkeeping.only_one(session, number, projection.name):
                return await self._rebuild(session, projection, written, number)

    async def _rebuild(
        self, session: OwnedSession, projection: Projection, written: Sequence[WrittenTable], number: int
    ) -> RebuildResult:
        rebuild = await self._begin_or_resume(session, projection, written, number)
        self.beats = rebuild.beats
        try:
            if rebuild.state == "folding":
                await self._stage("fold", self._fold(session, rebuild, projection))
                await self._compared("combine", combine_parts(session, rebuild.rebuild_id, written))
            await self._beat(session, rebuild)
            sampled = await self._compared("verify", self._verify(session, rebuild, projection))
            await self._beat(session, rebuild)
            await self.journal.check(session, rebuild)
            return await self._swap_and_tell(session, rebuild, projection, sampled)
        except JournalWentBack:
            await bookkeeping.cancel(session, number)
            raise
        except asyncio.CancelledError:
            await session.rollback()
            await bookkeeping.cancel(session, number)
            raise
        except (DatabaseError, SchemaError):
            await refuse_cancelled(session, rebuild)
            raise

    async def _beat(self, session: OwnedSession, rebuild: Rebuild) -> None:
        """Make sure that the database is the one in which it began; else nothing that was folded is of use."""
        try:
            self.beats = await bookkeeping.beat(session, rebuild, self.beats)
        except DatabaseError as error:
            if error.sqlstate != _WENT_BACK:
                raise
            await bookkeeping.cancel(session, rebuild.projection_id)  # its tasks see it
            raise RebuildFailed(
                f"{error}; what was built is dropped, and what serves has not changed"
            ) from error

    async def _stage(self, name: str, work: Awaitable[T]) -> T:
        self.progress.stage(name)
        began_at = time.monotonic()
        try:
            return await work
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began_at

    async def _compared(self, name: str, work: Awaitable[T]) -> T:
        """A stage that compares: what was built wrong stays so."""
        try:
            return await self._stage(name, work)
        except RebuildFailed as error:
            raise RebuildFailed(f"{error}. {BEGIN_AGAIN}") from error

    async def _begin_or_resume(
        self, session: OwnedSession, projection: Projection, written: Sequence[WrittenTable], number: int
    ) -> Rebuild:
        found, outdated = await left_behind(
            session, number, self.definition, self.options, self.journal.elsewhere
        )
        if found is None:
            if outdated is not None:
                self.progress.waiting(f"{outdated} since the interrupted rebuild began: it begins again")
            await bookkeeping.cancel(session, number)
            return await self._stage("fence", self._begin(session, projection, written, number))
        self.resumed = True
        self.progress.resumed(found)
        return found

    async def _begin(
        self,
        session: OwnedSession,
        projection: Projection,
        written: Sequence[WrittenTable],
        number: int,
    ) -> Rebuild:
        if self.options.method == "rename":
            await refuse_unfit(session, projection, written)
        await self._check_version(session, projection, number)
        async with connect(self.dsn, ConnectionSettings(max_connections=1)):
            pass  # tasks get through
        async with self.journal.reading(session) as (reading, _):
            fence = await take_fence(
                reading, self.journal.log, until=self.options.until, waiting_for=self._waiting_for
            )
        # A statement reads the whole journal, where that is in its database.
        per_core = 1 if projection.read_models and self.journal.elsewhere is None else _SPLITS_PER_CORE
        splits = self.options.splits or per_core * parallelism(self.spark)
        parts = balanced(await self._slice_counts(session, projection), splits, self.options.slices)
        mark = mark_of(self.definition, self.options, self.journal.elsewhere)
        wanted = Wanted(
            self.options.slices, projection.version, projection.entity_types, fence, mark, self.options.method
        )
        try:
            async with bookkeeping.transaction(session):
                begun = await bookkeeping.begin(session, number, wanted, parts, written)
                if self.options.method == "rename":
                    await refuse_not_copied(session, projection, begun.rebuild_id)
                return begun
        except DatabaseError as error:
            if error.sqlstate != _OFFSETS_GONE:
                raise
            raise NotRebuildable(
                f"projection {projection.name!r} cannot be rebuilt as of {fence.time}: {error}; choose a later time"
            ) from error

    async def _check_version(self, session: OwnedSession, projection: Projection, number: int) -> None:
        running = await session.fetchval(_VERSION, number)
        if running == projection.version:
            return
        if self.options.slices != ALL_SLICES:
            raise NotRebuildable(
                f"projection {projection.name!r} runs version {running}, and this is version {projection.version}: a "
                "part of the slices cannot run another version than the rest; rebuild all"
            )
        self.progress.waiting(
            f"version {running} runs; from the swap on it is version {projection.version}, and workers of others wait"
        )

    def _waiting_for(self, writers: Sequence[Writer]) -> None:
        who = ", ".join(map(str, writers[:3]))
        self.progress.waiting(f"appends from before the fence are in flight: {who}")

    async def _slice_counts(self, session: OwnedSession, projection: Projection) -> Mapping[int, int]:
        if self.counts is None:
            found = await self.journal.counts(session, projection.entity_types)
            self.counts = {number: count.events for number, count in found.items()}
        return self.counts

    async def _fold(self, session: OwnedSession, rebuild: Rebuild, projection: Projection) -> None:
        counts = await self._slice_counts(session, projection)
        total = sum(n for slice_, n in counts.items() if slice_ in rebuild.slices)
        pickled: bytes = cloudpickle().dumps(self.definition)
        job = Job(
            self.dsn, pickled, tuple(sys.path), rebuild.rebuild_id, rebuild.fence.time,
            self.options.skip, self.options.from_first_kept, started_at=rebuild.started_at,
            journal=self.journal.of_tasks(),
        )  # fmt: skip
        for attempt in range(1, _ATTEMPTS + 1):
            parts = await bookkeeping.unfinished_parts(session, rebuild.rebuild_id)
            failure = await self._watch(session, rebuild, job, parts, total)
            state = await bookkeeping.folded(session, rebuild.rebuild_id)
            if state.error is not None:
                raise RebuildFailed(state.error)
            if failure is None and state.done == state.parts:
                return
            await refuse_cancelled(session, rebuild)
            if attempt == _ATTEMPTS:
                raise RebuildFailed(
                    f"{state.parts - state.done} of {state.parts} parts are not done: {failure}"
                )
            log.warning("begins tasks again: %s", failure, extra={"action": "fold_again", "attempt": attempt})

    async def _watch(
        self, session: OwnedSession, rebuild: Rebuild, job: Job, parts: Sequence[SliceRange], total: int
    ) -> Exception | None:
        """Have the parts folded, and tell how far they are; what ended it early, if something did."""
        work = asyncio.create_task(asyncio.to_thread(self._spread, job, parts))
        try:
            while not work.done():
                await asyncio.wait([work], timeout=_LOOK)
                await self._beat(session, rebuild)
                self.progress.folded(await bookkeeping.folded(session, rebuild.rebuild_id), total)
        except asyncio.CancelledError:
            await self._end_tasks(rebuild, work)
            raise
        except ProjectionsError:
            await asyncio.wait([work])  # the tasks have lost the same database
            raise
        return work.result()

    async def _end_tasks(self, rebuild: Rebuild, work: asyncio.Task[Exception | None]) -> None:
        """Cancel the rebuild, which each task sees before its next batch."""
        if self.spark is not None:
            self.spark.cancelJobGroup(_group(rebuild.rebuild_id))
        async with (
            connect(self.dsn, ConnectionSettings(max_connections=1)) as other,
            other.session() as session,
        ):
            await bookkeeping.cancel(session, rebuild.projection_id)
        await asyncio.wait([work])

    def _spread(self, job: Job, parts: Sequence[SliceRange]) -> Exception | None:
        try:
            if self.spark is not None:
                self.spark.setJobGroup(_group(job.rebuild_id), "fold slices", interruptOnCancel=True)
            for _ in spread(partial(fold_part, job), parts, spark=self.spark):
                pass
        except Exception as error:  # noqa: BLE001 - what a task cannot go on with, it has noted in the database
            return error
        return None

    async def _verify(self, session: OwnedSession, rebuild: Rebuild, projection: Projection) -> int:
        schema = quote(schema_of(rebuild.rebuild_id))
        tables = await bookkeeping.rebuilt_tables(session, rebuild.rebuild_id)
        if rebuild.method == "rename":  # in place, the table's own keys check the rows that come
            await copy_foreign_keys(session, tables, schema_of(rebuild.rebuild_id), self.progress.waiting)
        async with bookkeeping.transaction(session):
            types = await self.journal.entity_types(session, projection.entity_types)
            await verifying.compare_counts(session, rebuild, self.journal, types)
            if not self.journal.log.has_tokens:
                await verifying.look_for_doubled_events(
                    session, rebuild, from_first_kept=self.options.from_first_kept
                )
            if not self.options.from_first_kept:
                await verifying.look_for_lost_sources(session, rebuild, self.journal, types)
            sampled = await verifying.compare_sample(session, rebuild, self.journal, self.definition)
            for table in tables:
                await session.execute(f"ANALYZE {schema}.{quote(table.name)}")
            await session.execute(
                "UPDATE projections.rebuilds SET state = 'verified' WHERE rebuild_id = $1", rebuild.rebuild_id
            )
        return sampled

    async def _swap_and_tell(
        self, session: OwnedSession, rebuild: Rebuild, projection: Projection, sampled: int
    ) -> RebuildResult:
        tables = await bookkeeping.rebuilt_tables(session, rebuild.rebuild_id)
        schema, old = schema_of(rebuild.rebuild_id), f"projections_old_{rebuild.rebuild_id}"
        rows = {table.name: await _count(session, schema, table.name) for table in tables}
        sources = await _count(session, schema, "_last")
        state = await bookkeeping.folded(session, rebuild.rebuild_id)
        swap_seconds = await self._stage(
            "swap",
            swap(
                session,
                rebuild._replace(beats=self.beats),
                tables,
                self.progress.waiting,
                within=self.options.swap_within,
                limit=self.options.swap_timeout,
                reacts=bool(projection.reactions),
                marks=marks(projection),
            ),
        )
        rows_before: dict[str, int] = {}
        with suppress(ProjectionsError):  # it is done, whatever becomes of the numbers
            rows_before = {table.name: await _count(session, old, table.name) for table in tables}
        return RebuildResult(
            projection=projection.name,
            rebuild_id=rebuild.rebuild_id,
            slices=rebuild.slices,
            fence=rebuild.fence.time,
            events=state.events,
            skipped=state.skipped,
            sources=sources,
            rows=rows,
            rows_before=rows_before,
            sampled=sampled,
            seconds={name: round(seconds, 3) for name, seconds in self.seconds.items()},
            swap_seconds=round(swap_seconds, 3),
            resumed=self.resumed,
            old_schema=old,
        )


def _group(rebuild_id: int) -> str:
    return f"slice-projections rebuild {rebuild_id}"


async def _count(session: OwnedSession, schema: str, table: str) -> int:
    async with bookkeeping.transaction(session):
        return int(await session.fetchval(f"SELECT count(*) FROM {quote(schema, table)}"))
