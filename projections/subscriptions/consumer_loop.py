"""
Reading for a group: one connection for all that is read and stored, whatever the number of handlers and ranges.

A single loop talks to the database: it keeps the lease and failed batches, moves cursors and reads ahead. Handlers run
beside it, and wake it when they are done. Nothing depends on the connection: each statement stands for itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from journal import (
    Database,
    DatabaseError,
    Generation,
    OtherSchemaVersion,
    Polled,
    ProjectionsError,
    hearing_polls,
)
from journal.database import Fault, fault_of
from journal.schema import check_version
from journal.tasks import running
from offsets import DatabaseWentBack, RangeLost
from projections.errors import UnknownGroup, said
from projections.running.page_limit import PageLimit
from projections.subscriptions import groups, reading
from projections.subscriptions.dead_batches import encode_batch, fail_batch
from projections.subscriptions.errors import InvalidCursor
from projections.subscriptions.group_member import Member
from projections.subscriptions.groups import GroupRange
from projections.subscriptions.range_reader import HeldRanges, RangeReader
from projections.subscriptions.reading import MatchPlace
from projections.subscriptions.redelivery import Redelivery
from projections.subscriptions.registration import HandlerSubscription
from projections.subscriptions.settings import ConsumerSettings
from projections.subscriptions.subscribing import keep_subscriptions

log = logging.getLogger("projections")

Subscribe = Callable[[], Awaitable[Mapping[str, HandlerSubscription]]]

_FAR = 50_000
"""Matches that were not for a range, after which its cursor passes over them."""
_AFTER_REFUSAL = 1
"""Seconds before a range whose cursor was refused is read again."""
_GOODBYE = 2
"""Seconds for the last words to a database that may be gone."""


class ConsumerLoop:
    """
    One consumer of a group, while it runs.

    Its owner is a name that nobody else has. It subscribes its handlers again when a subscription is gone.
    """

    def __init__(
        self, database: Database, group: str, owner: str, subscribe: Subscribe, settings: ConsumerSettings
    ) -> None:
        self._database = database
        self._group = group
        self._subscribe = subscribe
        self._settings = settings
        self._ask = Member(database, group, owner, settings.lease)
        self._handlers: Mapping[str, HandlerSubscription] = {}
        self._subscribed = False
        self._changed = asyncio.Event()
        self._ranges = HeldRanges(group, settings, self._changed.set)
        self._redelivery = Redelivery(self._ask, group, settings.retries_every, self._changed.set)
        self._stop = asyncio.Event()
        self._stopping = False
        self._settled = -1
        self._polled: Polled | None = None
        self._pages = PageLimit(settings.page_bytes)
        self._generation: Generation | None = None
        self._failures = 0
        now = asyncio.get_running_loop().time()
        self._alive_at = now
        self._beat_at = now
        self._keep_at = now + settings.keep_every.total_seconds()
        self._pause = settings.pacing.shortest.total_seconds()

    async def run(self, stop: asyncio.Event) -> None:
        """Read until it is told to stop; then finish what was begun, give back the ranges, and leave."""
        await self._subscribe_handlers()
        self._stop = stop
        try:
            with hearing_polls(self._database, self._heard):
                async with running(self._wait_for_stop()):
                    while not stop.is_set():
                        await self._wait(busy=await self._try_turn())
                    await self._finish()
        finally:
            await self._leave()

    async def _subscribe_handlers(self) -> None:
        self._handlers = await self._subscribe()
        self._redelivery.handlers = {name: one.handler for name, one in self._handlers.items()}
        self._subscribed = True

    @property
    def _numbers(self) -> list[int]:
        """Of the handlers."""
        return [one.handler_id for one in self._handlers.values()]

    async def _wait_for_stop(self) -> None:
        await self._stop.wait()
        self._changed.set()

    async def _finish(self) -> None:
        """Wait for what handlers have begun with, but not for ever."""
        self._stopping = True
        try:
            async with asyncio.timeout(self._settings.stop_timeout.total_seconds()):
                while self._ranges or self._redelivery.running:
                    for reader in self._ranges:
                        reader.give_up()
                    await self._try_turn()
                    if self._ranges or self._redelivery.running:
                        await self._wait(busy=False)
        except TimeoutError:
            log.warning(
                "group %s: handlers did not end within %.1f s: they are cancelled, and what they had comes again",
                self._group, self._settings.stop_timeout.total_seconds(), extra=self._extra("stop_timeout"),
            )  # fmt: skip

    async def _leave(self) -> None:
        await self._ranges.leave([asyncio.create_task(self._redelivery.close())], _GOODBYE)
        with suppress(ProjectionsError, TimeoutError):
            async with asyncio.timeout(_GOODBYE):
                await self._ask.leave()
        await self._ask.close()

    async def _try_turn(self) -> bool:
        """Do all that is to be done; returns whether there is more at once."""
        self._changed.clear()
        try:
            busy = await self._turn()
        except BaseException as error:
            await self._ask.close()
            if isinstance(error, OtherSchemaVersion) or not isinstance(error, Exception):
                raise
            self._failures += 1
            log.warning(
                "group %s: %s", self._group, said(error),
                exc_info=None if isinstance(error, ProjectionsError) else error,
                extra=self._extra("reading_failed"),
            )  # fmt: skip
            self._ranges.look_again()
            self._look_at_lease()
            return False
        self._failures = 0
        return busy

    async def _turn(self) -> bool:
        loop = asyncio.get_running_loop()
        self._look_at_lease()
        if not (self._subscribed or self._stopping):
            await self._subscribe_handlers()
        if loop.time() >= self._beat_at:
            await self._beat()
        if loop.time() >= self._keep_at and self._subscribed and not self._stopping:
            await self._keep_subscriptions()
        for reader in self._ranges:
            await self._store(reader)
        await self._redelivery.turn(taking=not self._stopping)
        return False if self._stopping else await self._read()

    # The lease and the ranges

    async def _beat(self) -> None:
        sent_at = asyncio.get_running_loop().time()
        await self._join_handlers()
        try:
            held = await self._ask.stay(self._numbers)
        except (UnknownGroup, DatabaseWentBack) as error:
            await self._start_over(str(error))
            return
        self._alive_at = sent_at
        self._beat_at = sent_at + self._settings.heartbeat.total_seconds()
        self._ranges.look_again()
        await self._told(held)

    async def _start_over(self, why: str) -> None:
        """
        Forget all, and join again by another name: what was begun under the old one can store nothing any more.

        Nothing is read before all handlers have subscribed: the numbers that they had may be given to others by now.
        """
        log.warning(
            "group %s: subscribing again, and joining: %s",
            self._group,
            why,
            extra=self._extra("joining_again"),
        )
        for reader in self._ranges:
            self._lose(reader, why)
        self._subscribed = False
        self._beat_at = 0.0
        await self._ask.leave()
        await self._ask.close()  # subscribing borrows one of its own
        self._changed.set()

    async def _told(self, ranges: list[GroupRange]) -> None:
        now = {one.key: one for one in ranges}
        for reader in self._ranges:
            one = now.get(reader.held.key)
            if one is None or one.epoch != reader.held.epoch:
                self._lose(reader, "another has it, or the group was cut anew")
            else:
                reader.read_for_all_but(one.apart)  # the answer to joining may have been lost
        for key, one in now.items():
            if (held := self._ranges.get(key)) is not None:
                if not one.kept:
                    held.give_up()
            elif one.kept and not self._stopping:
                self._ranges.start(one, self._handlers)
            else:
                await self._ask(groups.release_range, self._group, one)

    async def _join_handlers(self) -> None:
        """A handler that is as far as all others needs no range of its own."""
        for own in self._ranges:
            together = self._ranges.get((own.held.slices, None))
            if own.held.handler_id is None or together is None:
                continue
            if (
                own.is_idle(self._settled)
                and together.is_idle(self._settled)
                and await self._ask(groups.join_handler, self._group, own.held)
            ):
                self._ranges.drop(own)
                together.read_for_all_but([one for one in together.held.apart if one != own.held.handler_id])

    def _lose(self, reader: RangeReader, why: str) -> None:
        self._ranges.lose(reader, why)
        self._beat_at = 0.0  # there may be another range for us

    def _look_at_lease(self) -> None:
        """Once the lease is over, others may have the ranges: whatever handlers do here, they may do as well."""
        if asyncio.get_running_loop().time() - self._alive_at >= self._settings.lease.total_seconds():
            for reader in self._ranges:
                self._lose(reader, "the lease has ended without an answer")

    async def _keep_subscriptions(self) -> None:
        await self._ask(check_version)  # which somebody may have changed meanwhile
        wanted = {one.subscription_id for one in self._handlers.values()}
        kept = await self._ask(keep_subscriptions, sorted(wanted))
        self._keep_at = asyncio.get_running_loop().time() + self._settings.keep_every.total_seconds()
        if not wanted <= set(kept):
            await self._start_over("a subscription is gone")

    # What handlers have done

    async def _store(self, reader: RangeReader) -> None:
        """Store what has become of the pages of a range."""
        try:
            await self._keep_failed(reader)
            # So that the next reader need not come by all that is for other ranges.
            reader.pass_over(_FAR if reader.only is None else 1)
            if (cursor := reader.cursor).match_id > reader.stored:
                await self._move(reader, cursor)
            if reader.given_up:
                self._ranges.drop(reader)
                await self._ask(groups.release_range, self._group, reader.held)
                log.info(
                    "group %s: slices %s released", self._group, reader.held.slices,
                    extra=reader.labels("released"),
                )  # fmt: skip
            elif reader.failure is not None:
                name, error = reader.failure
                reader.start_again(f"handler {name!r}", error)
        except (RangeLost, DatabaseWentBack) as error:
            self._lose(reader, str(error))
        except InvalidCursor as error:
            # The match was dropped by force since it was read, or somebody has moved the cursor.
            self._lose(reader, str(error))
            self._beat_at = asyncio.get_running_loop().time() + _AFTER_REFUSAL
        except DatabaseError as error:
            self._refused(reader, "storing what was done", error)
        reader.resume()

    async def _move(self, reader: RangeReader, cursor: MatchPlace) -> None:
        apart: Sequence[str] = await self._ask(
            groups.move_cursor, self._group, reader.held, cursor.match_id, cursor.matched_at,
            handlers=self._numbers,
        )  # fmt: skip
        reader.is_stored(cursor)
        for name in apart:
            log.warning(
                "group %s: slices %s: this process has no handler %r: what is for it is kept until a process that "
                "has it reads it, or the handler is given up", self._group, reader.held.slices, name,
                extra=reader.labels("handler_apart"),
            )  # fmt: skip

    async def _keep_failed(self, reader: RangeReader) -> None:
        while (part := reader.failed_part) is not None:
            handler = part.handler
            attempts, delay = handler.after(0, part.error)
            await self._ask(
                fail_batch, self._group, handler.name, encode_batch(part.events),
                attempts=attempts, error=repr(part.error), delay=delay, held=reader.held, page=part.page,
            )  # fmt: skip
            reader.part_is_kept(part)
            self._redelivery.tell_failed(handler, part.events, part.error, delay)

    @staticmethod
    def _refused(reader: RangeReader, what: str, error: DatabaseError) -> None:
        """What the database refuses for one range holds up no other; what it refuses to all is not for a range."""
        if fault_of(error) in {Fault.PROJECTION, Fault.DATABASE}:
            raise error
        reader.start_again(what, error)

    # Reading

    def _heard(self, polled: Polled) -> None:
        """Somebody else in this process has polled the database: that spares a look, or is a reason for one."""
        self._polled = polled
        if not self._is_still(polled):
            self._changed.set()

    def _is_still(self, polled: Polled) -> bool:
        """Whether a poll shows what the last look has shown."""
        same = self._generation is not None and polled.generation.follows(self._generation)
        return same and polled.last_match == self._settled

    @property
    def _is_told(self) -> bool:
        """Whether a poll that is as new as a look would be shows what the last look has shown."""
        polled, longest = self._polled, self._settings.pacing.longest.total_seconds()
        recent = polled is not None and asyncio.get_running_loop().time() - polled.at < longest
        return polled is not None and recent and self._is_still(polled)

    async def _look(self) -> bool:
        """Ask what is settled; returns whether all that is remembered still holds."""
        look = await self._ask(reading.look)
        before, self._generation = self._generation or look.generation, look.generation
        if not look.generation.follows(before):  # all that is remembered is looked at before anything else
            self._beat_at = self._keep_at = 0.0
            return False
        if look.settled != self._settled:
            self._pause = self._settings.pacing.shortest.total_seconds()
        self._settled = look.settled
        return True

    async def _read(self) -> bool:
        """Read a page of each range that has room; returns whether there is more."""
        open_ranges = [reader for reader in self._ranges if reader.has_room]
        if not open_ranges:
            return False
        if not self._is_told and not await self._look():
            return True
        settled = self._settled
        if not (unread := [reader for reader in open_ranges if reader.looked_until != settled]):
            return False
        # Only to the last match that is there: a number without a match may be given out again after a crash.
        last = await self._ask(reading.last_place, self._group, settled)
        more = [await self._read_page(reader, last, settled) for reader in unread]
        return any(more)

    async def _read_page(self, reader: RangeReader, last: MatchPlace, settled: int) -> bool:
        try:
            page = await self._ask(
                reading.read_held, self._group, reader.held, after=reader.position, until=last.match_id,
                limit=self._settings.page_size, subscription_ids=reader.only, page_bytes=self._pages.bytes,
            )  # fmt: skip
        except MemoryError as error:
            self._pages.failed(error)
            raise
        except (RangeLost, DatabaseWentBack) as error:
            self._lose(reader, str(error))
            return False
        except DatabaseError as error:
            self._pages.failed(error)
            self._refused(reader, "reading", error)
            return False
        if page.more:
            reader.take(page, page[-1].place)
            return reader.has_room
        reader.take(page, max(reader.position, last))
        reader.looked_until = settled
        return False

    async def _wait(self, *, busy: bool) -> None:
        """Wait until there is something to do; the pause between questions grows while the answer is nothing."""
        if self._failures:
            await self._wait_for_database()
            return
        if busy:
            return
        try:
            async with asyncio.timeout(self._pause):
                await self._changed.wait()
        except TimeoutError:
            longest = self._settings.pacing.longest.total_seconds()
            self._pause = min(2 * self._pause, longest)

    async def _wait_for_database(self) -> None:
        """Whatever handlers do meanwhile, what does not answer is not asked all the time."""
        pause = self._settings.restart.delay(self._failures).total_seconds()
        pause = min(pause, self._settings.lease.total_seconds() / 5)
        if self._stopping:
            await asyncio.sleep(pause)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._stop.wait()

    def _extra(self, action: str) -> dict[str, object]:
        return {"action": action, "group": self._group}
