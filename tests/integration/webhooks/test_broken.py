"""What once broke webhooks: limits of any size, a clock set back, pauses forgotten, endpoints blamed for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from journal import Database, DatabaseError, Event, EventEnvelope, append
from projections import run
from projections.interests.filters import parse_filter
from projections.webhooks.claims import reap
from projections.webhooks.deliverer import deliver
from projections.webhooks.errors import InvalidMessage
from projections.webhooks.fan_out import FanOut
from projections.webhooks.messages import Message, message_of, send
from projections.webhooks.outgoing import Outgoing
from projections.webhooks.response_reading import Reply
from projections.webhooks.retry_policy import RetryPolicy
from projections.webhooks.settings import DeliverySettings
from tests.fixtures.projections import running, until
from tests.fixtures.projections import settings as run_settings
from tests.fixtures.webhooks import deliver_events, end_all, endpoint, states, take

HOUR = timedelta(hours=1)
_MANY = """
WITH made AS (
    INSERT INTO projections.webhook_endpoints (endpoint_id, tenant, url, policy)
    SELECT 'ep_' || md5(n::text), e.tenant, e.url, e.policy
    FROM projections.webhook_endpoints AS e CROSS JOIN generate_series(1, 20000) AS n
    RETURNING endpoint_id
)
INSERT INTO projections.webhook_deliveries (endpoint_id, event_id, event_time, tenant, topic, state, next_at)
SELECT endpoint_id, 'later', now(), 'acme', 't', 'pending', now() + interval '1 day' FROM made
"""
"""Endpoints that will be tried again tomorrow."""
_MINUTES_AGO = """
WITH e AS (UPDATE projections.events SET db_timestamp = db_timestamp - interval '5 minutes'),
s AS (UPDATE projections.sources SET db_timestamp = db_timestamp - interval '5 minutes')
UPDATE projections.webhook_endpoints SET created_at = created_at - interval '10 minutes'
"""
_ALL_DONE = "SELECT bool_and(state = 'done') FROM projections.webhook_deliveries WHERE endpoint_id = $1"


async def circuit(database: Database, endpoint_id: str, what: str) -> Any:
    async with database.session() as session:
        return await session.fetchval(
            f"SELECT {what} FROM projections.webhook_circuits WHERE endpoint_id = $1", endpoint_id
        )


async def set_clock_back(database: Database, endpoint_id: str, hours: int) -> None:
    """As if its rate limit had last been looked at by a clock that was ahead."""
    async with database.session() as session:
        await session.fetchval(
            "UPDATE projections.webhook_circuits SET tokens = 1, refilled_at = now() + make_interval(hours => $2) "
            "WHERE endpoint_id = $1 RETURNING 1",
            endpoint_id, hours,
        )  # fmt: skip


class TestLimitsOfAnySize:
    @pytest.mark.slow
    @pytest.mark.parametrize("most", [30_000_000, 2**31, 10**18])
    async def test_outcomes_are_stored_however_many_failures_may_be(
        self, database: Database, most: int
    ) -> None:
        policy = RetryPolicy(disable_after_failures=most, breaker_failures=most)
        here = await endpoint(database, "here", policy=policy)
        await deliver_events(database, here, 2)
        one, other = await take(database)
        assert await end_all(database, [one], "dead") == {one.delivery_id}
        assert await end_all(database, [other], "done") == {other.delivery_id}
        assert sorted(await states(database, here)) == ["dead", "done"]

    async def test_outcomes_are_stored_however_long_it_may_fail(self, database: Database) -> None:
        here = await endpoint(database, "here", policy=RetryPolicy(disable_after=timedelta.max))
        await deliver_events(database, here)
        claimed = await take(database)
        assert await end_all(database, claimed, "dead") == {claimed[0].delivery_id}

    async def test_a_message_whose_order_key_no_index_can_hold_is_refused(self, database: Database) -> None:
        async with database.transaction() as session:
            with pytest.raises(InvalidMessage, match="order_key has 1 to 1000 bytes"):
                await send(session, "acme", "t", 1, order_key="é" * 501)
            await send(session, "acme", "t", 1, order_key="é" * 500)

    async def test_a_rate_limit_that_can_not_be_reckoned_with_is_refused(self, database: Database) -> None:
        with pytest.raises(DatabaseError, match="rate_limit_is_positive"):
            await endpoint(database, "here", rate_limit=5e-324)


class TestClock:
    async def test_set_back_it_keeps_no_endpoint_waiting(self, database: Database) -> None:
        here = await endpoint(database, "here", rate_limit=1)
        await deliver_events(database, here)
        await set_clock_back(database, here, hours=1)
        assert len(await take(database)) == 1

    async def test_set_back_far_it_stops_no_other_endpoint(self, database: Database) -> None:
        fast = await endpoint(database, "fast", rate_limit=100_000)
        other = await endpoint(database, "other")
        await deliver_events(database, fast)
        await deliver_events(database, other)
        await set_clock_back(database, fast, hours=24)
        assert {each.endpoint_id for each in await take(database)} == {fast, other}


class TestManyEndpoints:
    @pytest.mark.slow
    async def test_what_is_due_is_found_at_once_among_many_that_wait(self, database: Database) -> None:
        here = await endpoint(database, "here")
        async with database.session() as session:
            await session.execute(_MANY)
        assert await take(database) == []
        await deliver_events(database, here)
        assert len(await take(database)) == 1

    async def test_one_that_is_due_for_longer_takes_no_places_of_others(self, database: Database) -> None:
        slow, other = await endpoint(database, "slow", max_in_flight=1000), await endpoint(database, "other")
        await deliver_events(database, slow, 300)
        await deliver_events(database, other, 3)
        claimed = [each.endpoint_id for each in await take(database, limit=6)]
        assert sorted(claimed) == [other] * 3 + [slow] * 3


class TestForgetting:
    @pytest.mark.slow
    async def test_what_a_parked_source_waits_at_is_delivered_however_late_somebody_decides(
        self, database: Database
    ) -> None:
        fails = True

        def message(envelope: EventEnvelope) -> Message | None:
            if fails:
                raise ValueError
            return message_of(envelope)

        here = await endpoint(database, "here")
        async with database.transaction() as session:
            await append(session, [Event("s", 1, "plane", "Landed", 1, metadata={"tenant": "acme"})])
        await run(database, FanOut("plane", message), settings=run_settings(), until_caught_up=True)
        async with database.session() as session:
            await session.execute(
                "UPDATE projections.projection_ranges SET horizon = now() + interval '1 day'"
            )
            await session.execute(
                "UPDATE projections.partition_settings SET retention = '1 minute' WHERE table_name = 'webhook_events'"
            )
            await session.execute(_MINUTES_AGO)
            await session.fetchval("SELECT projections._forget_deliveries_v1()")
            await session.execute("UPDATE projections.parked_sources SET decision = 'retry'")
        fails = False
        async with running(database, FanOut("plane", message), settings=run_settings()):
            await until(database, "SELECT EXISTS (SELECT FROM projections.webhook_deliveries)")
        assert await states(database, here) == ["pending"]


class TestPause:
    async def test_a_success_of_what_was_on_its_way_does_not_end_what_retry_after_asked_for(
        self, database: Database
    ) -> None:
        here = await endpoint(database, "here")
        await deliver_events(database, here, 2)
        one, other = await take(database)
        await end_all(database, [one], "retry", code="429", delay=HOUR, pause=HOUR)
        await end_all(database, [other], "done")
        assert await circuit(database, here, "blocked_until > now() + interval '59 minutes'")


class TestBlame:
    @pytest.mark.slow
    @pytest.mark.parametrize(("code", "verdict"), [("unsendable", "retry"), ("event_gone", "dead")])
    async def test_an_endpoint_is_not_disabled_for_what_was_never_sent(
        self, database: Database, code: str, verdict: str
    ) -> None:
        here = await endpoint(
            database, "here", policy=RetryPolicy(disable_after_failures=1, breaker_failures=1)
        )
        await deliver_events(database, here)
        await end_all(database, await take(database), verdict, code=code, delay=HOUR)
        assert await circuit(database, here, "failures") == 0
        async with database.session() as session:
            state = await session.fetchval("SELECT state FROM projections.webhook_endpoints")
        assert state == "active"


@asynccontextmanager
async def held(database: Database, endpoint_id: str) -> AsyncIterator[None]:
    """As by who removes an endpoint with very many deliveries."""
    async with database.transaction() as session:
        await session.fetchval(
            "SELECT 1 FROM projections.webhook_circuits WHERE endpoint_id = $1 FOR UPDATE", endpoint_id
        )
        yield


class Answers:
    """Answers at once, and says when it has been asked so often."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def send(self, _: Outgoing) -> Reply:
        self._left -= 1
        if not self._left:
            self.asked.set()
        await self.go.wait()
        return Reply("204", 204, None, None, "", truncated=False, took=timedelta(0))

    async def aclose(self) -> None:
        """Nothing is open."""


