"""Live reading without a projection: events as they are committed, remembered in memory alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from journal import (
    ALL_SLICES,
    CLOCK_MARGIN,
    Backtracking,
    Database,
    EntityTypes,
    EventEnvelope,
    Key,
    Log,
    Poll,
    PollPacing,
    ReadEvents,
    ReadKeys,
    Session,
    SliceRange,
    SliceReader,
    WritersPoller,
    as_log,
    now_in,
    shared_poller,
)
from offsets.deduplication import BatchVerdicts, OffsetState, Verdict

_UNBOUNDED = 2**63
_REFRESH_SECONDS = 1.0
_REMEMBERED = timedelta(minutes=1)
"""How far behind the horizon sources are remembered; small against this, the clock may also step back."""


async def live_events(
    database: Database | Log,
    entity_type: str | Collection[str] | EntityTypes,
    slices: SliceRange = ALL_SLICES,
    *,
    start: datetime | None = None,
    backtracking: Callable[[datetime], Backtracking] | None = None,
) -> AsyncIterator[EventEnvelope]:
    """
    Events of a range of slices, without an end: those in the log since ``start``, then new ones as they commit.

    Every event comes once, and each source's in order without gaps, also when its transaction commits long
    after later ones were read. Nothing is stored: who must not miss events while being away needs a
    projection. History that is imported with times more than a minute behind what was settled is left out.
    Memory grows with the events of the last minute and the transactions in flight, not with the log.

    A database that goes back in time (a fail-over to a standby that had not everything, a restore) takes events back
    that have come; from then on those come that it holds and that have not come yet.

    Args:
        database: Where our journal is, or a log of another kind; the primary, for what the default backtracking relies
            on.
        entity_type: The kind of sources, several, or ``ALL_TYPES``.
        slices: Range of slices.
        start: Leave out events with a timestamp before this; by default the database's time when it begins.
        backtracking: Makes the state machine from ``start``, such as :class:`journal.IntervalBacktracking`; by default
            that of the log.
    """
    log = as_log(database)
    async with AsyncExitStack() as stack:
        poller = await stack.enter_async_context(shared_poller(log, PollPacing(), listen=True))
        await log.check(alone=True)
        begin = await now_in(log)
        since = begin.time if start is None else start
        bound = backtracking or partial(log.bound, margin=CLOCK_MARGIN, import_id=0)
        slice_reader = SliceReader(entity_type, slices, queries=log.queries)
        reader = _LiveReader(log, slice_reader, bound, poller, since)
        # What was imported up to now is found by reading from the start.
        reader.begin(since, since, begin.import_id)
        if not reader.needs_primary:
            log.check_interval()
        stack.callback(poller.forget, reader)
        while True:
            for envelope in await reader.step():
                yield envelope


class _WentBack(Exception):
    """The database went back in time; what it has stamped since is not older than ``to``."""

    def __init__(self, to: datetime) -> None:
        super().__init__(to)
        self.to = to


class _LiveReader:
    def __init__(
        self,
        log: Log,
        reader: SliceReader,
        backtracking: Callable[[datetime], Backtracking],
        poller: WritersPoller,
        since: datetime,
    ) -> None:
        self._log = log
        self._reader = reader
        self._backtracking = backtracking
        self._poller = poller
        self._since = since
        self._given: dict[UUID, datetime] = {}
        """What has come of what a window may reach: the one memory that outlives a database that goes back."""

    def begin(self, start: datetime, bound: datetime, import_id: int) -> None:
        """
        Begin to read, with nothing in memory of what the database holds.

        Args:
            start: The time up to which events are settled.
            bound: Leave out what is older.
            import_id: The last import that ``start`` accounts for.
        """
        self._machine = self._backtracking(start)
        self._machine.import_id = import_id
        self._state = OffsetState(_UNBOUNDED, bound)
        self._last: dict[str, datetime] = {}
        self._left: Sequence[Key] = ()
        """Late ones that a page had no room for: they come before anything else."""
        self._look, self._generation = self._poller.number, self._poller.generation
        self._used_poll_at = float("-inf")

    @property
    def needs_primary(self) -> bool:
        """Whether what it relies on, a standby does not show by itself."""
        return self._machine.needs_primary

    async def step(self) -> Sequence[EventEnvelope]:
        """Do what the state machine says next; returns what is new, in order."""
        try:
            new = [envelope for envelope in await self._step() if envelope.event_id not in self._given]
        except _WentBack as found:
            await self._begin_again(found.to)
            return ()
        self._given.update((envelope.event_id, envelope.db_timestamp) for envelope in new)
        self._forget_settled()
        return new

    async def _begin_again(self, to: datetime) -> None:
        start = min(self._machine.horizon, to)
        bound = start - CLOCK_MARGIN
        if (
            self._since <= to
        ):  # else the clock of now has not reached what was asked for, and nothing is too old
            bound = max(bound, self._since)
        begin = await now_in(self._log)
        self.begin(start, bound, min(self._machine.import_id, begin.import_id))

    async def _step(self) -> Sequence[EventEnvelope]:
        if self._left:
            async with self._log.lend() as session:
                return await self._load(session, self._left)
        match self._machine.next_step():
            case Poll():
                await self._poll()
                return ()
            case ReadKeys(after, until):
                async with self._log.lend() as session:
                    keys = await self._reader.keys(session, after, until)
                    new = await self._load(session, self._late(keys))
                last = keys[-1] if keys else None
                self._machine.keys_read(last.position if last else None, full=keys.more)
            case ReadEvents(after, until):
                async with self._log.lend() as session:
                    page = await self._reader.events(session, after, until)
                    new = await self._accept(session, page)
                self._machine.events_read(page[-1].position if page else None, full=page.more)
        return new

    async def _load(self, session: Session, keys: Sequence[Key]) -> list[EventEnvelope]:
        page, self._left = await self._reader.load(session, keys)
        return await self._accept(session, page)

    async def _poll(self) -> None:
        machine = self._machine
        look = await self._poller.look(
            self, self._reader.entity_types, machine.position.db_timestamp, self._look, machine.import_id,
            needs_primary=machine.needs_primary,
        )  # fmt: skip
        self._look = look.number
        if look.generation != self._generation:
            raise _WentBack(self._poller.back_to(self._generation) or look.poll.polled_at)
        now = asyncio.get_running_loop().time()
        fresh = now - self._used_poll_at < _REFRESH_SECONDS
        if not (fresh and look.says_nothing_to(self._machine)):
            self._used_poll_at = now
            self._machine.polled(look.poll)

    def _batch(self, source_ids: Iterable[str]) -> BatchVerdicts:
        source_ids = set(source_ids)
        self._state.loaded(self._state.unknown(source_ids), {})
        batch = self._state.batch(source_ids)
        self._state.forget(source_ids.difference(self._last))
        return batch

    def _late(self, keys: Sequence[Key]) -> list[Key]:
        batch = self._batch(key.source_id for key in keys)
        return [key for key in keys if self._validate(batch, key) is not Verdict.DUPLICATE]

    def _validate(self, batch: BatchVerdicts, event: Key | EventEnvelope) -> Verdict:
        """
        The verdict on an event by what is remembered.

        Raises:
            _WentBack: Its number was used before, for an older one: none that was taken of its source is as new. It is
                all that a dump shows that is restored in place.
        """
        verdict = batch.validate(event.source_id, event.seq_nr, event.db_timestamp)
        last = self._last.get(event.source_id) if verdict is Verdict.DUPLICATE else None
        if last is not None and event.db_timestamp > last:
            raise _WentBack(event.db_timestamp)
        return verdict

    async def _accept(self, session: Session, page: Sequence[EventEnvelope]) -> list[EventEnvelope]:
        batch = self._batch(envelope.source_id for envelope in page)
        accepted: list[EventEnvelope] = []
        for envelope in page:
            verdict = await self._verdict(session, batch, envelope)
            if verdict is Verdict.GAP:
                first, bound = batch.known(envelope.source_id) + 1, self._state.evicted_before
                last = envelope.seq_nr - 1
                for missing in await self._reader.missing(
                    session, envelope.source_id, first, last, since=bound
                ):
                    if await self._verdict(session, batch, missing) is Verdict.ACCEPTED:
                        self._take(batch, missing, accepted)
                verdict = await self._verdict(session, batch, envelope)
            if verdict is Verdict.ACCEPTED:
                self._take(batch, envelope, accepted)
        self._state.committed({e.source_id: e.seq_nr for e in accepted})
        return accepted

    def _take(self, batch: BatchVerdicts, envelope: EventEnvelope, accepted: list[EventEnvelope]) -> None:
        batch.accept(envelope.source_id, envelope.seq_nr)
        accepted.append(envelope)
        last = self._last.get(envelope.source_id, envelope.db_timestamp)
        self._last[envelope.source_id] = max(last, envelope.db_timestamp)

    async def _verdict(self, session: Session, batch: BatchVerdicts, envelope: EventEnvelope) -> Verdict:
        key = envelope.source_id, envelope.seq_nr
        verdict = self._validate(batch, envelope)
        if verdict is not Verdict.UNKNOWN_SOURCE:
            return verdict
        since, until = self._state.evicted_before, envelope.db_timestamp
        predecessors = await self._reader.predecessors(session, [key], since, until)
        return batch.validate_unknown(predecessors.get(key))

    def _forget_settled(self) -> None:
        """Drop sources that no window reaches any more, now and then: it looks at all of them."""
        bound = self._machine.horizon - _REMEMBERED
        if bound < self._state.evicted_before + _REMEMBERED / 4:
            return
        settled = [source_id for source_id, at in self._last.items() if at < bound]
        self._state.evicted_before = bound
        self._state.forget(settled)
        for source_id in settled:
            del self._last[source_id]
        self._given = {event_id: at for event_id, at in self._given.items() if at >= bound}
