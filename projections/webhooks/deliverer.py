"""
Delivering: takes what is due, sends it, and stores its outcome; any number of processes may.

A request is made outside any transaction. Before it, its attempt is used up and its delivery leased; after it, the
outcome is stored if the lease still holds. So a process that dies loses nothing, and what it had sent may be sent
again: receivers tell by the ``webhook-id``.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import AsyncExitStack
from datetime import timedelta

from journal import Database, KeptSession, OwnedSession, ProjectionsError
from journal.service import AT_ONCE, WHEN_WOKEN, Pace, Service, log_failure
from journal.tasks import end, raise_errors, running
from projections.running import PageLimit
from projections.webhooks.claims import Claimed, Outcome, Room, claim, expire, reap, show_alive
from projections.webhooks.compression import Compression
from projections.webhooks.delivery_observer import CombinedDeliveryObserver, DeliveryObserver
from projections.webhooks.encryption import Cipher, PlainCipher
from projections.webhooks.errors import InvalidSecret
from projections.webhooks.in_flight import InFlight, Shortage
from projections.webhooks.outcome_store import Outcomes
from projections.webhooks.response_reading import Reply
from projections.webhooks.retry_policy import answered_at, judge
from projections.webhooks.sender import NotSentError, Sender
from projections.webhooks.settings import DeliverySettings
from projections.webhooks.signed_request import outgoing_of

log = logging.getLogger("projections")

_CHANNEL = "projections_webhooks"


async def deliver(
    database: Database,
    sender: Sender,
    *,
    cipher: Cipher | None = None,
    settings: DeliverySettings | None = None,
    observer: DeliveryObserver | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """
    Deliver until ``stop`` is set. A database that goes away is waited for; three connections are needed.

    The sender stays open. At the stop, requests on their way are waited for, and what takes longer is given back.
    """
    worker = _Deliverer(
        database,
        sender,
        cipher or PlainCipher(),
        settings or DeliverySettings(),
        CombinedDeliveryObserver(
            [observer or DeliveryObserver()]
        ),  # which keeps its mistakes away from the work
    )
    await worker.run(stop or asyncio.Event())


class _Deliverer:
    def __init__(
        self,
        database: Database,
        sender: Sender,
        cipher: Cipher,
        settings: DeliverySettings,
        observer: DeliveryObserver,
    ) -> None:
        self._database = database
        self._sender = sender
        self._cipher = cipher
        self._settings = settings
        self._patience = settings.patience.total_seconds()
        self._observer = observer
        self._session = KeptSession(database.session)
        self._in_flight = InFlight()
        self._pages = PageLimit(settings.max_bytes)
        self._claiming = Service(
            "webhooks wait", self._claim_more, restart=settings.restart.delay, failed=self._failed
        )
        self._pace = Pace(settings.pacing.shortest, settings.pacing.longest)
        self._is_full = False
        # What is finished makes room at its endpoint, and lets the next of its order go.
        self._outcomes = Outcomes(database, settings, observer, stored=self._claiming.wake)
        self._reap_at = 0.0
        self._expiring = False
        self._shortage = Shortage(settings.restart)
        self._compression = Compression()

    async def run(self, stop: asyncio.Event) -> None:
        async with AsyncExitStack() as stack:
            if self._settings.listen:
                await stack.enter_async_context(self._database.listen(_CHANNEL, self._heard))
            stack.push_async_callback(self._session.close_within, self._patience)
            tasks = await stack.enter_async_context(
                running(self._claiming.run(), self._outcomes.run(), stop.wait())
            )
            claiming, storing, *_ = tasks
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await self._end_claiming(claiming)
                await self._drain(storing)
            raise_errors(tasks)  # an error of this program ends all

    def _heard(self) -> None:
        """Also when listening begins: behind a pooler it never does."""
        self._pace.longest = 2 * self._settings.pacing.longest.total_seconds()
        self._claiming.wake()

    async def _claim_more(self) -> float:
        if self._claiming.woken:
            self._pace.quicken()
        await self._shortage.over(self._claiming.stopping)
        free = self._settings.max_in_flight - len(self._in_flight)
        self._is_full = free == 0 or self._free_bytes <= 0
        if self._is_full:
            return WHEN_WOKEN
        found = await self._claim(min(free, self._settings.claim_size))
        for claimed in found:
            self._begin(claimed)
        if found or self._expiring:
            self._pace.quicken()
            return AT_ONCE
        return self._pace.slow_down()

    @property
    def _free_bytes(self) -> int:
        return self._pages.bytes - self._in_flight.bytes

    def _left(self) -> Room:
        """What there is for others: a tenant that hangs holds no more than its share."""
        free = self._settings.max_in_flight - len(self._in_flight)
        share, verified_only = self._settings.tenant_share, self._settings.verified_only
        return Room(free, self._free_bytes, share, self._in_flight.held, verified_only)

    async def _end_claiming(self, claiming: asyncio.Task[None]) -> None:
        """Let a claim that is being made end: those that it has taken would wait for the end of their leases."""
        self._claiming.stop()
        await asyncio.wait([claiming], timeout=2 * self._patience)
        await end(claiming)

    def _begin(self, claimed: Claimed) -> None:
        if self._claiming.stopping.is_set():
            self._release(claimed)
            return
        task = asyncio.create_task(self._attempt(claimed))
        self._in_flight.add(task, claimed)
        task.add_done_callback(self._ended)

    def _release(self, claimed: Claimed, delay: timedelta | None = None) -> None:
        self._outcomes.add(claimed, Outcome(claimed.delivery_id, claimed.lease_token, "release", delay))

    async def _claim(self, limit: int) -> list[Claimed]:
        async with asyncio.timeout(self._patience), self._session.use() as session:
            await self._reap(session)
            found = await claim(session, limit, self._settings.margin, self._left())
        self._observer.ready(ready=True)
        return found

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, ProjectionsError | TimeoutError | MemoryError):
            raise error
        self._pages.failed(error)
        self._observer.ready(ready=False)
        log_failure("webhooks wait", error, action="webhooks_wait")

    async def _reap(self, session: OwnedSession) -> None:
        """Take back, now and then, what processes had that died, and end what has expired."""
        now = asyncio.get_running_loop().time()
        if now >= self._reap_at:
            self._reap_at = now + self._settings.reap_every.total_seconds()
            await show_alive(session, self._settings.reap_every)
            for _ in range(_EXPIRING):
                self._expiring = await expire(session)
                if not self._expiring:
                    break
            else:
                self._reap_at = now
            if lost := await reap(session):
                log.warning(
                    "took back %d attempts whose process was lost", lost, extra={"action": "webhooks_reaped"}
                )

    async def _attempt(self, claimed: Claimed) -> None:
        try:
            reply = await self._send(claimed)
        except NotSentError as error:
            self._shortage.met(error)
            self._release(claimed, error.delay)
            return
        self._shortage.passed()
        now = answered_at(reply.date, claimed.claimed_at + reply.took)
        verdict = judge(
            reply.code, reply.retry_after, claimed.attempt, claimed.policy,
            eligible_for_retry=claimed.eligible_for_retry and reply.code not in _HOPELESS,
            random=random.random, now=now,
        )  # fmt: skip
        self._observer.attempted(claimed, reply, verdict.state)
        outcome = Outcome(
            claimed.delivery_id, claimed.lease_token, verdict.state, verdict.delay, verdict.pause,
            verdict.disable, reply.code, reply.body, reply.took,
        )  # fmt: skip
        self._outcomes.add(claimed, outcome)

    async def _send(self, claimed: Claimed) -> Reply:
        if claimed.data is None:
            return _not_sent("event_gone", "the log no longer keeps the payload")
        try:
            outgoing = outgoing_of(claimed, self._cipher)
        except (InvalidSecret, ValueError) as error:
            log.error(  # noqa: TRY400 - the trace could hold what it was about
                "event %s cannot be sent to endpoint %s: %s", claimed.event_id, claimed.endpoint_id, error,
                extra={"action": "webhook_unsendable", "endpoint": claimed.endpoint_id},
            )  # fmt: skip
            return _not_sent("unsendable", "")
        except MemoryError as error:
            self._pages.failed(error)
            raise NotSentError("no memory is left", _LATER, everywhere=True) from None
        if claimed.gzip:
            outgoing = await self._compression.compressed(outgoing)
        return await self._sender.send(outgoing)

    def _ended(self, task: asyncio.Task[None]) -> None:
        claimed = self._in_flight.remove(task)
        if self._is_full:
            self._claiming.wake()
        if task.cancelled():
            self._release(claimed)
        elif (error := task.exception()) is not None:
            log.error(
                "an attempt at event %s ended in an error of this program", claimed.event_id,
                exc_info=error, extra={"action": "attempt_failed"},
            )  # fmt: skip

    async def _drain(self, storing: asyncio.Task[None]) -> None:
        """Wait for requests on their way, give back those that take too long, and store the outcome of all."""
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=self._settings.grace.total_seconds())
        await end(*self._in_flight)
        await self._compression.aclose()
        self._outcomes.stop()
        await asyncio.wait([storing])


_LATER = timedelta(seconds=2)
_EXPIRING = 10
"""Times that it looks for more, before it claims again: claims end what has expired, too, but only the first of it."""
_HOPELESS = frozenset({"event_gone"})


def _not_sent(code: str, body: str) -> Reply:
    return Reply(code, None, None, None, body, truncated=False, took=timedelta(0))
