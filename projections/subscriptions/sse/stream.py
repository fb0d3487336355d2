"""
One client of a stream: what it has missed, then what comes.

The seam: it joins those who listen, which says after which match everything comes to it. Only then it is given what
lies between where it was and that match, from the database, and after that what came meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple

from journal import DatabaseUnavailable, DatabaseWentBack, OwnedSession, ProjectionsError, hide_password
from journal.tasks import running
from projections.http.asgi import Send
from projections.http.server_sent_events import EventWriter, frame
from projections.running import surviving
from projections.subscriptions.errors import ListenerClosed
from projections.subscriptions.listening import Listener, Listening, LiveSubscription
from projections.subscriptions.matched_event import MatchedEvent
from projections.subscriptions.reading import (
    Match,
    MatchPlace,
    check_place,
    read_on,
    replay_length,
    settled_matches,
)
from projections.subscriptions.settings import StreamSettings
from projections.subscriptions.sse.rendering import Render, ServerSentEvent
from projections.subscriptions.sse.request import EventId, Refused

log = logging.getLogger("projections")

_PAGE = 100
"""Matches that are sent at a time."""
_LOST = (
    "the event that Last-Event-ID names is not in the database any more: it went back in time, by a fail-over or a "
    "restore. Load the state again, and open the stream without an id"
)


class _Rendered(NamedTuple):
    match_id: int
    block: bytes


class StreamClient:
    """Serves one client; ``lookups`` is taken for the time of each look at the database."""

    def __init__(
        self,
        listener: Listener,
        listening: Listening,
        send: Send,
        *,
        settings: StreamSettings,
        render: Render,
        lookups: asyncio.Semaphore,
    ) -> None:
        self._listener = listener
        self._listening = listening
        self._settings = settings
        self._render = render
        self._lookups = lookups
        self._writer = EventWriter(send, settings.patience)
        self._seen = MatchPlace(0)
        self._told = -1
        self._subscribed: LiveSubscription | None = None
        self._resumes = False

    async def begin(self, last_event_id: str | None) -> None:
        """Find out where the client goes on (else Refused, or ListenerClosed: the stream ends); nothing is sent yet."""
        last = None if last_event_id is None else EventId.parse(last_event_id)
        if last_event_id is not None and last is None:
            raise Refused(204)
        async with self._lookups:
            self._subscribed = await self._listening.subscribe()
        if last is None:
            await self._listening.join()
            if self._listening.place is None:
                raise ListenerClosed("the stream was closed meanwhile")
            self._seen = self._listening.place
            return
        limit = self._settings.replay_limit
        missed = await self._missed(last, self._subscribed, limit + 1)
        if missed is None or missed > limit:
            raise Refused(204)
        self._resumes, self._seen = True, last.place

    async def _missed(self, last: EventId, subscribed: LiveSubscription, limit: int) -> int | None:
        if last.subscribed != subscribed:  # it has expired, or was that of another stream
            return None
        try:
            async with self._session() as session:
                until = await settled_matches(session)
                return await replay_length(
                    session, self._listener.group, subscribed.subscription_id,
                    after=last.place, until=until, limit=limit,
                )  # fmt: skip
        except DatabaseWentBack as error:
            log.warning(
                "a client of group %s has seen what is not there any more: %s", self._listener.group, error,
                extra={"action": "stream_lost"},
            )  # fmt: skip
            raise Refused(409, _LOST) from error

    async def run(self) -> None:
        """Send what it has missed and what comes, until it is too slow or the stream is ended."""
        try:
            async with asyncio.timeout(None) as deadline, running(self._hurry(deadline)):
                await self._writer.begin()
                await self._writer.write(frame(retry=self._settings.retry, id=self._id()))
                await self._follow()
                await self._writer.finish(spread(self._settings.retry))
        except TimeoutError:
            self._log("it takes nothing any more")
        except OSError:
            pass  # it has gone; some servers say so

    async def _hurry(self, deadline: asyncio.Timeout) -> None:
        """A client that takes nothing must not keep alive what has ended."""
        await self._listening.ended.wait()
        deadline.reschedule(asyncio.get_running_loop().time() + self._settings.grace.total_seconds())

    async def _follow(self) -> None:
        try:
            if self._resumes:
                await self._replay()
                await self._join()
                await self._replay(self._listening.place)
            await self._live()
        except ProjectionsError as error:  # it comes again, and goes on where it was
            self._log(hide_password(str(error)))

    async def _join(self) -> None:
        try:
            async with asyncio.timeout(self._settings.patience.total_seconds()):
                await self._listening.join()
        except TimeoutError as error:
            raise DatabaseUnavailable("the database did not answer in time") from error

    async def _replay(self, until: MatchPlace | None = None) -> None:
        """Send what the database has, up to a match or to the last one; a client that is slow slows this down alone."""
        more = True
        while more and not self._listening.ended.is_set():
            async with self._session() as session:
                last = await settled_matches(session) if until is None else until.match_id
                matches = await read_on(
                    session, self._listener.group, after=self._seen, until=last, limit=_PAGE,
                    subscription_ids=[self._own.subscription_id],
                )  # fmt: skip
            await self._tell(matches)
            more = matches.more
        if until is not None and not more:
            self._seen = max(self._seen, until)

    async def _live(self) -> None:
        while not self._listening.ended.is_set():
            matches = await self._listening.take(_PAGE, self._settings.keep_alive.total_seconds())
            if matches:
                await self._tell(await self._unseen(matches))
            elif not self._listening.ended.is_set():
                await self._beat()

    async def _unseen(self, matches: Sequence[MatchedEvent]) -> Sequence[MatchedEvent]:
        """Where it has been with another process may lie after this one's reader: what it has seen is left out."""
        unseen = [match for match in matches if match.match_id > self._seen.match_id]
        if len(unseen) < len(matches):
            async with self._session() as session:
                await check_place(session, self._listener.group, self._seen)
        return unseen

    async def _beat(self) -> None:
        """Say that the stream is alive; and how far it is, also where nothing has come for long."""
        # Nothing waited just now: all up to here has been sent.
        self._seen = max(self._seen, self._listener.place or self._seen)
        await self._writer.write(
            frame(comment="", id=self._id() if self._seen.match_id > self._told else None)
        )

    async def _tell(self, matches: Sequence[Match | MatchedEvent]) -> None:
        rendered = [found for match in matches if (found := self._rendered(match)) is not None]
        if matches:
            self._seen = MatchPlace(matches[-1].match_id, matches[-1].matched_at)
        if rendered:
            await self._writer.write(b"".join(one.block for one in rendered))
            self._told = rendered[-1].match_id

    def _rendered(self, match: Match | MatchedEvent) -> _Rendered | None:
        if match.envelope is None:  # it has been dropped since
            return None
        event_id = EventId(self._own, MatchPlace(match.match_id, match.matched_at))
        try:
            with surviving():
                found = self._render(
                    MatchedEvent(match.match_id, match.subscription_ids, match.envelope, match.matched_at)
                )
                if found is None:
                    return None
                data, event = found if isinstance(found, ServerSentEvent) else (found, None)
                return _Rendered(match.match_id, frame(data, event=event, id=str(event_id)))
        except Exception:
            # It would fail again whenever the client comes again: this one event is left out.
            log.exception("rendering match %d", match.match_id, extra={"action": "rendering_failed"})
            return None

    def _id(self) -> str:
        self._told = self._seen.match_id
        return str(EventId(self._own, self._seen))

    @property
    def _own(self) -> LiveSubscription:
        assert self._subscribed is not None  # noqa: S101 - it has begun
        return self._subscribed

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[OwnedSession]:
        async with self._lookups, self._listener.database.session() as session:
            yield session

    def _log(self, why: str) -> None:
        log.info(
            "a stream of group %s ended: %s", self._listener.group, why, extra={"action": "stream_ended"}
        )


def spread(retry: timedelta) -> timedelta:
    """A time after which a client comes again, so that not all do at once."""
    return retry * random.uniform(1, 3)  # noqa: S311 - not for secrets
