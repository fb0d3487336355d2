"""
Delivering: takes what is due, sends it, and stores what became of it; any number of processes may.

A request is made outside any transaction. Before it, its attempt is used up and its delivery leased; after it, the
outcome is stored if the lease still holds. So a process that dies loses nothing, and what it had sent may be sent
again: receivers tell by the ``webhook-id``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import datetime, timedelta

from journal import Database, DatabaseError, KeptSession, ProjectionsError
from journal.tasks import end
from projections.webhooks.ciphers import Cipher, PlainCipher
from projections.webhooks.claims import Claimed, Outcome, claim, finish, reap
from projections.webhooks.errors import InvalidSecret
from projections.webhooks.retrying import answered_at, judge
from projections.webhooks.sender import Outgoing, Reply, Sender, gzip_body
from projections.webhooks.settings import DeliverySettings
from projections.webhooks.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, parse_secret, sign

__all__ = ["CHANNEL", "DeliveryObserver", "deliver"]

log = logging.getLogger("projections")

CHANNEL = "projections_webhooks"
_FINISHED_TOGETHER = 200
"""Outcomes that are stored in one transaction."""
_PATIENCE = 10
"""Seconds that a call may take. It takes milliseconds: a connection that says nothing for so long is dead."""


class DeliveryObserver:
    """Does nothing; override what you want to see. An exception raised here is logged and otherwise ignored."""

    def ready(self, *, ready: bool) -> None:
        """The database answers, or does no longer."""

    def attempted(self, claimed: Claimed, reply: Reply, verdict: str) -> None:
        """An attempt has been made: ``done``, ``retry`` or ``dead``."""

    def lost(self, claimed: Claimed) -> None:
        """The outcome of an attempt was not stored: its lease was over, or its endpoint is gone."""


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
    Deliver until stopped. A database that goes away is waited for.

    Args:
        database: Where deliveries are; needs three connections.
        sender: Makes requests, such as :class:`HttpSender`. It stays open.
        cipher: How secrets of endpoints are kept.
        settings: How.
        observer: Is told what happens.
        stop: Ends it when set: requests on their way are waited for, and what takes longer is given back.
    """
    worker = _Deliverer(
        database,
        sender,
        cipher or PlainCipher(),
        settings or DeliverySettings(),
        observer or DeliveryObserver(),
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
        self._observer = observer
        self._session = KeptSession(database.session)
        self._in_flight: dict[asyncio.Task[None], Claimed] = {}
        self._woken = asyncio.Event()
        self._room = asyncio.Event()
        self._ending = asyncio.Event()
        # What is finished makes room at its endpoint, and lets the next of its order go.
        self._outcomes = _Outcomes(database, settings, observer, self._woken.set)
        self._failures = 0

    async def run(self, stop: asyncio.Event) -> None:
        async with AsyncExitStack() as stack:
            if self._settings.listen:
                await stack.enter_async_context(self._database.listen(CHANNEL, self._woken.set))
            stack.push_async_callback(self._give_session_back)
            storing = asyncio.create_task(self._outcomes.keep_storing(), name="webhook outcomes")
            stack.push_async_callback(end, storing)
            reaping = asyncio.create_task(self._keep_reaping(), name="webhook leases")
            stack.push_async_callback(end, reaping)
            stopping = asyncio.create_task(stop.wait())
            stack.push_async_callback(end, stopping)
            claiming = asyncio.create_task(self._keep_claiming(), name="webhook claims")
            working = (claiming, storing, reaping)
            try:
                await asyncio.wait({stopping, *working}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await self._end_claiming(claiming)
                await self._drain(storing)
            for task in working:  # an error of this program ends all
                if task.done() and not task.cancelled():
                    task.result()

    async def _give_session_back(self) -> None:
        with suppress(TimeoutError):  # it may be cut from the server, and nobody says so
            async with asyncio.timeout(_PATIENCE):
                await self._session.close()

    async def _keep_claiming(self) -> None:
        pause = shortest = self._settings.pacing.shortest.total_seconds()
        while not self._ending.is_set():
            free = self._settings.max_in_flight - len(self._in_flight)
            if free == 0:
                self._room.clear()
                await self._room.wait()
                continue
            self._woken.clear()
            found = await self._claim(min(free, self._settings.claim_size))
            for claimed in found:
                self._begin(claimed)
            if found:
                pause = shortest
                continue
            try:
                await asyncio.wait_for(self._woken.wait(), pause)
                pause = shortest
            except TimeoutError:
                pause = min(pause * 2, self._settings.pacing.longest.total_seconds())

    async def _end_claiming(self, claiming: asyncio.Task[None]) -> None:
        """Let a claim that is being made end: those that it has taken would wait for the end of their leases."""
        self._ending.set()
        self._woken.set()
        self._room.set()
        await asyncio.wait([claiming], timeout=2 * _PATIENCE)
        await end(claiming)

    def _begin(self, claimed: Claimed) -> None:
        if self._ending.is_set():
            self._release(claimed)
            return
        task = asyncio.create_task(self._attempt(claimed))
        self._in_flight[task] = claimed
        task.add_done_callback(self._ended)

    def _release(self, claimed: Claimed) -> None:
        self._outcomes.add(claimed, Outcome(claimed.delivery_id, claimed.lease_token, "release"))

    async def _claim(self, limit: int) -> list[Claimed]:
        try:
            async with asyncio.timeout(_PATIENCE):
                found = await claim(await self._session.get(), limit, self._settings.margin)
        except (ProjectionsError, TimeoutError) as error:
            await self._session.close()
            self._failures += 1
            _tell(self._observer.ready, ready=False)
            log.warning("webhooks wait: %s", str(error) or "no answer", extra={"action": "webhooks_wait"})
            with suppress(TimeoutError):
                pause = self._settings.restart.delay(self._failures).total_seconds()
                await asyncio.wait_for(self._ending.wait(), pause)
            return []
        self._failures = 0
        _tell(self._observer.ready, ready=True)
        return found

    async def _attempt(self, claimed: Claimed) -> None:
        reply = await self._send(claimed)
        now = answered_at(reply.date, claimed.claimed_at + reply.took)
        verdict = judge(
            reply.code, reply.retry_after, claimed.attempt, claimed.policy,
            eligible_for_retry=claimed.eligible_for_retry and reply.code not in _HOPELESS,
            random=random.random, now=now,
        )  # fmt: skip
        _tell(self._observer.attempted, claimed, reply, verdict.state)
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
                "event %s can not be sent to endpoint %s: %s", claimed.event_id, claimed.endpoint_id, error,
                extra={"action": "webhook_unsendable", "endpoint": claimed.endpoint_id},
            )  # fmt: skip
            return _not_sent("unsendable", "")
        return await self._sender.send(outgoing)

    def _ended(self, task: asyncio.Task[None]) -> None:
        claimed = self._in_flight.pop(task)
        self._room.set()
        if task.cancelled():
            self._release(claimed)
        elif (error := task.exception()) is not None:
            log.error(
                "an attempt at event %s ended in an error of this program", claimed.event_id,
                exc_info=error, extra={"action": "attempt_failed"},
            )  # fmt: skip

    async def _drain(self, storing: asyncio.Task[None]) -> None:
        """Wait for requests on their way, give back those that take too long, and store what became of all."""
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=self._settings.stop_timeout.total_seconds())
        await end(*self._in_flight)
        await self._outcomes.flush(storing)

    async def _keep_reaping(self) -> None:
        while True:
            await asyncio.sleep(self._settings.reap_every.total_seconds())
            try:
                async with asyncio.timeout(_PATIENCE), self._database.session() as session:
                    if lost := await reap(session):
                        log.warning(
                            "took back %d attempts whose process was lost",
                            lost,
                            extra={"action": "webhooks_reaped"},
                        )
            except (ProjectionsError, TimeoutError) as error:
                log.warning("webhooks: %s", str(error) or "no answer", extra={"action": "webhooks_wait"})


