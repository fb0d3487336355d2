"""
Waiting until projections have handled events. All who wait on a database in a process share one poll of it.

The poll tells the workers, by a time in the row of the projection, that somebody waits; until then they notify after
each batch, and the poll runs at once. When nobody waits, they send nothing. A batch that was about to commit when the
first came to wait is not announced: the poll repeats itself, less and less often.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from typing import Any

from journal import (
    Appended,
    AppendedEvents,
    Database,
    DatabaseUnavailable,
    DatabaseWentBack,
    EntityTypes,
    InvalidValue,
    Log,
    NotFound,
    ProjectionsError,
    Session,
    as_log,
)
from journal.database import KeptSession
from journal.service import AT_ONCE, Pace, Service
from journal.tokens import AwaitedEvent, last_of_each, read_token
from offsets import HANDLED, WrongJournal, entity_types_of
from projections.waiting.reasons import not_in_journal, reason

log = logging.getLogger("projections")

_HANDLED = "SELECT n FROM projections._handled_v1($1, $2, $3, $4, $5) AS n"
_FIND = "SELECT ordinal, entity_type FROM projections._entity_types_appended_v1($1, $2, $3)"
_TIMELINE = "SELECT projections.timeline_v1()"
_SHORTEST, _LONGEST = timedelta(milliseconds=5), timedelta(milliseconds=100)
"""Between two polls without a notification: the first ones, and all after a while."""
_LINGER = 5.0
"""Seconds for which notifications are still listened to when nobody waits: most requests do not come alone."""
_PATIENCE = 1.0
"""Seconds that the last look may take, which tells why something was not handled."""
_AGAIN = timedelta(milliseconds=500)
"""After this time a database that is gone is asked again."""


class WaitTimeout(ProjectionsError, TimeoutError):
    """
    Projections had not handled the events in time; the message says why.

    Args:
        timeout: The time limit that was given.
        reasons: For each of these projections, what holds it back.
    """

    def __init__(self, timeout: timedelta, reasons: Mapping[str, str]) -> None:
        said = "; ".join(f"projection {name!r}: {why}" for name, why in reasons.items())
        super().__init__(f"not handled within {timeout.total_seconds():g} s: {said}")
        self.timeout = timeout
        self.reasons = dict(reasons)


async def wait_for(
    database: Database,
    projections: str | Iterable[str],
    appended: Appended | AppendedEvents | Sequence[Appended] | str,
    timeout: timedelta = timedelta(seconds=5),  # noqa: ASYNC109 - what it says then is the point
    *,
    journal: Database | Log | None = None,
) -> None:
    """
    Wait until projections have handled what was appended; returns at once where they have.

    Call it after the commit of the append. A projection has handled an event when the transaction with its effects is
    committed, or when it has decided to skip it. An event that retention has deleted counts as handled: retention
    waits for projections, and what is deleted is handled by none any more.

    Args:
        database: Where the projections are, and the events; waiting takes one of its sessions for all who wait.
        projections: The name of one, or of several: all of them are waited for.
        appended: What :func:`append` has returned, or the ``token`` of that.
        timeout: How long to wait at most; the last look, which tells why, may take a second more.
        journal: Where the events are, if not in ``database``.

    Raises:
        WaitTimeout: They have not, within the time-out; it says why: paused, parked, failing, no worker, behind, or
            not committed.
        TypeError: ``appended`` is nothing that :func:`append` returns, or ``timeout`` is not a timedelta.
        NotFound: No projection of such a name has run on this database.
        ValueError: A projection reads other entity types than the events are of.
        InvalidValue: The text is not a token, the time-out is negative, or the journal is of another system.
        DatabaseWentBack: The events are gone: after a fail-over or a restore, the database does not have them.
    """
    if not isinstance(timeout, timedelta):
        raise TypeError(f"timeout must be a timedelta, such as timedelta(seconds=5), not {timeout!r:.80}")
    if timeout < timedelta(0):
        raise InvalidValue(f"timeout must not be negative, but is {timeout.total_seconds():g} s")
    names = [projections] if isinstance(projections, str) else list(dict.fromkeys(projections))
    await wait_for_events(database, names, _events(appended), timeout, journal=journal)


async def wait_for_events(
    database: Database,
    projections: Sequence[str],
    events: Sequence[AwaitedEvent],
    timeout: timedelta,  # noqa: ASYNC109 - as wait_for
    *,
    those_that_read: bool = False,
    journal: Database | Log | None = None,
) -> None:
    """As :func:`wait_for`; with ``those_that_read`` only for projections that read the type of an event."""
    if not projections or not events:
        return
    log = as_log(database if journal is None else journal)
    if not log.has_tokens:
        raise InvalidValue(f"journal {log.name!r} is of another system: what is appended there has no token")
    waiter = _waiters.get((database, log))
    if waiter is None:
        waiter = _waiters[database, log] = _Waiter(database, log)
    await waiter.wait(_Wait(projections, events, those_that_read=those_that_read), timeout)


def _events(appended: Appended | AppendedEvents | Sequence[Appended] | str) -> list[AwaitedEvent]:
    if isinstance(appended, str):
        return read_token(appended)
    if isinstance(appended, Appended | AppendedEvents):
        return appended.awaited
    given: Any = appended
    if not isinstance(given, Iterable) or not all(isinstance(one, Appended) for one in given):
        raise TypeError(f"wait_for() takes what append() returned, or the token of it, not {given!r:.80}")
    return last_of_each(event for each in appended for event in each.awaited)


class _Wait:
    """One who waits: for each projection, the events that it has not handled yet."""

    def __init__(
        self, projections: Sequence[str], events: Sequence[AwaitedEvent], *, those_that_read: bool
    ) -> None:
        self.projections = tuple(projections)
        self.events = events
        self._those_that_read = those_that_read
        self.left = {(name, event) for name in projections for event in events}
        self.named: Mapping[str, EntityTypes] = {}
        """The entity types of each projection, once they have been looked up."""
        self.types: dict[AwaitedEvent, str] = {}
        """Those of the events that are in the journal."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def found(self, event: AwaitedEvent, entity_type: str | None) -> None:
        """An event is in the journal, or, with no type, was deleted with the partition of its time."""
        if entity_type is None:
            self.left -= {(name, event) for name in self.projections}
            return
        self.types[event] = entity_type
        for name, wanted in self.named.items():
            if entity_type not in wanted and self._those_that_read:
                self.left.discard((name, event))
            elif entity_type not in wanted:
                self.fail(
                    ValueError(
                        f"projection {name!r} reads events of {wanted.said}, and source {event.source_id!r} is of "
                        f"type {entity_type!r}: it will never handle them"
                    )
                )

    def not_found(self, event: AwaitedEvent, timeline: int) -> None:
        """An event is not in the journal, whose database is on a timeline."""
        self.types.pop(event, None)
        if event.timeline != timeline:
            self.fail(
                DatabaseWentBack(
                    f"event {event.seq_nr} of source {event.source_id!r} is not in the journal: it was appended on "
                    f"timeline {event.timeline} of the database, which is on timeline {timeline} now (after a "
                    "fail-over or a restore)"
                )
            )

    def fail(self, error: BaseException) -> None:
        """End it with an error."""
        if not self.over.done():
            self.over.set_exception(error)


