"""
Delivering webhooks to a local receiver, beside the same requests by the same client with no database behind them.

Payloads have 230 bytes; signatures are HMAC. What is compared with is what the sender could do if nothing had to be
remembered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from statistics import median, quantiles

from journal import Database, Notifier, connect
from projections import run
from projections.webhooks.addresses import AddressRules
from projections.webhooks.claims import Claimed, claim
from projections.webhooks.deliverer import deliver
from projections.webhooks.delivery_observer import DeliveryObserver
from projections.webhooks.encryption import PlainCipher
from projections.webhooks.endpoints import Endpoints, EndpointSettings
from projections.webhooks.fan_out import FanOut
from projections.webhooks.messages import send
from projections.webhooks.response_reading import Reply
from projections.webhooks.retry_policy import RetryPolicy
from projections.webhooks.run import run_webhooks
from projections.webhooks.sender import HttpSender
from projections.webhooks.settings import DeliverySettings
from projections.webhooks.signed_request import outgoing_of
from tests.benchmarks.harness import Contender, Goal, Line, Sizes, compare
from tests.benchmarks.idle import transactions
from tests.benchmarks.server import Server, settle
from tests.benchmarks.webhook_receiver import receiver

_IN_FLIGHT = (1, 8, 32)
_RULES = AddressRules(allow=("127.0.0.0/8",))
_DATA = {"text": "x" * 210}
_TENANT = "acme"
_PATIENCE = 600

_ANEW = """
TRUNCATE projections.webhook_deliveries, projections.webhook_events, projections.webhook_attempts,
projections.webhook_log_ids
"""
_BACKLOG = """
INSERT INTO projections.webhook_deliveries (endpoint_id, event_id, event_time, tenant, topic, state, next_at)
SELECT endpoint_id, 'backlog-' || n, clock_timestamp(), tenant, 'filler', 'pending', clock_timestamp()
FROM projections.webhook_endpoints, generate_series(1, $1) AS n
"""
_TAKEN_BACK = """
UPDATE projections.webhook_deliveries SET state = 'pending', lease_until = NULL, lease_token = NULL
WHERE state = 'leased'
"""


class _Seen(DeliveryObserver):
    """When attempts were made, and a signal once there are so many."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self._changed = asyncio.Event()

    def attempted(self, claimed: Claimed, reply: Reply, verdict: str) -> None:
        self.at[claimed.event_id] = time.perf_counter()
        self._changed.set()

    async def until(self, number: int) -> None:
        async with asyncio.timeout(_PATIENCE):
            while len(self.at) < number:
                self._changed.clear()
                await self._changed.wait()


async def _endpoint(database: Database, url: str, in_flight: int = 100) -> str:
    settings = EndpointSettings(url=url, max_in_flight=in_flight, policy=RetryPolicy(breaker_failures=100))
    endpoints = Endpoints(database, rules=_RULES, allow_http=True)
    return (await endpoints.create(_TENANT, settings)).endpoint.endpoint_id


async def _messages(database: Database, number: int) -> None:
    async with database.transaction() as session:
        for n in range(number):
            await send(session, _TENANT, "flight.landed", {"n": n, **_DATA})


def _delivering(database: Database, number: int, in_flight: int) -> Contender:
    async def measure() -> float:
        async with database.session() as session:
            await session.execute(_ANEW)
            await session.execute("DELETE FROM projections.projections WHERE name LIKE 'webhooks/%'")
        await run(database, FanOut(), until_caught_up=True)
        seen, stop = _Seen(), asyncio.Event()
        async with HttpSender(_RULES, host_limit=None) as sender:
            begun = time.perf_counter()
            settings = DeliverySettings(max_in_flight=in_flight)
            task = asyncio.create_task(deliver(database, sender, settings=settings, observer=seen, stop=stop))
            await seen.until(number)
            stop.set()
            await task  # until the last outcome is stored
            return number / (time.perf_counter() - begun)

    return measure


def _sending(claimed: Claimed, number: int, in_flight: int) -> Contender:
    async def measure() -> float:
        left = iter(range(number))

        async def one_after_the_other(sender: HttpSender) -> None:
            for _ in left:
                reply = await sender.send(outgoing_of(claimed, PlainCipher()))
                assert reply.code == "204", reply

        async with HttpSender(_RULES, host_limit=None) as sender:
            begun = time.perf_counter()
            await asyncio.gather(*(one_after_the_other(sender) for _ in range(in_flight)))
            return number / (time.perf_counter() - begun)

    return measure