def _tell(told: Callable[..., None], *args: object, **options: object) -> None:
    try:
        told(*args, **options)
    except Exception:
        log.exception("an observer of deliveries failed", extra={"action": "observer_failed"})


_HOPELESS = frozenset({"event_gone"})


def _not_sent(code: str, body: str) -> Reply:
    return Reply(code, None, None, None, body, truncated=False, took=timedelta(0))


class _Outcomes:
    """Stores outcomes, those that come together in one transaction, until the database has them."""

    def __init__(
        self,
        database: Database,
        settings: DeliverySettings,
        observer: DeliveryObserver,
        stored: Callable[[], None],
    ) -> None:
        self._database = database
        self._settings = settings
        self._observer = observer
        self._stored = stored
        self._waiting: list[tuple[Claimed, Outcome]] = []
        self._storing: list[tuple[Claimed, Outcome]] = []
        self._some = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, claimed: Claimed, outcome: Outcome) -> None:
        self._waiting.append((claimed, outcome))
        self._empty.clear()
        self._some.set()

    async def flush(self, storing: asyncio.Task[None]) -> None:
        """Wait until all are stored, for as long as their leases may last; not if nobody stores any more."""
        empty = asyncio.create_task(self._empty.wait())
        await asyncio.wait(
            {empty, storing},
            timeout=self._settings.stop_timeout.total_seconds(),
            return_when=asyncio.FIRST_COMPLETED,
        )
        await end(empty)
        if not self._empty.is_set():
            log.warning(
                "%d outcomes of webhooks were not stored: their deliveries come back when their leases are over",
                len(self._waiting) + len(self._storing), extra={"action": "outcomes_lost"},
            )  # fmt: skip

    async def keep_storing(self) -> None:
        while True:
            await self._some.wait()
            self._storing = self._waiting[:_FINISHED_TOGETHER]
            del self._waiting[:_FINISHED_TOGETHER]
            if not self._storing:
                self._some.clear()
                self._empty.set()
                continue
            held = await self._store([outcome for _, outcome in self._storing])
            for claimed, _ in self._storing:
                if claimed.delivery_id not in held:
                    _tell(self._observer.lost, claimed)
            self._storing = []
            self._stored()

    async def _store(self, outcomes: Sequence[Outcome]) -> set[int]:
        failures = 0
        loop = asyncio.get_running_loop()
        # Later, the leases are over: the deliveries have gone to others.
        until = loop.time() + self._settings.margin.total_seconds()
        while True:
            try:
                async with asyncio.timeout(_PATIENCE):
                    return await finish(self._database, outcomes)
            except (DatabaseError, TimeoutError) as error:
                if _is_about_values(error):
                    return await self._store_each(outcomes, error)
                failures += 1
                pause = self._settings.restart.delay(failures).total_seconds()
                if loop.time() + pause > until:
                    return set()
                log.warning(
                    "outcomes of webhooks wait: %s",
                    str(error) or "no answer",
                    extra={"action": "webhooks_wait"},
                )
                await asyncio.sleep(pause)

    async def _store_each(self, outcomes: Sequence[Outcome], error: Exception) -> set[int]:
        """One that can not be stored keeps none of the others from it; its delivery comes back."""
        if len(outcomes) == 1:
            log.error(
                "the outcome of delivery %d can not be stored: %s", outcomes[0].delivery_id, error,
                extra={"action": "outcome_refused"},
            )  # fmt: skip
            return set()
        return {held for outcome in outcomes for held in await self._store([outcome])}


