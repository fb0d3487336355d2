"""What tests of deliveries share: endpoints at servers of the test, who delivers to them, and ways to look at both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from journal import Database, PollPacing, Row
from projections import run
from projections.webhooks.addresses import AddressRules
from projections.webhooks.claims import Claimed
from projections.webhooks.deliverer import deliver
from projections.webhooks.delivery_observer import DeliveryObserver
from projections.webhooks.endpoints import Endpoints, EndpointSettings
from projections.webhooks.fan_out import FanOut
from projections.webhooks.keys import Secret
from projections.webhooks.messages import send
from projections.webhooks.retrying import RetryPolicy
from projections.webhooks.sender import HttpSender, Outgoing, Reply, Sender
from projections.webhooks.settings import DeliverySettings
from tests.fixtures.projections import QUICK, execute
from tests.fixtures.projections import settings as run_settings

LOCAL = AddressRules(allow=("127.0.0.0/8",))
TENANT = "acme"
LATER = timedelta(hours=1)
PATIENT = RetryPolicy(
    schedule=(LATER,) * 5, jitter=0, timeout=timedelta(seconds=30), disable_after_failures=None,
    disable_after=None, breaker_failures=100,
)  # fmt: skip
"""What failed comes back when the test says so (:func:`due`)."""


def settings(**values: Any) -> DeliverySettings:
    """Settings under which a test need not wait for what usually takes seconds."""
    quick: dict[str, Any] = {
        "pacing": PollPacing(timedelta(milliseconds=5), timedelta(milliseconds=20)),
        "restart": QUICK,
        "reap_every": timedelta(milliseconds=20),
        "stop_timeout": timedelta(seconds=30),
        "listen": False,
    }
    return DeliverySettings(**quick | values)


def endpoints(database: Database, **options: Any) -> Endpoints:
    return Endpoints(database, rules=LOCAL, allow_http=True, **options)


async def hook(
    database: Database, url: str, *, tenant: str = TENANT, secret: Secret | str | None = None, **asked: Any
) -> tuple[str, Secret]:
    """Make an endpoint; returns its id and its secret."""
    asked.setdefault("policy", PATIENT)
    made = await endpoints(database).create(tenant, EndpointSettings(url=url, **asked), secret)
    return made.endpoint.endpoint_id, made.secret


async def fanned_out(database: Database, *others: Any) -> None:
    """Make the deliveries of all that was sent."""
    async with asyncio.timeout(60):
        await run(database, FanOut(), *others, settings=run_settings(), until_caught_up=True)


async def sent(
    database: Database, topic: str = "flight.landed", data: Any = None, number: int = 1, **options: Any
) -> list[str]:
    """Send messages and fan them out; returns their ids."""
    async with database.transaction() as session:
        made = [
            await send(
                session, options.get("tenant", TENANT), topic, {"n": n} if data is None else data,
                **{k: v for k, v in options.items() if k != "tenant"},
            )
            for n in range(number)
        ]  # fmt: skip
    await fanned_out(database)
    return [str(one.event_id) for one in made]


class Watch(DeliveryObserver):
    """Keeps what an observer is told, and lets a test wait for it."""

    def __init__(self) -> None:
        self.attempts: list[tuple[str, str, str]] = []
        """Event, code, verdict."""
        self.gone: list[str] = []
        self.answers: list[bool] = []
        self._told = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def attempted(self, claimed: Claimed, reply: Reply, verdict: str) -> None:
        self.attempts.append((claimed.event_id, reply.code, verdict))
        self._wake()

    def lost(self, claimed: Claimed) -> None:
        self.gone.append(claimed.event_id)
        self._wake()

    def ready(self, *, ready: bool) -> None:
        if self.answers[-1:] != [ready]:
            self.answers.append(ready)
            self._wake()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(30), self._told:
            await self._told.wait_for(true)

    def _wake(self) -> None:
        task = asyncio.create_task(self._notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self) -> None:
        async with self._told:
            self._told.notify_all()


class Gate:
    """A sender that a test may hold: before it sends, or after the answer came."""

    def __init__(self, sender: Sender, *, before: bool = False, after: bool = False) -> None:
        self._sender = sender
        self.before = asyncio.Event()
        self.after = asyncio.Event()
        self.reached: asyncio.Queue[Outgoing] = asyncio.Queue()
        """What has come to a closed gate."""
        for gate, closed in ((self.before, before), (self.after, after)):
            if not closed:
                gate.set()

    async def send(self, outgoing: Outgoing) -> Reply:
        await self._pass(self.before, outgoing)
        reply = await self._sender.send(outgoing)
        await self._pass(self.after, outgoing)
        return reply

    async def aclose(self) -> None:
        await self._sender.aclose()

    async def _pass(self, gate: asyncio.Event, outgoing: Outgoing) -> None:
        if not gate.is_set():
            self.reached.put_nowait(outgoing)
            await gate.wait()


class Running:
    """A process that delivers, and how to end it."""

    def __init__(self, task: asyncio.Task[None], stop: asyncio.Event, watch: Watch) -> None:
        self.task = task
        self.watch = watch
        self._stop = stop

    def stop(self) -> asyncio.Task[None]:
        """Ask it to end; wait for what this returns."""
        self._stop.set()
        return self.task

    async def kill(self) -> None:
        """End it as SIGKILL would as far as the database can tell: nothing more is stored."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def delivering(
    database: Database, sender: Sender | None = None, **options: Any
) -> AsyncIterator[Running]:
    """Deliver for the length of the block, then stop as a user would."""
    watch, stop = options.pop("observer", None) or Watch(), asyncio.Event()
    options.setdefault("settings", settings())
    async with HttpSender(LOCAL) as own:
        task = asyncio.create_task(deliver(database, sender or own, observer=watch, stop=stop, **options))
        running = Running(task, stop, watch)
        try:
            yield running
        finally:
            stop.set()
            async with asyncio.timeout(60):
                await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            task.result()