async def _throughput(server: Server, sizes: Sizes) -> list[Line]:
    lines = []
    with server.database() as dsn:
        async with connect(dsn) as database, receiver() as url:
            await _endpoint(database, url)
            await _messages(database, sizes.delivered)
            await run(database, FanOut(), until_caught_up=True)
            async with database.session() as session:
                [claimed] = await claim(session, 1, timedelta(minutes=1))
            settle(dsn)
            for in_flight in _IN_FLIGHT:
                number = max(sizes.delivered // (32 // in_flight) // 2, 50)
                rounds = await compare(
                    {
                        "ours": _delivering(database, sizes.delivered, in_flight),
                        "bare requests": _sending(claimed, number, in_flight),
                    },
                    sizes.worker_rounds,
                )
                goal = Goal(1000, absolute=True) if in_flight == _IN_FLIGHT[-1] else None
                lines.append(
                    rounds.line(
                        f"webhooks, {in_flight} in flight", "deliveries/s", "ours", "bare requests", goal
                    )
                )
    return lines


async def _latency(server: Server, sizes: Sizes) -> list[Line]:
    committed: dict[str, float] = {}
    with server.database() as dsn:
        async with (
            connect(dsn) as database,
            receiver() as url,
            HttpSender(_RULES, host_limit=None) as sender,
        ):
            await _endpoint(database, url)
            seen, stop, notifier = _Seen(), asyncio.Event(), Notifier(database)
            task = asyncio.create_task(run_webhooks(database, sender, delivery_observer=seen, stop=stop))
            for n in range(sizes.latencies + 5):
                await asyncio.sleep(0.05)
                async with database.transaction() as session:
                    sent = await send(session, _TENANT, "flight.landed", {"n": n, **_DATA})
                if n >= 5:  # the first ones meet a process that begins
                    committed[str(sent.event_id)] = time.perf_counter()
                notifier.appended()
            await seen.until(sizes.latencies + 5)
            stop.set()
            await task
            await notifier.close()
    found = [max(0.0, seen.at[event_id] - at) * 1000 for event_id, at in committed.items()]
    cut = quantiles(found, n=100, method="inclusive")
    return [Line(f"webhooks, append to answered, p{p}", cut[p - 1], "ms") for p in (50, 99)]


async def _claim_ms(database: Database, rounds: int) -> float:
    found = []
    for _ in range(rounds):
        async with database.session() as session:
            begun = time.perf_counter()
            held = await claim(session, 100, timedelta(minutes=1))
            found.append(time.perf_counter() - begun)
            assert held
            await session.execute(_TAKEN_BACK)
    return median(found) * 1000


async def _backlog(server: Server, sizes: Sizes) -> list[Line]:
    """The same claim with few and with many deliveries that wait."""
    with server.database() as dsn:
        async with connect(dsn) as database:
            await _endpoint(database, "http://127.0.0.1/")
            found = []
            for size in (sizes.backlog, sizes.large_backlog):
                async with database.session() as session:
                    await session.execute(_ANEW)
                    await session.execute(_BACKLOG, size)
                settle(dsn)
                found.append(await _claim_ms(database, sizes.first_batches))
    few, many = found
    return [
        Line(
            f"webhooks, 100 claimed of {sizes.large_backlog:,}", many, "ms", f"of {sizes.backlog:,}", few, many / few,
            Goal(1.3, at_most=True),
        )
    ]  # fmt: skip


async def _idle(server: Server, sizes: Sizes) -> list[Line]:
    with server.database() as dsn:
        async with connect(dsn) as database, HttpSender(_RULES, host_limit=None) as sender:
            await _endpoint(database, "http://127.0.0.1/")
            stop = asyncio.Event()
            task = asyncio.create_task(run_webhooks(database, sender, stop=stop))
            await asyncio.sleep(sizes.idle_settle)
            before, begun = await asyncio.to_thread(transactions, dsn), time.perf_counter()
            await asyncio.sleep(sizes.idle_seconds)
            after, ended = await asyncio.to_thread(transactions, dsn), time.perf_counter()
            stop.set()
            await task
    value = max(0.0, after - before - 1) / (ended - begun)
    return [Line("webhooks, idle process", value, "queries/s", goal=Goal(20, at_most=True, absolute=True))]


_PARTS: Sequence[Callable[[Server, Sizes], Awaitable[list[Line]]]] = (_throughput, _latency, _backlog, _idle)


async def measure_webhooks(server: Server, sizes: Sizes) -> list[Line]:
    """Deliveries in a second, latency, claims behind a backlog, and what an idle process asks."""
    return [line for part in _PARTS for line in await part(server, sizes)]
