"""What is not delivered by its expiry ends in a state of its own: never attempted, and no failure of its endpoint."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from journal import Database, InvalidValue, NotAllowed
from projections.webhooks.claims import expire
from projections.webhooks.deliveries import Deliveries, DeliveryFilter
from projections.webhooks.duties import _FORGET
from projections.webhooks.fan_out import FanOut
from projections.webhooks.messages import Message, message_of, send
from projections.webhooks.retry_policy import RetryPolicy
from projections.webhooks.stats import endpoint_stats, webhook_totals
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.raw_server import RawServer, respond
from tests.fixtures.webhook_delivery import PATIENT, delivering, fanned_out, finished, hook, rows
from tests.fixtures.webhook_delivery import states as all_states
from tests.fixtures.webhooks import coded, deliver_events, end_all, endpoint, fan_out, states, take, told

IN_AN_HOUR = datetime.now(UTC) + timedelta(hours=1)


async def passes(database: Database, endpoint_id: str | None = None) -> None:
    """Let time pass: what has an expiry has expired."""
    await execute(
        database,
        "UPDATE projections.webhook_deliveries SET expires_at = now() - interval '1 second' "
        "WHERE expires_at IS NOT NULL AND ($1::text IS NULL OR endpoint_id = $1)",
        endpoint_id,
    )


async def some(database: Database, endpoint_id: str, number: int = 1, **options: Any) -> list[str]:
    return await deliver_events(database, endpoint_id, number, expires_at=IN_AN_HOUR, **options)


async def end(database: Database) -> bool:
    async with database.session() as session:
        return await expire(session)


class TestWhatExpires:
    @pytest.mark.slow
    async def test_it_is_attempted_before_and_never_after(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await some(database, ep, 2)
        (first, _) = await take(database)
        await end_all(database, [first], "done")
        await execute(
            database, "UPDATE projections.webhook_deliveries SET state = 'pending' WHERE state = 'leased'"
        )
        await passes(database)
        assert await take(database) == []
        assert sorted(await states(database, ep)) == ["done", "expired"]

    @pytest.mark.slow
    async def test_a_retry_is_not_made_after_it_and_the_endpoint_is_not_to_blame(
        self, database: Database
    ) -> None:
        ep = await endpoint(database, "ep_1", policy=RetryPolicy(disable_after_failures=2))
        await some(database, ep)
        await end_all(database, await take(database), "retry")
        await passes(database)
        assert await take(database) == []
        assert await states(database, ep) == ["expired"]
        circuit = await rows(database, "SELECT failures, expired FROM projections.webhook_circuits")
        assert [tuple(row.values()) for row in circuit] == [(1, 1)]
        assert {kind for kind, _ in await told(database, ep)} == {"WebhookEndpointFailing"}
        assert await fetchval(database, "SELECT count(*) FROM projections.webhook_attempts") == 1

    async def test_an_attempt_on_its_way_goes_on(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await some(database, ep, 2)
        done, failed = await take(database)
        await passes(database)
        assert await end(database) is False
        await end_all(database, [done], "done")
        await end_all(database, [failed], "retry")
        assert await take(database) == []
        assert sorted(await states(database, ep)) == ["done", "expired"]

    @pytest.mark.slow
    @pytest.mark.parametrize("state", ["paused", "disabled"])
    async def test_also_at_an_endpoint_that_is_sent_nothing(self, database: Database, state: str) -> None:
        ep = await endpoint(database, "ep_1")
        await some(database, ep)
        await fetchval(database, "SELECT projections._set_endpoint_state_v1('acme', $1, $2, 'so')", ep, state)
        await passes(database)
        await end(database)
        assert await states(database, ep) == ["expired"]

    async def test_what_a_killed_process_had_expires_when_it_is_taken_back(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await some(database, ep)
        assert await take(database)
        await passes(database)
        await execute(
            database, "UPDATE projections.webhook_deliveries SET lease_until = now() - interval '1 second'"
        )
        assert await fetchval(database, "SELECT projections._reap_deliveries_v1()") == 1
        assert await take(database) == []
        assert await states(database, ep) == ["expired"]

    async def test_without_an_expiry_nothing_does(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await deliver_events(database, ep)
        await end(database)
        assert len(await take(database)) == 1

    @pytest.mark.slow
    async def test_more_than_end_in_one_step_are_taken_by_nobody(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", max_in_flight=1000)
        await some(database, ep, 2500)
        other = await endpoint(database, "ep_2")
        await deliver_events(database, other)
        await passes(database)
        taken = await take(database)
        assert {one.endpoint_id for one in taken} == {other}
        assert await end(database) is True
        assert await end(database) is False
        assert set(await states(database, ep)) == {"expired"}
        assert await fetchval(database, "SELECT sum(expired)::int FROM projections.webhook_circuits") == 2500

    @pytest.mark.slow
    async def test_many_that_expire_together_cost_no_other_endpoint_its_places(
        self, database: Database
    ) -> None:
        for number in range(8):
            await some(database, await endpoint(database, f"ep_{number}", max_in_flight=1000), 400)
        free = await endpoint(database, "ep_9", max_in_flight=1000)
        other = await endpoint(database, "ep_x", tenant="globex", max_in_flight=1000)
        await deliver_events(database, free, 20)
        await deliver_events(database, other, 20, tenant="globex")
        await passes(database)
        taken = await take(database, 40)
        assert await fetchval(
            database, "SELECT count(*) > 1000 FROM projections.webhook_deliveries WHERE state = 'pending'"
        )
        assert sorted(one.endpoint_id for one in taken) == [free] * 20 + [other] * 20

    async def test_who_holds_an_endpoint_keeps_its_own_alone(self, database: Database) -> None:
        held, free = await endpoint(database, "ep_1"), await endpoint(database, "ep_2")
        for each in (held, free):
            await some(database, each)
        await passes(database)
        async with database.transaction() as session:
            await session.execute(
                "SELECT FROM projections.webhook_circuits WHERE endpoint_id = 'ep_1' FOR UPDATE"
            )
            await end(database)
        assert (await states(database, held), await states(database, free)) == (["pending"], ["expired"])
        await end(database)
        assert await states(database, held) == ["expired"]


class TestOrder:
    async def test_the_next_of_its_key_goes(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", ordering="key")
        await some(database, ep, key="a")
        (after,) = await deliver_events(database, ep, key="a")
        assert await states(database, ep) == ["pending", "waiting"]
        await passes(database)
        assert [one.event_id for one in await take(database)] == [after]

    async def test_one_that_waits_expires_where_it_stands(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", ordering="key")
        await deliver_events(database, ep, key="a")
        await some(database, ep, key="a")
        (last,) = await deliver_events(database, ep, key="a")
        held = await take(database)
        await passes(database)
        assert await take(database) == []
        assert await states(database, ep) == ["leased", "expired", "waiting"]
        await end_all(database, held, "done")
        assert [one.event_id for one in await take(database)] == [last]

    @pytest.mark.slow
    async def test_a_dead_letter_that_blocks_does_so_until_it_expires(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", ordering="key", on_dead="block")
        await some(database, ep, key="a")
        (after,) = await deliver_events(database, ep, key="a")
        await end_all(database, await take(database), "dead")
        assert await take(database) == []
        await passes(database)
        assert [one.event_id for one in await take(database)] == [after]
        assert await states(database, ep) == ["expired", "leased"]
        assert await fetchval(database, "SELECT count(data) FROM projections.webhook_deliveries") == 0


class TestPeople:
    @pytest.mark.slow
    @pytest.mark.parametrize("before", ["pending", "done", "dead", "dropped"])
    async def test_a_retry_of_what_has_expired_is_refused(self, database: Database, before: str) -> None:
        ep, deliveries = await endpoint(database, "ep_1"), Deliveries(database)
        (event,) = await some(database, ep)
        if before in {"done", "dead"}:
            await end_all(database, await take(database), before)
        elif before == "dropped":
            await deliveries.drop(None, ep, event)
        await passes(database)
        with pytest.raises(
            NotAllowed, match=r"expired at .*: send it as a new message", check=coded("not_retriable")
        ):
            await deliveries.retry(None, ep, event)
        states: list[Any] = ["dead", "done", "dropped"]
        assert [each async for each in deliveries.retry_many(DeliveryFilter(states=states))][-1] == 0

    async def test_what_has_expired_is_listed_and_not_dropped(self, database: Database) -> None:
        ep, deliveries = await endpoint(database, "ep_1"), Deliveries(database)
        (event,) = await some(database, ep)
        await passes(database)
        await end(database)
        (found,) = await deliveries.list(DeliveryFilter(states=["expired"]))
        assert (found.event_id, found.state, found.attempts) == (event, "expired", 0)
        assert found.expires_at is not None
        with pytest.raises(NotAllowed, match="is expired", check=coded("not_retriable")):
            await deliveries.drop(None, ep, event)

    async def test_it_is_counted_for_each_endpoint_and_for_all(self, database: Database) -> None:
        for name in ("ep_1", "ep_2"):
            await some(database, await endpoint(database, name), 3)
        await passes(database)
        await end(database)
        async with database.session() as session:
            assert [one.expired for one in await endpoint_stats(session)] == [3, 3]
            totals = await webhook_totals(session)
        assert (totals.expired, totals.pending, totals.dead) == (6, 0, 0)

    async def test_it_is_forgotten_with_what_is_done(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await some(database, ep)
        await passes(database)
        await end(database)
        await execute(
            database,
            "UPDATE projections.webhook_deliveries SET event_time = '2020-01-01Z'; "
            "UPDATE projections.webhook_forgotten SET before = '2021-01-01Z'",
        )
        assert await fetchval(database, _FORGET, 100) == 1


class TestMessages:
    @pytest.mark.slow
    async def test_a_message_says_when_it_expires(self, database: Database) -> None:
        async with RawServer() as server:
            await hook(database, server.url)
            async with database.transaction() as session:
                await send(session, "acme", "t", {}, expires_at=datetime.now(UTC) - timedelta(seconds=1))
                await send(session, "acme", "t", {}, expires_at=IN_AN_HOUR)
            await fanned_out(database)
            async with delivering(database):
                await finished(database)
                await finished(database, states=("expired",))
            assert await all_states(database) == ["expired", "done"]
            assert len(server.requests) == 1

    @pytest.mark.slow
    async def test_what_fails_is_tried_until_it_expires(self, database: Database) -> None:
        async with RawServer(respond(500)) as server:
            policy = PATIENT.model_copy(update={"schedule": (timedelta(milliseconds=20),) * 100})
            await hook(database, server.url, policy=policy)
            async with database.transaction() as session:
                await send(session, "acme", "t", {}, expires_at=IN_AN_HOUR)
            await fanned_out(database)
            async with delivering(database) as running:
                await running.watch.until(lambda: len(running.watch.attempts) > 2)
                await passes(database)
                await finished(database, states=("expired",))
                made = len(server.requests)
            assert len(server.requests) == made

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("topic", "later", "expected"),
        [
            ("flight.landed", None, timedelta(hours=1)),
            ("other", None, timedelta(days=1)),
            ("other", timedelta(days=2), timedelta(days=3)),
        ],
    )
    async def test_a_fan_out_says_it_by_topic(
        self, database: Database, topic: str, later: timedelta | None, expected: timedelta
    ) -> None:
        await endpoint(database, "ep_1")
        reading = FanOut(expires_after={"flight.*": timedelta(hours=1), "**": timedelta(days=1)})
        now = datetime.now(UTC)
        async with database.transaction() as session:
            await send(session, "acme", topic, {}, not_before=None if later is None else now + later)
            await send(session, "acme", topic, {}, expires_at=now + timedelta(days=9))
        await fanned_out_by(database, reading)
        own, said = await rows(
            database, "SELECT expires_at FROM projections.webhook_deliveries ORDER BY delivery_id"
        )
        assert abs(own["expires_at"] - (now + expected)) < timedelta(minutes=1)
        assert said["expires_at"] == now + timedelta(days=9)

    async def test_an_expiry_has_a_zone_and_is_after_the_first_time_that_it_may_be_sent(
        self, database: Database
    ) -> None:
        now = datetime.now(UTC)
        async with database.transaction() as session:
            with pytest.raises(InvalidValue, match="expires_at has no zone"):
                await send(session, "acme", "t", {}, expires_at=datetime(2030, 1, 1))  # noqa: DTZ001
            with pytest.raises(InvalidValue, match="cannot be delivered from"):
                await send(session, "acme", "t", {}, expires_at=now, not_before=now)

    @pytest.mark.parametrize(
        "wrong", [timedelta(0), {"t": timedelta(days=-1)}, {"a..b": timedelta(days=1)}, timedelta(days=9999)]
    )
    def test_a_default_that_cannot_be_is_refused(self, wrong: Any) -> None:
        with pytest.raises(InvalidValue):
            FanOut(expires_after=wrong)

    @pytest.mark.slow
    async def test_a_fan_out_of_ones_own_says_it_of_each_message(self, database: Database) -> None:
        def soon(envelope: Any) -> Message | None:
            message = message_of(envelope)
            return message and Message(message.tenant, message.topic, expires_at=IN_AN_HOUR)

        await endpoint(database, "ep_1")
        async with database.transaction() as session:
            await send(session, "acme", "t", {})
        await fanned_out_by(database, FanOut(message=soon))
        assert await fetchval(database, "SELECT expires_at FROM projections.webhook_deliveries") == IN_AN_HOUR


async def fanned_out_by(database: Database, fan: FanOut) -> None:
    from projections import run
    from tests.fixtures.projections import settings

    await run(database, fan, settings=settings(), until_caught_up=True)


async def test_a_claim_takes_no_time_for_what_is_to_expire_later(database: Database) -> None:
    ep = await endpoint(database, "ep_1")
    async with database.transaction() as session:
        await fan_out(session, ep, 3, expires_at=IN_AN_HOUR)
    assert await end(database) is False
    assert len(await take(database)) == 3
