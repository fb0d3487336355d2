"""
The transactions of a range: effects, offsets and the check of its fence commit together, or not at all.

Invariant: what a range remembers of its sources moves only here, and only after COMMIT.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from journal import DatabaseError, EventEnvelope, OwnedSession, ProjectionsError, Session
from journal.database import Fault, is_conflict
from offsets import OffsetState, OffsetStore, notify_handled
from projections.errors import HandlerFailed, name_of, said, text_of
from projections.running.blame import blame
from projections.running.tracebacks import traceback_of

log = logging.getLogger("projections")

_CONFLICT_RETRIES = 10


_Store: TypeAlias = Callable[[str, tuple[datetime, int]], Awaitable[bool | None]]
"""Takes the mark of the transaction and the progress to store; None: it has stored nothing."""


class Stopping(Exception):
    """The range is to stop before an event is done with; its next holder begins with that event."""


async def no_effects() -> None:
    """Only progress is stored."""


class Transactions:
    """
    Stores what a range has handled, and remembers it.

    Args:
        name: The projection.
        store: The offsets of the range.
        state: What the range remembers of them; others only read it.
        progress: The horizon and the last import, as they are to be stored now.
        pause: Waits for a number of seconds; true, and early, when the range is to stop.
        idle: The database ends a transaction that is without a statement for this long.
        retention: How long offsets are kept.
    """

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        name: str,
        store: OffsetStore,
        state: OffsetState,
        progress: Callable[[], tuple[datetime, int]],
        pause: Callable[[float], Awaitable[bool]],
        idle: timedelta,
        retention: timedelta,
    ) -> None:
        self.store = store
        self.state = state
        self.pause = pause
        self._name = name
        self._progress = progress
        self._idle = idle
        self.retention = retention
        self._filled = False

    async def wait(self, seconds: float) -> None:
        """
        Wait, but not longer than the range is to run.

        Raises:
            Stopping: The range is to stop: attempts must not be used up at once.
        """
        if await self.pause(seconds):
            raise Stopping

    async def look_up(self, session: Session, source_ids: set[str]) -> None:
        """Have the offsets of sources in memory."""
        if unknown := self.state.unknown(source_ids):
            stored = await self.store.read(session, unknown)
            self.state.loaded(unknown, stored)
            if len(stored) < len(unknown):
                # Later than the offsets: a bound from before an eviction would not explain what it took away.
                self.state.evicted_before = await self.store.evicted_before(session)

    async def may_evict(self, session: Session) -> bool:
        """
        Whether old events that were just read may be handled without storing their offsets.

        The first time, all stored offsets are read into memory, if they fit: from then on none is looked up.
        """
        if not await self.store.may_evict(session, self._progress()[1], self.retention):
            return False
        if not self._filled:
            self._filled = True
            self.state.filled(await self.store.all(session, self.state.size))
            self.state.evicted_before = await self.store.evicted_before(session)  # later, as in look_up
        return True

    async def park(
        self, session: OwnedSession, envelope: EventEnvelope, failure: HandlerFailed, attempts: int
    ) -> None:
        """Set a source aside at an event that failed."""

        async def work() -> None:
            trace = traceback_of(failure.__cause__ or failure)
            again = failure.fault is not Fault.EVENT
            await self.store.park_in_tx(session, envelope, said(failure), trace, attempts, again=again)

        await self.commit(session, [], work)
        self.state.parked[envelope.source_id] = envelope.seq_nr

    async def unpark(self, session: OwnedSession, source_id: str) -> None:
        """Let a source go on."""
        await self.commit(session, [], lambda: self.store.unpark_in_tx(session, source_id))
        self.state.parked.pop(source_id, None)

    async def commit(
        self,
        session: OwnedSession,
        handled: Sequence[EventEnvelope],
        work: Callable[[], Awaitable[None]] = no_effects,
        *,
        until: datetime | None = None,
    ) -> None:
        """
        Run work, and store that events were handled, in one transaction; conflicts with others are tried again.

        Args:
            session: Outside a transaction.
            handled: Events of any sources, each source's in order.
            work: The effects.
            until: With these events, all events before this time are handled, and :meth:`may_evict` allows it: then
                offsets of older events are left out.

        Raises:
            HandlerFailed: The database refuses the effects.
            RangeLost, OffsetOvertaken, TransactionEnded, DatabaseError: Not an event's fault.
        """
        last = {envelope.source_id: envelope for envelope in handled}
        left_out: AbstractSet[str] = frozenset()
        bound: datetime | None = None

        async def store(mark: str, progress: tuple[datetime, int]) -> bool:
            nonlocal left_out, bound
            previous = await self._previous(session, last.keys())
            await work()
            left_out, bound = await self._evict(session, last, previous, until, progress[1])
            return await self.store.save_in_tx(
                session, mark, progress, handled, previous=previous, left_out=left_out
            )

        waited = await self._retried(session, store)
        self.state.committed({one: e.seq_nr for one, e in last.items() if one not in left_out})
        if bound is not None:
            self.state.evicted(left_out, bound)
        if waited:
            await self._tell(session)

    async def _previous(self, session: Session, source_ids: AbstractSet[str]) -> dict[str, int]:
        """Where sources stand; what has been stored since they were looked up may have displaced some."""
        try:
            return self.state.previous(source_ids)
        except KeyError:
            await self.look_up(session, {*source_ids})
            return self.state.previous(source_ids)

    async def _evict(
        self,
        session: OwnedSession,
        last: Mapping[str, EventEnvelope],
        previous: Mapping[str, int],
        until: datetime | None,
        import_id: int,
    ) -> tuple[AbstractSet[str], datetime | None]:
        """Delete offsets of sources that need none; return these sources, and what their events are older than."""
        if until is None:
            return frozenset(), None
        bound = await self.store.evict_in_tx(session, until, import_id, self.retention)
        if bound is None:
            return frozenset(), None
        left_out = {source_id for source_id, envelope in last.items() if envelope.db_timestamp < bound}
        if gone := previous.keys() & left_out:
            await self.store.forget_in_tx(session, sorted(gone))
        return left_out, bound

    async def commit_page(
        self, session: OwnedSession, store: Callable[[tuple[Any, ...]], Awaitable[bool | None]]
    ) -> None:
        """
        Run what handles a page and stores by itself that it is handled, in one transaction.

        Args:
            session: Outside a transaction.
            store: Takes :meth:`offsets.OffsetStore.fence`; returns whether somebody waits for what is handled, or None
                where it has stored nothing, and all is to be rolled back.

        Raises:
            HandlerFailed: The database refuses the effects.
            RangeLost, OffsetOvertaken, TransactionEnded, DatabaseError: As :meth:`commit`.
        """
        waited = await self._retried(session, lambda *batch: store(self.store.fence(*batch)))
        if waited is not None:
            self.state.forget_all()
        if waited:
            await self._tell(session)

    @staticmethod
    async def _tell(session: OwnedSession) -> None:
        with suppress(ProjectionsError):  # a hint: who waits looks again without it, too
            await notify_handled(session)

    async def _retried(self, session: OwnedSession, store: _Store) -> bool | None:
        """Store in a transaction; of a conflict with others, again."""
        for attempt in range(1, _CONFLICT_RETRIES + 1):
            try:
                return await self._try(session, store)
            except (ProjectionsError, Stopping, MemoryError, OSError) as error:
                if not isinstance(error, DatabaseError):
                    raise
                fault = await blame(session, error)
                if fault in {Fault.EVENT, Fault.PROJECTION}:
                    raise HandlerFailed(f"the batch could not be written: {error}", None, fault) from error
                if attempt == _CONFLICT_RETRIES or not is_conflict(error):
                    raise
                log.info(
                    "%s: conflict, trying again: %s", self._name, error,
                    extra={"action": "conflict", "projection": self._name, "attempt": attempt},
                )  # fmt: skip
                await self.wait(0.01 * attempt)
            except Exception as error:  # a fault of ours, which one event may bring about
                text = f"the batch could not be handled: {name_of(error)}: {text_of(error)}"
                raise HandlerFailed(text, None, Fault.PROJECTION) from error
        return None

    async def _try(self, session: OwnedSession, store: _Store) -> bool | None:
        mark = secrets.token_hex(8)
        async with self.store.storing:
            progress = self._progress()
            try:
                await session.begin(mark, idle=self._idle)
                if (waited := await store(mark, progress)) is None:
                    await session.rollback()
                    return None
                await session.commit()
            except BaseException:
                # After a COMMIT that broke, the outcome is unknown: the range restarts and reads it back.
                with suppress(Exception):  # a connection that is gone must not hide why
                    await session.rollback()
                raise
            self.store.commits += 1
        return waited