async def finished(database: Database, number: int = 1, states: tuple[str, ...] = ("done",)) -> None:
    """Wait until so many deliveries are in one of these states."""
    await until_rows(database, f"state = ANY ('{{{','.join(states)}}}')", number)


async def until_rows(database: Database, condition: str, number: int = 1) -> None:
    query = f"SELECT count(*) >= $1 FROM projections.webhook_deliveries WHERE {condition}"
    async with asyncio.timeout(30), database.session() as session:
        while not await session.fetchval(query, number):
            await asyncio.sleep(0.002)


async def due(database: Database) -> None:
    """Let time pass: what waits for its next attempt is due, and no endpoint is left alone any more."""
    await execute(database, "UPDATE projections.webhook_circuits SET blocked_until = now()")
    await execute(
        database,
        "UPDATE projections.webhook_deliveries SET next_at = now() WHERE state = 'pending' AND next_at > now()",
    )


async def expire(database: Database) -> None:
    """Let time pass: leases are over."""
    await execute(
        database, "UPDATE projections.webhook_deliveries SET lease_until = now() WHERE state = 'leased'"
    )


async def rows(database: Database, sql: str, *args: Any) -> list[Row]:
    async with database.session() as session:
        return list(await session.fetch(sql, *args))


async def states(database: Database) -> list[str]:
    found = await rows(database, "SELECT state FROM projections.webhook_deliveries ORDER BY delivery_id")
    return [row["state"] for row in found]


async def attempts(database: Database) -> list[tuple[int, str, str]]:
    """What the log has: number, status and code of each attempt, in order."""
    found = await rows(
        database,
        "SELECT attempt_number, status, code FROM projections.webhook_attempts ORDER BY attempted_at, attempt_number",
    )
    return [(row["attempt_number"], row["status"], row["code"]) for row in found]