def _is_about_values(error: Exception) -> bool:
    """Whether the database refuses what it was given: class 22 of SQLSTATE, and the driver what it can not encode."""
    return isinstance(error, DatabaseError) and (error.sqlstate or "").startswith("22")


def outgoing_of(claimed: Claimed, cipher: Cipher) -> Outgoing:
    """
    The request of an attempt: its body, signed with all secrets of the endpoint.

    Raises:
        InvalidSecret: The cipher is not the one that secrets were kept with.
    """
    body = body_of(claimed.topic, claimed.event_time, claimed.data or "null")
    signed_at = int(claimed.claimed_at.timestamp())
    keys = [parse_secret(cipher.decrypt(stored)) for stored in claimed.secrets]
    headers = {
        **claimed.headers,
        "content-type": "application/json",
        ID_HEADER: claimed.event_id,
        TIMESTAMP_HEADER: str(signed_at),
        SIGNATURE_HEADER: sign(keys, claimed.event_id, signed_at, body),
    }
    if claimed.gzip:
        headers["content-encoding"] = "gzip"
        body = gzip_body(body)
    return Outgoing(claimed.url, tuple(headers.items()), body, claimed.policy.timeout)


def body_of(topic: str, event_time: datetime, data: str) -> bytes:
    """What is sent: the same bytes on every attempt, with the data as it was written."""
    kind, at = json.dumps(topic), json.dumps(event_time.isoformat())
    return f'{{"type":{kind},"timestamp":{at},"data":{data}}}'.encode()
