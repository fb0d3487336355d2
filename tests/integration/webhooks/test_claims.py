"""Taking deliveries and giving them back: leases, fences, fairness, limits, circuits, without a request."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from journal import Database, DatabaseError, connect
from projections.failing.retries import Backoff
from projections.webhooks.claims import Room, claim, reap
from projections.webhooks.retry_policy import RetryPolicy
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import execute, fetchval, until
from tests.fixtures.webhooks import MARGIN, deliver_events, end_all, endpoint, fan_out, states, take, told

OPENS_AT_3 = RetryPolicy(
    breaker_failures=3,
    breaker_pause=Backoff(timedelta(minutes=1), timedelta(minutes=10), 0),
    disable_after_failures=None,
    disable_after=None,
)


async def expire_leases(database: Database) -> None:
    await execute(
        database, "UPDATE projections.webhook_deliveries SET lease_until = now() - interval '1 second'"
    )


async def reap_all(database: Database) -> int:
    async with database.session() as session:
        return await reap(session)


async def unblock(database: Database, endpoint_id: str) -> None:
    await execute(
        database,
        "UPDATE projections.webhook_circuits SET blocked_until = now() WHERE endpoint_id = $1",
        endpoint_id,
    )


class TestClaims:
    async def test_a_delivery_is_claimed_once(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", max_in_flight=1000)
        await deliver_events(database, ep, 50)
        first, second = await asyncio.gather(take(database, 30), take(database, 30))
        rest = await take(database, 100)
        found = [one.delivery_id for one in [*first, *second, *rest]]
        assert len(found) == len(set(found)) == 50

    async def test_a_claim_has_all_that_a_request_needs(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", headers={"x-a": "b"}, gzip=True)
        (event_id,) = await deliver_events(database, ep)
        (one,) = await take(database)
        assert (one.event_id, one.attempt, one.manual) == (event_id, 1, False)
        assert (one.url, one.headers, one.gzip) == ("https://example.com/hook", {"x-a": "b"}, True)
        assert one.data == '{"n": 1.0}'
        assert len(one.secrets) == 1

    async def test_endpoints_take_turns(self, database: Database) -> None:
        for name in ("ep_1", "ep_2", "ep_3"):
            await endpoint(database, name, max_in_flight=1000)
        await deliver_events(database, "ep_1", 100)
        await deliver_events(database, "ep_2", 2)
        await deliver_events(database, "ep_3", 100)
        counts = Counter(one.endpoint_id for one in await take(database, 12))
        assert counts == {"ep_1": 5, "ep_2": 2, "ep_3": 5}

    @pytest.mark.slow
    async def test_more_endpoints_than_places_come_in_turn(self, database: Database) -> None:
        for number in range(20):
            name = await endpoint(database, f"ep_{number:x}")
            await deliver_events(database, name, 1)
        found = [one.endpoint_id for _ in range(5) for one in await take(database, 4)]
        assert len(set(found)) == 20

    async def test_an_endpoint_has_no_more_on_their_way_than_its_limit(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", max_in_flight=3)
        await deliver_events(database, ep, 10)
        held = await take(database)
        assert len(held) == 3
        assert await take(database) == []
        await end_all(database, held[:2], "done")
        assert len(await take(database)) == 2

    async def test_two_workers_at_once_keep_the_limit(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", max_in_flight=3)
        await deliver_events(database, ep, 10)
        found = await asyncio.gather(*(take(database) for _ in range(4)))
        assert sum(map(len, found)) <= 3

    async def test_a_rate_limit_holds_over_claims(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", max_in_flight=1000, rate_limit=10)
        await deliver_events(database, ep, 30)
        began = await fetchval(database, "SELECT clock_timestamp()")
        found = len(await take(database)) + len(await take(database)) + len(await take(database))
        took = (await fetchval(database, "SELECT clock_timestamp()") - began).total_seconds()
        assert 10 <= found <= 10 + took * 10 + 1

    async def test_what_is_for_later_waits(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await deliver_events(database, ep, not_before=datetime.now(UTC) + timedelta(hours=1))
        assert await take(database) == []

    @pytest.mark.slow
    @pytest.mark.parametrize("state", ["paused", "disabled"])
    async def test_an_endpoint_that_is_not_active_keeps_its_deliveries(
        self, database: Database, state: str
    ) -> None:
        ep = await endpoint(database, "ep_1")
        await deliver_events(database, ep, 2)
        await fetchval(database, "SELECT projections._set_endpoint_state_v1('acme', $1, $2, 'so')", ep, state)
        assert await take(database) == []
        await deliver_events(database, ep)
        await fetchval(database, "SELECT projections._set_endpoint_state_v1('acme', $1, 'active', NULL)", ep)
        assert len(await take(database)) == 3

    async def test_a_disabled_endpoint_that_keeps_nothing_gets_no_new_ones(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", when_disabled="discard")
        await fetchval(
            database, "SELECT projections._set_endpoint_state_v1('acme', $1, 'disabled', NULL)", ep
        )
        await deliver_events(database, ep)
        assert await states(database, ep) == []


class TestShares:
    async def crowd(self, database: Database, tenant: str, endpoints: int, each: int = 10) -> None:
        for number in range(endpoints):
            name = await endpoint(database, f"ep_{tenant}_{number}", tenant=tenant, max_in_flight=1000)
            await deliver_events(database, name, each, tenant=tenant)

    async def claimed(self, database: Database, limit: int, **room: Any) -> Counter[str]:
        async with database.session() as session:
            found = await claim(session, limit, MARGIN, Room(**{"free": limit, "share": 0.5} | room))
        return Counter(one.tenant for one in found)

    @pytest.mark.slow
    async def test_tenants_take_turns_however_many_endpoints_one_has(self, database: Database) -> None:
        await self.crowd(database, "many", 20, 20)
        await self.crowd(database, "one", 1, 3)
        assert await self.claimed(database, 4, share=1) == {"many": 2, "one": 2}
        assert await self.claimed(database, 4, share=1) == {"many": 3, "one": 1}

    @pytest.mark.slow
    async def test_those_that_are_due_for_longest_are_not_all_there_is(self, database: Database) -> None:
        await self.crowd(database, "many", 20, 10)
        await execute(
            database, "UPDATE projections.webhook_deliveries SET next_at = next_at - interval '1 hour'"
        )
        await self.crowd(database, "one", 1, 3)
        assert await self.claimed(database, 8, share=1) == {"many": 5, "one": 3}

    @pytest.mark.slow
    async def test_a_tenant_has_its_share_of_what_others_leave(self, database: Database) -> None:
        await self.crowd(database, "many", 10, 20)
        await endpoint(database, "ep_other", tenant="other")
        assert await self.claimed(database, 40) == {"many": 20}
        held = {"many": (20, 0)}
        assert await self.claimed(database, 20, held=held) == {}
        await self.crowd(database, "second", 10, 20)
        assert await self.claimed(database, 20, held=held) == {"second": 10}
        await self.crowd(database, "one", 1, 3)
        held["second"] = (10, 0)
        assert await self.claimed(database, 10, held=held) == {"one": 3}

    @pytest.mark.slow
    async def test_a_tenant_may_have_all_while_no_other_has_an_active_endpoint(
        self, database: Database
    ) -> None:
        await self.crowd(database, "first", 10, 20)
        await endpoint(database, "ep_later", tenant="later")
        await fetchval(
            database, "SELECT projections._set_endpoint_state_v1('later', 'ep_later', 'paused', NULL)"
        )
        assert await self.claimed(database, 40) == {"first": 40}
        await self.crowd(database, "second", 10, 20)
        held = {"first": (40, 0)}
        assert await self.claimed(database, 10, held=held) == {"second": 5}
        assert await self.claimed(database, 1, held={"first": (39, 0)}) == {"second": 1}

    @pytest.mark.slow
    async def test_a_claim_locks_no_more_circuits_than_it_needs(self, database: Database) -> None:
        await self.crowd(database, "many", 20, 10)
        await self.crowd(database, "one", 1, 1)
        async with database.transaction() as session:
            assert len(await claim(session, 2, MARGIN, Room(2, share=0.5))) == 2
            assert await self.claimed(database, 20) == {"many": 10}

    @pytest.mark.slow
    async def test_a_claim_looks_at_no_more_endpoints_of_two_tenants_than_it_takes(
        self, database: Database
    ) -> None:
        await self.crowd(database, "first", 20, 1)
        await self.crowd(database, "second", 20, 1)
        async with database.transaction() as session:
            assert len(await claim(session, 10, MARGIN, Room(10, share=1))) == 10
            free = "SELECT FROM projections.webhook_circuits FOR NO KEY UPDATE SKIP LOCKED"
            async with database.transaction() as other:
                assert len(await other.fetch(free)) == 30

    @pytest.mark.slow
    async def test_one_that_is_not_alone_may_take_all_places_that_others_leave(
        self, database: Database
    ) -> None:
        await self.crowd(database, "many", 12, 1)
        await endpoint(database, "ep_other", tenant="other")
        assert await self.claimed(database, 10, share=1) == {"many": 10}

    @pytest.mark.slow
    async def test_one_endpoint_makes_up_for_those_that_have_less(self, database: Database) -> None:
        await self.crowd(database, "one", 9, 1)
        large = await endpoint(database, "ep_large", tenant="one", max_in_flight=1000)
        await deliver_events(database, large, 100, tenant="one")
        assert await self.claimed(database, 60) == {"one": 60}

    async def test_policies_that_are_the_same_are_held_to_the_limits_once(self, database: Database) -> None:
        await self.crowd(database, "one", 5, 1)
        called = (
            "SELECT calls FROM pg_stat_xact_user_functions "
            "WHERE schemaname = 'projections' AND funcname = '_policy_within_limits_v1'"
        )
        async with database.transaction() as session:
            await session.execute("SET LOCAL track_functions = 'pl'")
            assert len(await claim(session, 5, MARGIN, Room(5))) == 5
            assert await session.fetchval(called) == 1

    @pytest.mark.slow
    async def test_those_that_come_together_leave_as_much_as_each_has(self, database: Database) -> None:
        await self.crowd(database, "first", 10)
        await self.crowd(database, "second", 10)
        assert await self.claimed(database, 60) == {"first": 20, "second": 20}

    async def test_the_last_place_is_for_somebody(self, database: Database) -> None:
        await self.crowd(database, "one", 1)
        assert await self.claimed(database, 1) == {"one": 1}

    async def test_a_tenant_has_its_share_of_the_bytes(self, database: Database) -> None:
        await self.crowd(database, "large", 1, 20)
        await self.crowd(database, "one", 1, 1)
        size = 512 + len('{"n": 1.0}')
        room = {"bytes": 10 * size, "held": {"large": (2, 4 * size)}}  # of 14: 7 are its share
        assert await self.claimed(database, 30, **room) == {"large": 3, "one": 1}

    @pytest.mark.slow
    async def test_all_tenants_come_in_turn_however_many(self, database: Database) -> None:
        for number in range(30):
            await self.crowd(database, f"t{number}", 1, 1)
        found: Counter[str] = Counter()
        for _ in range(6):
            found += await self.claimed(database, 5, share=1)
        assert len(found) == 30


class TestOutcomes:
    async def test_done_is_done_and_logged(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await deliver_events(database, ep)
        assert len(await end_all(database, await take(database), "done")) == 1
        assert await states(database, ep) == ["done"]
        logged = "SELECT status || ' ' || code || ' ' || attempt_number FROM projections.webhook_attempts"
        assert await fetchval(database, logged) == "success 204 1"

    async def test_a_retry_comes_back_after_its_delay(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await deliver_events(database, ep)
        await end_all(database, await take(database), "retry", delay=timedelta(hours=1))
        assert await take(database) == []
        await execute(database, "UPDATE projections.webhook_deliveries SET next_at = now()")
        (again,) = await take(database)
        assert again.attempt == 2

    async def test_a_dead_letter_keeps_its_payload(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await deliver_events(database, ep)
        await end_all(database, await take(database), "dead")
        await execute(database, "DELETE FROM projections.webhook_events")
        assert await fetchval(database, "SELECT data FROM projections.webhook_deliveries") == '{"n": 1.0}'
        await fetchval(
            database,
            """SELECT projections._decide_delivery_v1('retry', 'acme', 'ep_1', event_id)
            FROM projections.webhook_deliveries""",
        )
        (again,) = await take(database)
        assert (again.data, again.attempt, again.manual) == ('{"n": 1.0}', 2, True)

    async def test_a_release_gives_the_attempt_back(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await deliver_events(database, ep)
        await end_all(database, await take(database), "release", code=None)
        (again,) = await take(database)
        assert again.attempt == 1
        assert await fetchval(database, "SELECT count(*) FROM projections.webhook_attempts") == 0

    async def test_a_zombie_with_an_old_token_changes_nothing(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await deliver_events(database, ep)
        zombie = await take(database)
        await expire_leases(database)
        await reap_all(database)
        (holder,) = await take(database)
        assert await end_all(database, zombie, "dead") == set()
        assert await states(database, ep) == ["leased"]
        assert await end_all(database, [holder], "done") == {holder.delivery_id}

    async def test_an_outcome_is_stored_once(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await deliver_events(database, ep)
        held = await take(database)
        await end_all(database, held, "done")
        assert await end_all(database, held, "done") == set()
        assert await fetchval(database, "SELECT count(*) FROM projections.webhook_attempts") == 1

    @pytest.mark.slow
    @pytest.mark.parametrize(("verdict", "delay"), [("retry", None), ("sent", timedelta(0))])
    async def test_one_that_says_nothing_is_refused(
        self, database: Database, verdict: str, delay: timedelta | None
    ) -> None:
        ep = await endpoint(database, "ep_1")
        await deliver_events(database, ep)
        held = await take(database)
        with pytest.raises(DatabaseError, match="a verdict is done, retry with a delay, dead or release"):
            await end_all(database, held, verdict, delay=delay)
        assert await states(database, ep) == ["leased"]

    async def test_one_of_an_endpoint_that_was_removed_is_passed_over(self, database: Database) -> None:
        await endpoint(database, "ep_1")
        await endpoint(database, "ep_2")
        await deliver_events(database, "ep_1")
        await deliver_events(database, "ep_2")
        held = await take(database)
        await fetchval(database, "SELECT projections._remove_endpoint_v1('acme', 'ep_1')")
        assert len(await end_all(database, held, "done")) == 1
        assert await states(database, "ep_2") == ["done"]


class TestLostWorkers:
    async def test_a_lost_attempt_is_used_up_and_logged(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await deliver_events(database, ep)
        await take(database)
        assert await reap_all(database) == 0
        await expire_leases(database)
        assert await reap_all(database) == 1
        assert await fetchval(database, "SELECT code FROM projections.webhook_attempts") == "worker_lost"
        (again,) = await take(database)
        assert again.attempt == 2

    async def test_crash_loop_reaches_dead_letter(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", policy=RetryPolicy(schedule=(timedelta(0), timedelta(0))))
        await deliver_events(database, ep)
        for _ in range(3):
            assert len(await take(database)) == 1
            await expire_leases(database)
            await reap_all(database)
        assert await take(database) == []
        assert await states(database, ep) == ["dead"]

    async def test_the_endpoint_is_not_to_blame(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await deliver_events(database, ep, 10)
        await take(database)
        await expire_leases(database)
        await reap_all(database)
        assert await fetchval(database, "SELECT failures FROM projections.webhook_circuits") == 0


class TestCircuits:
    async def test_it_opens_sends_a_single_probe_and_closes(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", policy=OPENS_AT_3)
        await deliver_events(database, ep, 9)
        await end_all(database, (await take(database, 3)), "retry")
        assert await take(database) == []
        await unblock(database, ep)
        probe = await take(database)
        assert len(probe) == 1
        assert await take(database) == []
        await end_all(database, probe, "done")
        assert len(await take(database)) == 8

    async def test_each_probe_that_fails_doubles_the_pause(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", policy=OPENS_AT_3)
        await deliver_events(database, ep, 4)
        await end_all(database, (await take(database, 3)), "retry")
        pauses = []
        for _ in range(5):
            pauses.append(
                await fetchval(
                    database,
                    "SELECT extract(EPOCH FROM blocked_until - clock_timestamp())::float8 "
                    "FROM projections.webhook_circuits",
                )
            )
            await unblock(database, ep)
            await end_all(database, await take(database), "retry")
        assert [round(pause / 60) for pause in pauses] == [1, 2, 4, 8, 10]

    async def test_a_pause_that_it_asks_for_holds_all_of_it(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await deliver_events(database, ep, 2)
        await end_all(database, await take(database, 1), "retry", pause=timedelta(minutes=1), code="429")
        assert await take(database) == []

    async def test_another_endpoint_goes_on(self, database: Database) -> None:
        await endpoint(database, "ep_1", policy=OPENS_AT_3)
        await endpoint(database, "ep_2")
        await deliver_events(database, "ep_1", 4)
        await end_all(database, await take(database, 3), "retry")
        await deliver_events(database, "ep_2")
        assert [one.endpoint_id for one in await take(database)] == ["ep_2"]


class TestDisabling:
    async def test_410_disables_and_the_journal_is_told(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await deliver_events(database, ep, 2)
        await end_all(database, await take(database, 1), "dead", disable=True, code="410")
        assert await take(database) == []
        types = [event_type for event_type, _ in await told(database, ep)]
        assert types == ["WebhookDeliveryDead", "WebhookEndpointDisabled"]

    @pytest.mark.slow
    async def test_thresholds_fire_once(self, database: Database) -> None:
        policy = OPENS_AT_3.model_copy(update={"disable_after_failures": 10, "breaker_failures": 1000})
        ep = await endpoint(database, "ep_1", policy=policy)
        await deliver_events(database, ep, 30)
        late = await take(database, 5)
        for _ in range(10):
            await end_all(database, await take(database, 1), "retry", delay=timedelta(hours=1))
        await end_all(database, late, "retry")
        failing = [
            facts["percent"] for kind, facts in await told(database, ep) if kind == "WebhookEndpointFailing"
        ]
        assert failing == [50, 70, 90, 100]
        assert [kind for kind, _ in await told(database, ep)].count("WebhookEndpointDisabled") == 1

    @pytest.mark.slow
    async def test_concurrent_failures_cross_a_threshold_once(self, database: Database) -> None:
        policy = OPENS_AT_3.model_copy(update={"disable_after_failures": 16, "breaker_failures": 1000})
        ep = await endpoint(database, "ep_1", policy=policy)
        await deliver_events(database, ep, 8)
        held = await take(database)
        await asyncio.gather(*(end_all(database, [one], "retry") for one in held))
        assert [kind for kind, _ in await told(database, ep)] == ["WebhookEndpointFailing"]

    @pytest.mark.slow
    async def test_a_success_resets_the_count(self, database: Database) -> None:
        policy = OPENS_AT_3.model_copy(update={"disable_after_failures": 4, "breaker_failures": 1000})
        ep = await endpoint(database, "ep_1", policy=policy)
        await deliver_events(database, ep, 7)
        for verdict in ("retry", "retry", "retry", "done", "retry", "retry"):
            await end_all(database, await take(database, 1), verdict, delay=timedelta(hours=1))
        assert await fetchval(database, "SELECT state FROM projections.webhook_endpoints") == "active"

    async def test_nothing_but_failures_for_long_disables(self, database: Database) -> None:
        policy = OPENS_AT_3.model_copy(update={"disable_after": timedelta(days=5), "breaker_failures": 1000})
        ep = await endpoint(database, "ep_1", policy=policy)
        await deliver_events(database, ep, 2)
        await end_all(database, await take(database, 1), "retry", delay=timedelta(hours=1))
        await execute(
            database,
            "UPDATE projections.webhook_circuits SET failing_since = now() - interval '5 days 1 second'",
        )
        await end_all(database, await take(database, 1), "retry")
        assert await fetchval(database, "SELECT state FROM projections.webhook_endpoints") == "disabled"


class TestOrder:
    async def test_a_key_blocks_only_its_key(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", ordering="key")
        first = await deliver_events(database, ep, 3, key="a")
        other = await deliver_events(database, ep, 2, key="b")
        assert sorted(one.event_id for one in await take(database)) == sorted([first[0], other[0]])

    @pytest.mark.slow
    async def test_the_next_goes_when_one_has_arrived(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", ordering="key")
        ids = await deliver_events(database, ep, 3, key="a")
        seen = []
        while held := await take(database):
            seen += [one.event_id for one in held]
            await end_all(database, held, "done")
        assert seen == ids

    async def test_one_that_is_tried_again_holds_the_next_back(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", ordering="endpoint")
        await deliver_events(database, ep, 2)
        await end_all(database, await take(database), "retry", delay=timedelta(hours=1))
        assert await take(database) == []

    @pytest.mark.parametrize(("on_dead", "goes_on"), [("skip", 1), ("block", 0)])
    async def test_a_dead_letter(self, database: Database, on_dead: str, goes_on: int) -> None:
        ep = await endpoint(database, "ep_1", ordering="key", on_dead=on_dead)
        await deliver_events(database, ep, 2, key="a")
        await end_all(database, await take(database), "dead")
        assert len(await take(database)) == goes_on

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "drop",
        [
            "SELECT projections._decide_delivery_v1('drop', 'acme', 'ep_1', $1)",
            """SELECT changed FROM projections._decide_deliveries_v1('drop', 'acme', NULL, '{dead}', NULL, NULL, NULL)
            WHERE $1 <> ''""",
        ],
    )
    async def test_a_dead_letter_that_blocks_holds_new_ones_until_it_is_dropped(
        self, database: Database, drop: str
    ) -> None:
        ep = await endpoint(database, "ep_1", ordering="key", on_dead="block")
        (dead,) = await deliver_events(database, ep, 1, key="a")
        await end_all(database, await take(database), "dead")
        (later,) = await deliver_events(database, ep, 1, key="a")
        assert await take(database) == []
        await fetchval(database, drop, dead)
        assert [one.event_id for one in await take(database)] == [later]

    async def test_one_added_while_the_last_is_finished_waits_for_no_one(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", ordering="key")
        await deliver_events(database, ep, 1, key="a")
        held = await take(database)
        async with database.transaction() as adding:
            (added,) = await fan_out(adding, ep, 1, key="a")
            finishing = asyncio.create_task(end_all(database, held, "done"))
            await _until_waiting(database)
        assert len(await finishing) == 1
        assert [one.event_id for one in await take(database)] == [added]

    @pytest.mark.slow
    async def test_one_added_after_an_uncommitted_finish_waits_for_no_one(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", ordering="key")
        await deliver_events(database, ep, 1, key="a")
        (held,) = await take(database)
        async with database.transaction() as finishing:
            await finishing.fetch(
                "SELECT projections._finish_deliveries_v1("
                "ARRAY[$1::bigint], ARRAY[$2::bigint], '{done}', '{NULL}', '{NULL}', '{f}', '{204}', '{NULL}', '{1s}')",
                held.delivery_id, held.lease_token,
            )  # fmt: skip
            adding = asyncio.create_task(deliver_events(database, ep, 1, key="a"))
            await _until_waiting(database)
        (added,) = await adding
        assert [one.event_id for one in await take(database)] == [added]

    async def test_two_who_add_to_an_order_at_once_add_one_after_the_other(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", ordering="endpoint")
        async with database.transaction() as first:
            (before,) = await fan_out(first, ep)
            second = asyncio.create_task(deliver_events(database, ep))
            await _until_waiting(database)
        await second
        assert [one.event_id for one in await take(database)] == [before]


async def _until_waiting(database: Database) -> None:

    await until(database, f"SELECT EXISTS (SELECT FROM {WAITING})")


class TestAgain:
    async def test_the_same_events_add_nothing(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        ids = await deliver_events(database, ep, 3)
        await end_all(database, await take(database), "done")
        await deliver_events(database, ep, ids=ids)
        assert await states(database, ep) == ["done"] * 3

    async def test_what_is_rolled_back_was_never_there(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is rolled back
            async with database.transaction() as session:
                await fan_out(session, ep, 3)
                raise ZeroDivisionError
        assert await states(database, ep) == []
        assert await fetchval(database, "SELECT count(*) FROM projections.webhook_events") == 0

    async def test_events_from_before_the_endpoint_are_not_for_it(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        await execute(
            database, "UPDATE projections.webhook_endpoints SET created_at = now() + interval '1 day'"
        )
        await deliver_events(database, ep)
        assert await states(database, ep) == []


@pytest.mark.slow
async def test_a_worker_s_role_delivers_and_tells_the_journal(database: Database, login: Any) -> None:
    ep = await endpoint(database, "ep_1")
    await deliver_events(database, ep, 2)
    async with connect(login("projections_worker")) as as_worker:
        await end_all(as_worker, await take(as_worker, 1), "dead", disable=True, code="410")
    assert [event_type for event_type, _ in await told(database, ep)] == [
        "WebhookDeliveryDead",
        "WebhookEndpointDisabled",
    ]