class TestHeldEndpoint:
    @pytest.mark.slow
    async def test_it_keeps_lost_attempts_at_others_from_nobody(self, database: Database) -> None:
        here, other = await endpoint(database, "here"), await endpoint(database, "other")
        await deliver_events(database, here)
        await deliver_events(database, other)
        await take(database)
        async with database.session() as session:
            await session.execute("UPDATE projections.webhook_deliveries SET lease_until = now()")
        async with held(database, here), database.session() as session:
            assert await reap(session) == 1
        assert await states(database, here) == ["leased"]
        assert await states(database, other) == ["pending"]

    @pytest.mark.slow
    async def test_it_keeps_outcomes_of_others_from_being_stored_for_a_moment_alone(
        self, database: Database
    ) -> None:
        here, other = await endpoint(database, "here"), await endpoint(database, "other")
        await deliver_events(database, here, 2)
        await deliver_events(database, other, 2)
        answers, stop = Answers(4), asyncio.Event()
        settings = DeliverySettings(listen=False, margin=timedelta(minutes=5))
        delivering = asyncio.create_task(deliver(database, answers, settings=settings, stop=stop))
        await answers.asked.wait()
        async with held(database, here):
            answers.go.set()
            await until(database, _ALL_DONE, other)
            assert await states(database, here) == ["leased", "leased"]
        await until(database, _ALL_DONE, here)
        stop.set()
        await delivering


class TestTenants:
    async def test_ids_of_one_are_not_those_of_another_whatever_is_in_them(self, database: Database) -> None:
        async with database.transaction() as session:
            one = await send(session, "a\nb", "t", 1, message_id="c")
            other = await send(session, "a", "t", 1, message_id="b\nc")
        assert one.event_id != other.event_id


class TestFilters:
    def test_one_on_a_large_event_is_followed(self) -> None:
        wanted = parse_filter({"data": {"items": [{"sku": {"$in": ["a", "b", "c"]}}], "tags": ["x", "y"]}})
        items = [{"sku": f"s{n}"} for n in range(10_000)]
        assert wanted.matches({"data": {"items": [*items, {"sku": "c"}], "tags": ["y", "z", "x"]}})
        assert not wanted.matches({"data": {"items": items, "tags": ["y", "x"]}})
