"""All who lock deliveries, circuits and endpoints do so in one order: nobody is the victim of a deadlock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from itertools import count

import pytest

from journal import ConnectionSettings, Database, NotAllowed, NotFound, Session, connect
from projections.webhooks.claims import expire, reap
from projections.webhooks.deliveries import Deliveries, DeliveryFilter
from projections.webhooks.endpoints import Endpoints
from projections.webhooks.retry_policy import RetryPolicy
from tests.fixtures.journal import pid
from tests.fixtures.projections import execute, fetchval, until
from tests.fixtures.webhooks import end_all, endpoint, states, take

KEYS = [f"k{number}" for number in range(12)]
NAMES = [f"ep_{number}" for number in range(4)]
POLICY = RetryPolicy(
    schedule=(timedelta(0),) * 2, breaker_failures=50, disable_after_failures=20, disable_after=None
)
NUMBERS = count(1)
_FAN_OUT = "SELECT projections._fan_out_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
_LATER = (
    "SELECT now() + interval '1 hour' + n * interval '1 microsecond' AS at FROM generate_series(1, $1) AS n"
)
_LOOK = "SELECT endpoint_id, event_id FROM projections.webhook_deliveries ORDER BY md5(delivery_id::text || $1) LIMIT 1"

_WAITING = (
    "SELECT count(*) FROM projections.webhook_deliveries WHERE state = 'waiting' AND event_id = ANY ($1)"
)


class Hammer:
    """
    Does one thing after the other, each at random.

    Args:
        database: Where.
        seed: Of what is chosen.
    """

    def __init__(self, database: Database, seed: int) -> None:
        self._database = database
        self._random = random.Random(seed)
        self._deliveries = Deliveries(database)
        self._endpoints = Endpoints(database)
        self._waited = 0
        self._ended = 0

    @property
    def worked(self) -> bool:
        """Whether deliveries waited for others of their key, and enough of them ended."""
        return self._waited > 0 and self._ended > 50

    async def make(self, name: str) -> None:
        choose = self._random.choice
        await endpoint(
            self._database, name, policy=POLICY, max_in_flight=1000,
            ordering=choose(["none", "key", "key", "endpoint"]), on_dead=choose(["skip", "block"]),
        )  # fmt: skip

    async def fan_out(self) -> None:
        number = self._random.randint(1, 20)
        ids = [f"e{next(NUMBERS)}" for _ in range(number)]
        keys = self._random.choices(KEYS, k=number)
        pairs = [(place, name) for place in range(1, number + 1) for name in NAMES]
        async with self._database.transaction() as session:
            times = [row["at"] for row in await session.fetch(_LATER, number)]
            await session.fetchval(
                _FAN_OUT, ids, times, ["acme"] * number, ["t"] * number, keys, [None] * number, [True] * number,
                ["{}"] * number, ["{}"] * number, [place for place, _ in pairs], [name for _, name in pairs],
            )  # fmt: skip
            self._waited += await session.fetchval(_WAITING, ids)

    async def finish(self) -> None:
        claimed = await take(self._database, self._random.randint(1, 60))
        self._random.shuffle(claimed)
        for verdict in ("done", "retry", "dead"):
            some = [
                one
                for place, one in enumerate(claimed)
                if place % 3 == ("done", "retry", "dead").index(verdict)
            ]
            if some and self._random.random() < 0.9:
                await end_all(self._database, some, verdict, delay=timedelta(0))
                self._ended += len(some)

    async def lose(self) -> None:
        await execute(
            self._database,
            "UPDATE projections.webhook_deliveries SET lease_until = now() WHERE delivery_id IN ("
            "SELECT delivery_id FROM projections.webhook_deliveries WHERE state = 'leased' FOR UPDATE SKIP LOCKED)",
        )
        async with self._database.session() as session:
            await reap(session)

    async def set_state(self) -> None:
        state = self._random.choice(["active", "active", "paused", "disabled"])
        await self._endpoints.set_state(None, self._random.choice(NAMES), state)  # type: ignore[arg-type]

    async def change(self) -> None:
        await self._endpoints.rotate_secret(None, self._random.choice(NAMES), "whsec_" + "A" * 32)

    async def remove(self) -> None:
        if self._random.random() < 0.3:
            name = self._random.choice(NAMES)
            await self._endpoints.remove(None, name)
            await self.make(name)

    async def again(self) -> None:
        async for _ in self._deliveries.retry_many(DeliveryFilter(states=["dead", "done"]), step=50):
            if self._random.random() < 0.5:
                break

    async def one(self) -> None:
        async with self._database.session() as session:
            row = await session.fetchrow(_LOOK, str(self._random.random()))
        if row is not None:
            do = self._random.choice([self._deliveries.retry, self._deliveries.drop])
            await do(None, row["endpoint_id"], row["event_id"])

    async def expire(self) -> None:
        await execute(
            self._database,
            "UPDATE projections.webhook_deliveries SET expires_at = now() WHERE delivery_id IN ("
            "SELECT delivery_id FROM projections.webhook_deliveries WHERE state IN ('pending', 'waiting', 'dead') "
            "ORDER BY md5(delivery_id::text || $1) LIMIT 5 FOR UPDATE SKIP LOCKED)",
            str(self._random.random()),
        )
        async with self._database.session() as session:
            await expire(session)

    async def erase(self) -> None:
        tenant = self._random.choice([None, "acme"])
        await self._deliveries.erase(tenant, f"e{self._random.randint(1, next(NUMBERS))}")
        if self._random.random() < 0.2:
            async for _ in self._deliveries.erase_many("acme", order_key=self._random.choice(KEYS), step=50):
                pass

    async def repeat(self, do: Callable[[], Awaitable[None]], until: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until or not self.worked:
            with suppress(NotFound, NotAllowed):
                await do()


_STUCK = """
SELECT count(*) FROM projections.webhook_deliveries AS w
INNER JOIN projections.webhook_endpoints AS e USING (endpoint_id)
WHERE w.state = 'waiting' AND NOT EXISTS (
    SELECT FROM projections.webhook_deliveries AS d
    WHERE d.endpoint_id = w.endpoint_id AND d.order_key = w.order_key
    AND (d.state IN ('pending', 'leased') OR (d.state = 'dead' AND e.on_dead = 'block'))
)
"""

_ERASED_AND_THERE = """
SELECT count(*) FROM projections.webhook_events AS v
INNER JOIN projections.webhook_deliveries AS d USING (event_time, event_id)
WHERE v.erased_at IS NOT NULL
AND (v.data IS NOT NULL OR d.data IS NOT NULL OR d.state IN ('pending', 'waiting', 'dead') OR NOT d.erased)
"""
"""Deliveries of erased messages that could still be made."""


@pytest.mark.slow
async def test_nobody_is_a_victim_of_a_deadlock_and_nothing_waits_for_nobody(dsn: str) -> None:
    async with connect(dsn, ConnectionSettings(max_connections=24)) as database:
        hammer = Hammer(database, 7)
        for name in NAMES:
            await hammer.make(name)
        until = asyncio.get_running_loop().time() + 3
        async with asyncio.TaskGroup() as group:
            for do in (
                *(hammer.fan_out,) * 4, *(hammer.finish,) * 5, *(hammer.lose,) * 2, hammer.set_state, hammer.change,
                hammer.remove, *(hammer.again,) * 2, *(hammer.one,) * 3, *(hammer.expire,) * 2, *(hammer.erase,) * 2,
            ):  # fmt: skip
                group.create_task(hammer.repeat(do, until))
        assert await fetchval(database, _STUCK) == 0
        assert hammer.worked
        assert await fetchval(database, "SELECT count(*) > 0 FROM projections.webhook_attempts")
        assert await fetchval(database, _ERASED_AND_THERE) == 0
        for state in ("erased", "expired"):
            assert await fetchval(
                database, "SELECT count(*) > 0 FROM projections.webhook_deliveries WHERE state = $1", state
            )


_BLOCKED_BY = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))"


async def fan_out_all(session: Session, event_id: str, *names: str) -> None:
    """An event for endpoints, all with one key."""
    now = await session.fetchval("SELECT now() + interval '1 hour'")
    await session.fetchval(
        _FAN_OUT, [event_id], [now], ["acme"], ["t"], ["k"], [None], [True], ["{}"], ["{}"],
        [1] * len(names), list(names),
    )  # fmt: skip


async def test_what_is_made_for_an_endpoint_that_was_made_again_waits_for_nobody(dsn: str) -> None:
    """The fan-out held the order of the endpoint before: who finishes a delivery of this one does not wait for it."""
    async with connect(dsn, ConnectionSettings(max_connections=8)) as database:
        for name in ("ep_1", "ep_2"):
            await endpoint(database, name, ordering="key")
        async with database.transaction() as late:
            async with database.transaction() as second:
                await second.execute(
                    "SELECT FROM projections.webhook_circuits WHERE endpoint_id = 'ep_2' FOR UPDATE"
                )
                async with database.transaction() as first:
                    await first.execute("SELECT projections._remove_endpoint_v1(NULL, 'ep_1')")
                    task = asyncio.create_task(fan_out_all(late, "e1", "ep_1", "ep_2"))
                    await until(database, _BLOCKED_BY, await pid(first))
                await until(database, _BLOCKED_BY, await pid(second))
                await endpoint(database, "ep_1", ordering="key")
                async with database.transaction() as session:
                    await fan_out_all(session, "e0", "ep_1")
            await task
            await end_all(database, await take(database), "done")

        assert await fetchval(database, _STUCK) == 0
        assert await states(database, "ep_1") == ["done", "pending"]
