"""
Reading for a group: one connection for all that is read and stored, whatever the number of handlers and ranges.

A single loop talks to the database: it keeps the lease and failed batches, moves cursors and reads ahead. Handlers run
alongside it, and wake it when they are done. Nothing depends on the connection: each statement stands for itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from journal import Database, DatabaseError, DatabaseWentBack, NotFound, OtherSchemaVersion, ProjectionsError
from journal.database import Fault, fault_of
from journal.schema import check_version
from journal.service import AT_ONCE, Pace, Service, log_failure
from offsets import RangeLost
from projections.errors import representation
from projections.running import PageLimit
from projections.subscriptions import groups, reading
from projections.subscriptions.dead_letters import encode_batch, fail_batch
from projections.subscriptions.errors import InvalidCursor
from projections.subscriptions.group_handler import HandlerSubscription
from projections.subscriptions.group_member import GroupMember
from projections.subscriptions.groups import GroupRange
from projections.subscriptions.range_reader import HeldRanges, RangeReader
from projections.subscriptions.reading import MatchPlace
from projections.subscriptions.redelivery import Redelivery
from projections.subscriptions.settings import ConsumerSettings
from projections.subscriptions.settled_matches import Settled
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
        self._ask = GroupMember(database, group, owner, settings.lease)
        self._handlers: Mapping[str, HandlerSubscription] = {}
        self._subscribed = False
        self._service = Service(
            f"group {group}", self._step, restart=self._restart, failed=self._failed,
            goes_on=lambda: not self._stopping or bool(self._ranges or self._redelivery.running),
            grace=settings.grace.total_seconds(),
        )  # fmt: skip
        changed = self._service.wake
        self._ranges = HeldRanges(group, settings, changed)
        self._redelivery = Redelivery(self._ask, group, settings.retries_every, changed)
        self._pace = Pace(settings.pacing.shortest, settings.pacing.longest)
        self._settled = Settled(database, settings.pacing.longest.total_seconds(), changed)
        self._pages = PageLimit(settings.page_bytes)
        now = asyncio.get_running_loop().time()
        self._alive_at = now
        self._beat_at = now
        self._keep_at = now + settings.keep_every.total_seconds()

    async def run(self, stop: asyncio.Event) -> None:
        """Read until it is asked to stop; then finish what was begun, give back the ranges, and leave."""
        await self._subscribe_handlers()
        try:
            with self._settled.hearing():
                ended = await self._service.run(stop)
            if not ended:
                log.warning(
                    "group %s: handlers did not end within %.1f s: they are cancelled, and what they had comes again",
                    self._group, self._settings.grace.total_seconds(), extra=self._extra("stop_timeout"),
                )  # fmt: skip
        finally:
            await self._leave()

    @property
    def _stopping(self) -> bool:
        return self._service.stopping.is_set()

    async def _subscribe_handlers(self) -> None:
        self._handlers = await self._subscribe()
        self._redelivery.handlers = {name: one.handler for name, one in self._handlers.items()}
        self._subscribed = True

    @property
    def _numbers(self) -> list[int]:
        """Of the handlers."""
        return [one.handler_id for one in self._handlers.values()]

    async def _leave(self) -> None:
        await self._ranges.leave([asyncio.create_task(self._redelivery.close())], _GOODBYE)
        with suppress(ProjectionsError, TimeoutError):
            async with asyncio.timeout(_GOODBYE):
                await self._ask.leave()
        await self._ask.close()

    async def _step(self) -> float:
        """Do all that is to be done; the pause between questions grows while the answer is nothing."""
        if not self._service.woken:
            self._pace.slow_down()
        for reader in self._ranges if self._stopping else ():
            reader.give_up()
        try:
            busy = await self._turn()
        except BaseException:
            await self._ask.close()
            raise
        return AT_ONCE if busy else self._pace.pause

    def _failed(self, error: Exception) -> None:
        if isinstance(error, OtherSchemaVersion):
            raise error
        log_failure(f"group {self._group}", error, **self._extra("reading_failed"))
        self._ranges.look_again()
        self._look_at_lease()

    def _restart(self, failures: int) -> timedelta:
        """Whatever handlers do meanwhile, what does not answer is not asked all the time."""
        return min(self._settings.restart.delay(failures), self._settings.lease / 5)

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
        except (NotFound, DatabaseWentBack) as error:
            await self._start_over(str(error))
            return
        self._alive_at = sent_at
        self._beat_at = sent_at + self._settings.heartbeat.total_seconds()
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
        self._service.wake()

    async def _told(self, ranges: list[GroupRange]) -> None:
        now = {one.key: one for one in ranges}
        for reader in self._ranges:
            one = now.get(reader.held.key)
            if one is None or one.epoch != reader.held.epoch:
                self._lose(reader, "another has it, or the group was cut again")
            else:
                reader.read_for_all_but(one.apart)  # the answer to joining may have been lost
                if one.cursor != reader.stored or not self._settled.is_current:
                    reader.looked_until = -1  # reading again says whether what was read is still there
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
                own.is_idle(self._settled.until)
                and together.is_idle(self._settled.until)
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
            attempts, delay = handler.after(0, await self._ask.blame(part.error))
            await self._ask(
                fail_batch, self._group, handler.name, encode_batch(part.events),
                attempts=attempts, error=representation(part.error), delay=delay, held=reader.held, page=part.page,
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

    async def _look(self) -> bool:
        """Ask what is settled; returns whether all that is remembered still holds."""
        before = self._settled.until
        if not self._settled.looked(await self._ask(reading.look)):
            self._beat_at = self._keep_at = 0.0  # all that is remembered is looked at before anything else
            return False
        if self._settled.until != before:
            self._pace.quicken()
        return True

    async def _read(self) -> bool:
        """Read a page of each range that has room; returns whether there is more."""
        open_ranges = [reader for reader in self._ranges if reader.has_room]
        if not open_ranges:
            return False
        if not self._settled.is_current and not await self._look():
            return True
        settled = self._settled.until
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

    def _extra(self, action: str) -> dict[str, object]:
        return {"action": action, "group": self._group}
