"""
One reader of a group's matches for all who listen in a process.

It reads what is settled, in the order of the numbers, on one connection, and keeps its place in memory: a lost one
costs time and no match. When the database goes back to before that place, all who listen are ended with an error. It
runs while somebody listens. All of it happens in one event loop: matches are given and the position is moved between
two awaits, so whoever sees a position has been given all matches up to it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from weakref import WeakSet

from journal import (
    Database,
    DatabaseWentBack,
    KeptSession,
    MissingPrivilege,
    OwnedSession,
    Page,
    ProjectionsError,
    SchemaError,
    hide_password,
)
from journal.service import AT_ONCE, Pace, Service
from journal.tasks import end
from projections.subscriptions.errors import SubscriptionLost
from projections.subscriptions.matched_event import MatchedEvent
from projections.subscriptions.reading import Match, MatchPlace, last_place, look, read_on
from projections.subscriptions.settings import ListenerSettings
from projections.subscriptions.settled_matches import Settled
from projections.subscriptions.subscribing import keep_known

log = logging.getLogger("projections")

_FEW = 100
"""Subscriptions that are worth telling the database; of more it sends all matches of the group."""

_LOOK_EVERY = 1.0
"""Seconds after which it is noticed that somebody has removed a subscription."""

_TURN = 5000
"""Matches that are given to somebody before everything else in the process has its turn."""

# Trying again would not heal these.
_FATAL = (DatabaseWentBack, MissingPrivilege, SchemaError)


class Sink(Protocol):
    """Who is given the matches of one subscription."""

    limit: int
    """How many it can hold."""

    @property
    def subscribed(self) -> tuple[int, datetime] | None:
        """Its subscription: the number, and when it was made."""

    def joined(self, place: MatchPlace) -> None:
        """From here on it is given all matches after a place."""
        ...

    def put(self, event: MatchedEvent) -> None:
        """Take an event; never waits."""
        ...

    def end(self) -> None:
        """Nothing comes any more."""
        ...

    def fail(self, error: Exception) -> None:
        """Nothing comes any more, because of this."""
        ...


class LiveReader:
    """Reads the matches of a group as they come, on one connection while there is somebody to read for."""

    def __init__(self, database: Database, group: str, settings: ListenerSettings) -> None:
        self._database = database
        self._group = group
        self._settings = settings
        # Weak: one who was dropped without a word is gone.
        self._known: WeakSet[Sink] = WeakSet()
        self._waiting: WeakSet[Sink] = WeakSet()
        self._live: dict[int, WeakSet[Sink]] = {}
        self._smallest = sys.maxsize
        self._place: MatchPlace | None = None
        self._read_until = -1
        self._session = KeptSession(database.session)
        self._service = Service(
            f"listening for group {group}", self._step, restart=settings.retry.delay, failed=self._failed,
            goes_on=lambda: bool(self._known),
        )  # fmt: skip
        self._pace = Pace(settings.pacing.shortest, settings.pacing.longest)
        self._settled = Settled(database, settings.pacing.longest.total_seconds(), self._service.wake)
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._keep_at = self._look_at = 0.0

    @property
    def position(self) -> int:
        """All matches up to this number have been given to those that had joined; -1 while nobody reads."""
        return -1 if self._place is None else self._place.match_id

    @property
    def place(self) -> MatchPlace | None:
        """The same as a place; None while nobody reads."""
        return self._place

    def add(self, sink: Sink) -> None:
        """Keep its subscription alive."""
        if self._closed:
            sink.end()
            return
        self._known.add(sink)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def join(self, sink: Sink) -> None:
        """Give it what comes, once :meth:`Sink.joined` has told from where on."""
        self._waiting.add(sink)
        self._service.wake()
        self.add(sink)

    def remove(self, sink: Sink) -> None:
        """Forget it."""
        self._known.discard(sink)
        self._waiting.discard(sink)
        if sink.subscribed is not None and (sinks := self._live.get(sink.subscribed[0])) is not None:
            sinks.discard(sink)
            if not sinks:
                del self._live[sink.subscribed[0]]
        self._service.wake()

    def end_all(self) -> None:
        """Let what has been given be taken, and nothing more come after it."""
        self._closed = True
        for sink in list(self._known):
            sink.end()

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            await end(self._task)

    async def _run(self) -> None:
        self._keep_at = asyncio.get_running_loop().time() + self._settings.keep_every.total_seconds()
        session = self._session = KeptSession(self._database.session)
        try:
            with self._settled.hearing():
                await self._service.run()
        except Exception as error:
            if not isinstance(error, ProjectionsError):
                log.exception("listening for group %s", self._group, extra={"action": "listening_failed"})
            for sink in list(self._known):
                sink.fail(error)
        finally:
            # At once: whoever is added from here on starts another.
            self._task = self._place = None
            self._read_until = -1
            await session.close()

    async def _step(self) -> float:
        async with asyncio.timeout(self._settings.patience.total_seconds()), self._session.use() as session:
            matches, place = await self._read(session)
        await self._deliver(matches)
        self._place = place
        if matches:
            self._pace.quicken()
        else:
            self._pace.slow_down()
        return AT_ONCE if matches.more else self._pace.pause

    def _failed(self, error: Exception) -> None:
        if isinstance(error, _FATAL) or not isinstance(error, ProjectionsError | TimeoutError):
            raise error
        self._read_until = -1
        if self._service.failures == 1:
            reason = hide_password(str(error)) or f"no answer within {self._settings.patience}"
            log.warning(
                "listening for group %s: %s; reading on from match %s when it is back",
                self._group, reason, self.position, extra={"action": "listening_interrupted"},
            )  # fmt: skip

    async def _read(self, session: OwnedSession) -> tuple[Page[Match], MatchPlace]:
        """A page, and the place after it."""
        # In two statements: what the first calls settled, the second sees.
        if not self._settled.is_current and not self._settled.looked(await look(session)):
            self._keep_at = 0.0  # all that is remembered is looked at
        until = self._settled.until
        await self._keep(session)
        if self._place is None:
            self._place = await last_place(session, self._group, until)
        self._admit(self._place)
        if until == self._read_until:
            return Page(), self._place
        # Only what is there stays: a number without a match may be given out again after a crash.
        last = await last_place(session, self._group, until)
        matches: Page[Match] = Page()
        if self._live:
            ids = list(self._live) if len(self._live) <= _FEW else None
            matches = await read_on(
                session,
                self._group,
                after=self._place,
                until=last.match_id,
                limit=self._settings.page,
                subscription_ids=ids,
                page_bytes=self._settings.page_bytes,
            )
            last = max(self._place, last)
        if matches.more:
            return matches, matches[-1].place
        self._read_until = until
        return matches, last

    async def _keep(self, session: OwnedSession) -> None:
        clock = asyncio.get_running_loop().time
        keep = clock() >= self._keep_at
        if not keep and clock() < self._look_at:
            return
        wanted = self._subscribed()
        known = await keep_known(session, [number for number, _ in wanted], keep=keep)
        self._look_at = clock() + _LOOK_EVERY
        if keep:
            self._keep_at = clock() + self._settings.keep_every.total_seconds()
            self._read_until = -1  # the place is looked at, too, where nothing comes
        self._lose(wanted - known.items())
        self._prune()

    # Loops over those who listen are not in coroutines, whose variables would keep alive the last of them.

    def _prune(self) -> None:
        """Forget subscriptions that nobody listens to any more."""
        self._live = {number: sinks for number, sinks in self._live.items() if sinks}
        self._smallest = min(
            (sink.limit for sinks in self._live.values() for sink in sinks), default=sys.maxsize
        )

    def _subscribed(self) -> set[tuple[int, datetime]]:
        return {sink.subscribed for sink in self._known if sink.subscribed is not None}

    def _admit(self, place: MatchPlace) -> None:
        for sink in list(self._waiting):
            assert sink.subscribed is not None  # noqa: S101 - it has subscribed before
            self._live.setdefault(sink.subscribed[0], WeakSet()).add(sink)
            self._smallest = min(self._smallest, sink.limit)
            sink.joined(place)
        self._waiting.clear()

    async def _deliver(self, matches: Sequence[Match]) -> None:
        """Give a page to those that it is for, no more at a time than the smallest of them can hold."""
        size = max(1, min(self._smallest // 2, _TURN // max(1, len(self._known))))
        for start in range(0, len(matches), size):
            self._give(matches[start : start + size])
            await asyncio.sleep(0)  # those that are not busy take it

    def _give(self, matches: Sequence[Match]) -> None:
        for match in matches:
            if match.envelope is not None:  # else it was dropped meanwhile
                event = MatchedEvent(match.match_id, match.subscription_ids, match.envelope, match.matched_at)
                for number in match.subscription_ids:
                    for sink in list(self._live.get(number, ())):
                        sink.put(event)
            self._place = match.place

    def _lose(self, gone: set[tuple[int, datetime]]) -> None:
        for sink, number in [
            (s, s.subscribed[0]) for s in self._known if s.subscribed and s.subscribed in gone
        ]:
            sink.fail(
                SubscriptionLost(
                    f"subscription {number} of group {self._group!r} was removed, or has expired, while "
                    "somebody listened: what came since is unknown; listen again"
                )
            )