class _Waiter:
    """Waits on a database, for events of a journal, for all who do in a process."""

    def __init__(self, database: Database, journal: Log) -> None:
        self._database = database
        self._journal = journal
        self._stored_name = journal.stored_name(database)
        self._session = KeptSession(database.session)
        self._waits: set[_Wait] = set()
        self._pace = Pace(_SHORTEST, _LONGEST)
        self._left_at = asyncio.get_running_loop().time()
        self._service = Service(
            "waiting for projections", self._step, restart=lambda _: _AGAIN, failed=self._failed,
            goes_on=lambda: bool(self._waits) or asyncio.get_running_loop().time() < self._left_at + _LINGER,
        )  # fmt: skip
        self._task = asyncio.create_task(self._run(), name="projections-wait")

    async def wait(self, wait: _Wait, limit: timedelta) -> None:
        """Wait, and say why it did not end."""
        self._waits.add(wait)
        self._service.wake()
        try:
            await asyncio.wait({wait.over}, timeout=limit.total_seconds())
            reasons = {} if wait.over.done() else await self._reasons(wait)
            if not wait.over.done():
                raise WaitTimeout(limit, reasons)
            wait.over.result()
        finally:
            self._waits.discard(wait)
            wait.over.cancel()

    async def _run(self) -> None:
        try:
            async with self._database.listen(HANDLED, self._service.wake):
                await self._service.run()
                del _waiters[self._database, self._journal]  # at once: whoever comes from here on has another
        except BaseException as error:
            for wait in list(self._waits):
                wait.fail(error)
            raise
        finally:
            if _waiters.get((self._database, self._journal)) is self:
                del _waiters[self._database, self._journal]
            await self._session.close()

    async def _step(self) -> float:
        """Look once for all who wait."""
        waits = [wait for wait in self._waits if not wait.over.done()]
        if not waits:
            await self._session.close()
            return self._left_at + _LINGER - asyncio.get_running_loop().time()
        if self._service.woken:
            self._pace.quicken()
        try:
            async with self._session.use() as session:
                await self._look(session, waits)
        except DatabaseUnavailable:  # it may come back before they give up
            raise
        except ProjectionsError as error:
            for wait in waits:
                wait.fail(error)
        await asyncio.sleep(0)  # until those who are done have left
        self._left_at = asyncio.get_running_loop().time()
        return self._pace.slow_down() if self._waits else AT_ONCE

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, DatabaseUnavailable):
            raise error
        log.info("waiting for projections: %s", error, extra={"action": "wait_failed"})

    async def _look(self, session: Session, waits: Sequence[_Wait]) -> None:
        await self._check_names(session, [wait for wait in waits if not wait.named])
        sought = {event for wait in waits for event in wait.events if event not in wait.types}
        await self._find(session, waits, sought)
        pairs = [(wait, name, event) for wait in waits for name, event in wait.left if event in wait.types]
        arrays = [
            list(column) for column in zip(*((name, *event[:3]) for _, name, event in pairs), strict=True)
        ]
        rows = await session.fetch(_HANDLED, *(arrays or [[], [], [], []]), self._stored_name)
        handled = [pairs[row["n"] - 1] for row in rows]
        # The database may have gone back in time since they were found, and other events have got their numbers.
        await self._find(session, waits, {event for _, _, event in handled} - sought)
        for wait, name, event in handled:
            if event in wait.types:
                wait.left.discard((name, event))
        for wait in waits:
            if not wait.left and not wait.over.done():
                wait.over.set_result(None)

    async def _check_names(self, session: Session, waits: Sequence[_Wait]) -> None:
        for names in {wait.projections for wait in waits}:  # mostly one: all wait for the same
            try:
                types = await entity_types_of(session, names, self._stored_name)
            except (NotFound, WrongJournal) as error:
                for wait in waits:
                    if wait.projections == names:
                        wait.fail(_again(error))
            else:
                for wait in waits:
                    if wait.projections == names:
                        wait.named = types

    async def _find(self, session: Session, waits: Sequence[_Wait], events: set[AwaitedEvent]) -> None:
        """Note the types of events that are in the journal; end who waits for what is lost, or for another type."""
        if not events:
            return
        order = list(events)
        ids, numbers, times, _ = (list(column) for column in zip(*order, strict=True))
        async with self._reading(session) as journal:
            rows = await journal.fetch(_FIND, ids, numbers, times)
            types = {order[row["ordinal"] - 1]: row["entity_type"] for row in rows}
            timeline = await journal.fetchval(_TIMELINE) if len(types) < len(order) else 0
        for wait in waits:
            for event in events.intersection(wait.events):
                if event in types:
                    wait.found(event, types[event])
                else:
                    wait.not_found(event, timeline)

    def _reading(self, session: Session) -> AbstractAsyncContextManager[Session]:
        """What to ask the journal with."""
        if self._journal.at_primary.database is self._database:
            return nullcontext(session)
        return self._journal.at_primary.session()

    async def _reasons(self, wait: _Wait) -> dict[str, str]:
        """Look for the last time; where that does not end it, what holds back each projection."""
        found = {name: "no connection was free to ask the database" for name, _ in wait.left}
        try:
            async with asyncio.timeout(_PATIENCE), self._database.session() as session:
                found = dict.fromkeys(found, f"the database does not answer (for {_PATIENCE:g} s)")
                await self._look(session, [wait])
                for name, event in sorted(wait.left, key=lambda left: left[1].seq_nr, reverse=True):
                    found[name] = await self._reason(session, wait, name, event)
        except TimeoutError:
            pass
        except ProjectionsError as error:
            found = dict.fromkeys(found, f"the database does not answer ({error})")
        return {name: found[name] for name, _ in wait.left}

    async def _reason(self, session: Session, wait: _Wait, name: str, event: AwaitedEvent) -> str:
        if event not in wait.types:
            return not_in_journal(event)
        return await reason(session, name, event, self._stored_name)


def _again(error: NotFound | WrongJournal) -> ProjectionsError:
    """One for each who waits: they are raised in several tasks."""
    if isinstance(error, NotFound):
        return NotFound(str(error), error.code)
    return WrongJournal(str(error))


_waiters: dict[tuple[Database, Log], _Waiter] = {}
"""Those at work, one for each database, and journal that is read there, of the process."""
