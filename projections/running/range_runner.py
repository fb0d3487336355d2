"""
One range of slices of one projection: reads what is due, and hands it to the pipeline.

The loop is thin: what to read next is decided by the backtracking's state machine, what happens to an event by the
offsets' verdict, and what happens to it by the pipeline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from journal import (
    ALL_SLICES,
    JOURNAL,
    DatabaseWentBack,
    EventEnvelope,
    HeadReader,
    KeptSession,
    Key,
    Look,
    OwnedSession,
    Page,
    Poll,
    Position,
    ProjectionsError,
    ReadEvents,
    ReadKeys,
    SliceReader,
    generation,
)
from journal.tasks import happens
from offsets import Claim, OffsetState, OffsetStore, Progress, fit_journal
from projections.defining import AtLeastOnce, Kind, Projection
from projections.failing import Streak
from projections.running.acceptance import Acceptance
from projections.running.at_least_once import AtLeastOncePipeline
from projections.running.dispatch import Dispatcher
from projections.running.hooks import call_hook
from projections.running.journal_place import check_place, tell_ahead
from projections.running.parking import Parking
from projections.running.pipeline import Parts, Pipeline
from projections.running.process import Process
from projections.running.read_ahead import ReadAhead
from projections.running.read_journal import ReadJournal
from projections.running.reporting import Reporting
from projections.running.retrying import Retrying
from projections.running.transactions import Stopping, Transactions
from projections.running.whole_pages import WholePages

log = logging.getLogger("projections")

_LATER = timedelta(seconds=5)
"""After a handler that hangs should have been cancelled: then the database takes its process for frozen or cut off."""
_OFTEN = 32
"""With more ranges in a process, each moves its horizon less often, so that an idle process asks no more for it."""


class RangeRunner:
    """
    Runs a projection on a claimed range until it is stopped.

    Args:
        projection: The projection whose handlers are called.
        claim: The range.
        process: What all ranges of the process share.
        cache_size: How many sources' offsets to keep in memory.
        streak: Notices that sources fail alike; it outlives the range's restarts.
        read: The journal that it reads.
    """

    def __init__(
        self,
        projection: Projection,
        claim: Claim,
        process: Process,
        cache_size: int,
        streak: Streak,
        *,
        read: ReadJournal,
    ) -> None:
        self.projection = projection
        self.claim = claim
        self._process = process
        self._log = read
        self._settings = process.settings
        heads = {Kind.HEADS, Kind.STATEMENT} if read.is_here else {Kind.HEADS}
        reader = HeadReader if projection.kind in heads else SliceReader
        size, page_bytes = projection.batch_size, process.pages.bytes
        self._reader = reader(projection.entity_types, claim.slices, size, page_bytes, read.log.queries)
        self._store = OffsetStore(claim, process.beats)
        self._ahead = ReadAhead(self._reader, read)
        self._whole: WholePages | None = None
        self._session = KeptSession(process.connections.lend)
        self._reading = read.reading
        # A page's sources must fit, or a verdict would miss one that was just looked up.
        self._cache_size = max(cache_size, projection.batch_size)
        self._backtracking = read.backtracking(claim, process.settings)
        self._look = read.poller.number
        self._generation = read.poller.generation
        self._used_poll_at = claim.horizon
        self._reborn = False
        self._stopping = asyncio.Event()
        self._running = asyncio.Event()
        self._running.set()
        self._decisions = False
        self._streak = streak

    @property
    def progress(self) -> Progress:
        """How far the range is: what to store when nothing else stores it."""
        return Progress(self._store, self._backtracking.horizon, self._backtracking.import_id)

    def stop(self) -> None:
        """Stop after the current batch."""
        self._stopping.set()
        self._running.set()
        self._log.poller.wake()

    def pause(self, *, paused: bool) -> None:
        """Pause after the current batch, or go on."""
        if paused:
            self._running.clear()
        else:
            self._running.set()

    def start_again(self, error: ProjectionsError, store: OffsetStore | None = None) -> None:
        """
        End with an error before anything else is decided: what is remembered is worth nothing.

        Args:
            error: What the range failed with.
            store: Only where these are its offsets still.
        """
        if store is None or store is self._store:
            self._store.outdated = error
            self._log.poller.wake()

    def decided(self) -> None:
        """Somebody has decided about a parked source of this projection."""
        self._decisions = True

    async def run(self) -> None:
        """
        Run until :meth:`stop`.

        Raises:
            RangeLost: Another worker has claimed the range.
            ProjectionFailed: An event cannot be handled and its recovery says to stop.
            DatabaseUnavailable: The database is gone.
            DatabaseWentBack: What is remembered is worth nothing: a new one is to begin.
        """
        target = self.projection.make()
        self._process.connections.ranges += 1
        try:
            await self._hook(target, "start")
            try:
                await self._begin(target)
                await self._run()
            finally:
                await self._hook(target, "stop")
        finally:
            self._process.connections.ranges -= 1
            self._log.poller.forget(self)
            try:
                await self._ahead.drop()
            finally:  # also when the range is dropped just here: the connection must go back
                await self._session.close()

    async def _hook(self, target: object, name: str) -> None:
        await call_hook(self.projection.name, target, name, self._settings.handler_timeout)

    async def _begin(self, target: object) -> None:
        if self._log.apart:
            await self._fit_journal()
        session = await self._session.get()
        await self._process.read_models.begin(session, self.projection)
        sources = await self._store.parked(session)
        parked = {source.source_id: source.seq_nr for source in sources}
        state = OffsetState(self._cache_size, await self._store.evicted_before(session), parked)
        if self._reborn and self._log.log.is_by_number:
            self._backtracking.read_again(state.evicted_before)
        transactions = Transactions(
            self.projection.name, self._store, state, self._stored_progress, self._pause_for,
            self._settings.handler_timeout + _LATER, self._settings.retention,
        )  # fmt: skip
        journal, exact = self._log.log, self._settings.backtracking == "writer-lock"
        alone = journal.queries is JOURNAL and journal.primary is None and not self._log.apart
        inline = await self._store.is_inline(session, self._log.stored_name)
        reporting = Reporting(self.projection.name, self.claim.slices, self._process.observer)
        self._acceptance = Acceptance(
            self.projection.name, self._reader, self._reading, transactions, exact=exact, inline=inline,
            evicts=alone and self.claim.slices == ALL_SLICES, passed_over=reporting.passed_over,
        )  # fmt: skip
        self._transactions = transactions
        self._make_pipeline(target, transactions, reporting)
        self._decisions |= self._parking.follow(sources)

    async def _fit_journal(self) -> None:
        """Make sure that the journal has what is handled: it may have gone back in time alone."""
        look = await self._next_look()
        seen, session = self._log.poller.seen, await self._session.get()
        assert seen is not None  # noqa: S101 - a poll has shown one
        self._store.generation = await generation(session)
        reborn, ahead = await fit_journal(
            session, self.claim, seen, self._reader, self._log.comparing, by_number=self._log.log.is_by_number,
            may_be_behind=look.poll.replayed_until is not None,
        )  # fmt: skip
        if reborn:
            self._backtracking.import_id, self._reborn = 0, True
        if ahead:
            error = tell_ahead(self.projection.name, self.claim.slices, ahead)
            self._process.observer.went_back(self.projection.name, self.claim.slices, error)

    async def _run(self) -> None:
        with suppress(Stopping):
            while await self._may_run():
                step = self._backtracking.next_step()
                if self._decisions or self._parking.is_due:
                    self._decisions = False
                    await self._parking.follow_decisions(await self._session.get())
                if self._process.connections.scarce:  # others wait for a turn, and a poll may come late
                    await self._session.close()
                if isinstance(step, Poll):
                    await self._poll()
                else:
                    await self._step(await self._session.get(), step)

    async def _may_run(self) -> bool:
        """Wait while paused; false when the range is to stop."""
        if not self._running.is_set():
            await self._session.close()
            await self._running.wait()
            if not self._stopping.is_set():  # much may have happened to the database meanwhile
                await self._next_look()
        if self._store.outdated is not None:
            raise self._store.outdated
        return not self._stopping.is_set()

    def _make_pipeline(self, target: object, transactions: Transactions, reporting: Reporting) -> None:
        projection, process = self.projection, self._process
        dispatcher = Dispatcher(
            projection, target, process.tables, process.monitor, self._settings.handler_timeout,
            read_models=process.read_models, reacts=self.claim.projection_id, in_place=self._log.is_here,
        )  # fmt: skip
        self._parking = Parking(
            dispatcher, transactions, reporting, projection.batch_size, self._reader, reading=self._reading,
            lease=self._settings.lease,
        )  # fmt: skip
        retrying = Retrying(projection, self._streak, self._parking, reporting, transactions.wait)
        parts = Parts(
            projection=projection, dispatcher=dispatcher, transactions=transactions, parking=self._parking,
            retrying=retrying, reporting=reporting, pages=process.pages,
        )  # fmt: skip
        if projection.kind is Kind.STATEMENT and self._log.is_here:
            self._whole = WholePages(parts, process.read_models, self._reader)
        self._pipeline = (
            AtLeastOncePipeline(parts, process.database, projection.delivery)
            if isinstance(projection.delivery, AtLeastOnce)
            else Pipeline(parts)
        )

    def _stored_progress(self) -> tuple[datetime, int]:
        return self._backtracking.horizon, self._backtracking.import_id

    async def _step(self, session: OwnedSession, step: ReadKeys | ReadEvents) -> None:
        match step:
            case ReadKeys(after, until):
                async with self._reading(session) as journal:
                    keys = await self._reader.keys(journal, after, until)
                await self._handle_late(session, keys)
                self._backtracking.keys_read(max((k.position for k in keys), default=None), full=keys.more)
            case ReadEvents(after, until):
                last, more = await self._handle_page(session, after, until)
                # Only after the commit: until then the stored horizon must not pass these events.
                self._backtracking.events_read(last, full=more)
                if more:
                    self._log.poller.wake()  # there is more: whoever polls next need not wait

    async def _handle_page(
        self, session: OwnedSession, after: Position, until: datetime
    ) -> tuple[Position | None, bool]:
        old = self._acceptance.old(self._backtracking.settled, self._used_poll_at)
        if self._whole is not None and (handled := await self._whole.handle(session, after, until, old)):
            return handled
        if (page := await self._ahead.take(after)) is None:
            page = await self._read(session, after, until)
        last = page[-1].position if page else None
        if self._whole is not None:
            self._whole.was_read(more=page.more)
        elif page.more and last is not None and self._backtracking.goes_on(last):
            self._ahead.start(last, until)
        settled = await self._acceptance.is_settled(session, page, old)
        await self._handle(session, page, more=page.more, settled=settled)
        if not page.more:
            self._acceptance.caught_up()
        return last, page.more

    async def _read(self, session: OwnedSession, after: Position, until: datetime) -> Page[EventEnvelope]:
        async with self._reading(session) as journal:
            page = await self._reader.events(journal, after, until)
        if page and not page.more and self.projection.kind is Kind.GROUP:
            await self._pause_for(self.projection.group.within.total_seconds())
            async with self._reading(session) as journal:
                page = await self._reader.events(journal, after, until)
        return page

    async def _next_look(self) -> Look:
        machine = self._backtracking
        with self._log.named():
            look = await self._log.poller.look(
                self, self.projection.entity_types, machine.position.db_timestamp, self._look, machine.import_id,
                needs_primary=machine.needs_primary,
            )  # fmt: skip
        self._look = look.number
        if look.generation != self._generation:
            raise DatabaseWentBack("another database answers, or it went back in time")
        if not self._log.apart:
            self._store.generation = self._log.poller.seen
        return look

    def _check_place(self, look: Look) -> None:
        journal, bound = self._log.log, self._transactions.state.evicted_before
        # In one life a sequence never goes back by itself. A standby may be read with a poll of before.
        if journal.is_by_number and journal.primary is None and not self._reborn:
            bound = max(bound, self._backtracking.horizon)
        self._reborn = False
        check_place(journal, look, bound)

    async def _poll(self) -> None:
        look = await self._next_look()
        self._check_place(look)
        # Now and then also a look that says nothing: the horizon moves on with it.
        every = self._settings.save_horizon_every * max(1, self._process.connections.ranges / _OFTEN)
        fresh = look.poll.polled_at - self._used_poll_at < every
        if not (fresh and look.says_nothing_to(self._backtracking)):
            poll = look.poll
            if self._used_poll_at is self.claim.horizon:  # the first one
                self._log.tell_of_a_clock_that_went_back(
                    self.projection.name, self.claim, poll.polled_at, self._settings
                )
            self._used_poll_at = poll.polled_at
            if poll.imports and self._log.apart:
                poll = replace(poll, imports=await self._readable(poll.imports))
            self._backtracking.polled(poll)

    async def _readable(self, imports: Mapping[int, datetime]) -> Mapping[int, datetime]:
        """
        From when on imports into a journal elsewhere can be read: it does not know what is evicted here.

        What is older counts as handled, and is said to be left out where it is not known to have been.
        """
        bound = await self._store.evicted_before(await self._session.get())
        self._transactions.state.evicted_before = bound
        oldest = max(bound, self._backtracking.horizon - self._settings.retention)
        late = [at for number, at in imports.items() if number > self.claim.import_id and at < oldest]
        if late:
            name = self.projection.name
            log.error(
                "%s: slices %s: an import has added events from %s on to the journal; what is older than %s cannot be "
                "told from what is handled, and is left out: build the read model again if it needs them",
                name, self.claim.slices, min(late), oldest,
                extra={"action": "import_too_old", "projection": name, "slices": str(self.claim.slices)},
            )  # fmt: skip
        return {number: max(at, oldest) for number, at in imports.items()}

    async def _handle_late(self, session: OwnedSession, keys: Sequence[Key]) -> None:
        """Of keys that were read again, load and handle the events that have not been handled."""
        late: Sequence[Key] = await self._acceptance.unhandled(session, keys)
        while late:
            async with self._reading(session) as journal:
                page, late = await self._reader.load(journal, late)
            await self._handle(session, page, more=bool(late))

    async def _handle(
        self, session: OwnedSession, page: Sequence[EventEnvelope], *, more: bool, settled: bool = False
    ) -> None:
        if page and (accepted := await self._acceptance.accept(session, page, settled=settled)):
            await self._pipeline.handle(session, accepted, more=more, settled=settled)

    async def _pause_for(self, seconds: float) -> bool:
        """Wait, but no longer than until the range is to stop; whether it is."""
        return await happens(self._stopping, seconds) if seconds > 0 else self._stopping.is_set()
