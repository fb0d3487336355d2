"""What people and endpoints do while deliveries are under way: pause, disable, remove, retry by hand, limit, break."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import Any

import pytest

from journal import ConnectionSettings, Database, DatabaseError, InvalidValue, NotAllowed, NotFound, connect
from projections.failing.retries import Backoff
from projections.webhooks.claims import Claimed
from projections.webhooks.deliveries import Deliveries, DeliveryFilter
from projections.webhooks.response_reading import Reply
from projections.webhooks.sender import HttpSender
from tests.fixtures.ports import unused_port
from tests.fixtures.projections import fetchval
from tests.fixtures.raw_server import Exchange, RawServer, hang, respond
from tests.fixtures.webhook_delivery import (
    LOCAL,
    PATIENT,
    TENANT,
    Gate,
    Watch,
    attempts,
    delivering,
    due,
    endpoints,
    finished,
    hook,
    rows,
    sent,
    settings,
    states,
    until_rows,
)
from tests.fixtures.webhooks import coded

DEAD_AT_ONCE = PATIENT.model_copy(update={"schedule": ()})


def numbers(server: RawServer) -> list[int]:
    """Which messages came, in their order."""
    return [json.loads(request.body)["data"]["n"] for request in server.requests]


async def manual(database: Database) -> list[bool]:
    found = await rows(database, "SELECT manual FROM projections.webhook_attempts ORDER BY attempt_number")
    return [row["manual"] for row in found]


class TestStates:
    @pytest.mark.slow
    async def test_disable_while_retry_pending_pauses_and_enable_resumes_in_order(
        self, database: Database
    ) -> None:
        async with RawServer(respond(500), respond(204)) as server, RawServer(respond(204)) as other:
            endpoint_id, _ = await hook(database, server.url, ordering="endpoint", tenant="t")
            await hook(database, other.url)
            await sent(database, number=3, tenant="t")
            async with delivering(database):
                await until_rows(database, "last_code = '500'")
                await endpoints(database).set_state("t", endpoint_id, "disabled")
                await due(database)
                await sent(database)
                await finished(database)  # a later one of another endpoint: claims have passed over this one
                assert len(server.requests) == 1
                assert await states(database) == ["pending", "waiting", "waiting", "done"]
                await endpoints(database).set_state("t", endpoint_id, "active")
                await finished(database, 4)

        assert numbers(server) == [0, 0, 1, 2]

    @pytest.mark.slow
    async def test_delete_endpoint_in_flight(self, database: Database) -> None:
        async with RawServer(respond(204)) as server, HttpSender(LOCAL) as sender:
            gate = Gate(sender, after=True)
            endpoint_id, _ = await hook(database, server.url)
            (event_id,) = await sent(database)
            async with delivering(database, gate) as running:
                await gate.reached.get()
                await endpoints(database).remove(TENANT, endpoint_id)
                gate.after.set()
                await running.watch.until(lambda: running.watch.gone == [event_id])
                await hook(database, server.url)
                await sent(database)
                await finished(database)

        assert await states(database) == ["done"]

    @pytest.mark.slow
    async def test_410_while_others_are_in_flight_keeps_what_is_left_for_later(
        self, database: Database
    ) -> None:
        async with RawServer(respond(410), respond(204)) as server:
            endpoint_id, _ = await hook(database, server.url, ordering="endpoint")
            await sent(database, number=3)
            async with delivering(database):
                await finished(database, states=("dead",))
                assert (await endpoints(database).get(TENANT, endpoint_id)).state == "disabled"
                assert await states(database) == ["dead", "pending", "waiting"]
                await endpoints(database).set_state(TENANT, endpoint_id, "active")
                await finished(database, 2)

        assert numbers(server) == [0, 1, 2]

    @pytest.mark.slow
    async def test_a_key_that_fails_holds_only_its_key(self, database: Database) -> None:
        async def fail_first_of_a(exchange: Exchange) -> None:
            first = b'"n":0' in exchange.request.body and len(server.requests) < 9
            await respond(500 if first and b'"k":"a"' in exchange.request.body else 204)(exchange)

        async with RawServer(fail_first_of_a) as server:
            await hook(database, server.url, ordering="key")
            for key in "ab":
                for n in range(3):
                    await sent(database, data={"k": key, "n": n}, order_key=key)
            async with delivering(database):
                await finished(database, 3)
                assert await states(database) == ["pending", "waiting", "waiting", "done", "done", "done"]
                server.requests.extend(server.requests[:1] * 9)
                await due(database)
                await finished(database, 6)

        seen = [json.loads(request.body)["data"] for request in server.requests[-3:]]
        assert seen == [{"k": "a", "n": n} for n in range(3)]


class TestByHand:
    async def test_manual_retry_while_in_flight_is_refused(self, database: Database) -> None:
        async with RawServer(respond(204)) as server, HttpSender(LOCAL) as sender:
            gate = Gate(sender, before=True)
            endpoint_id, _ = await hook(database, server.url)
            (event_id,) = await sent(database)
            async with delivering(database, gate):
                await gate.reached.get()
                with pytest.raises(NotAllowed, check=coded("delivery_in_flight")):
                    await Deliveries(database).retry(TENANT, endpoint_id, event_id)
                gate.before.set()
                await finished(database)

        assert len(server.requests) == 1

    @pytest.mark.slow
    async def test_manual_retry_replaces_pending_auto(self, database: Database) -> None:
        async with RawServer(respond(500), respond(204)) as server:
            endpoint_id, _ = await hook(database, server.url)
            (event_id,) = await sent(database)
            async with delivering(database):
                await until_rows(database, "last_code = '500'")
                await Deliveries(database).retry(TENANT, endpoint_id, event_id)
                await finished(database)
                await due(database)
                await sent(database)
                await finished(database, 2)

        assert len(server.requests) == 3
        assert await manual(database) == [False, False, True]

    async def test_two_manual_retries_after_exhaustion_are_both_logged(self, database: Database) -> None:
        async with RawServer(respond(500)) as server:
            endpoint_id, _ = await hook(database, server.url, policy=DEAD_AT_ONCE)
            (event_id,) = await sent(database)
            async with delivering(database):
                for number in (1, 2, 3):
                    await until_rows(database, f"state = 'dead' AND attempts = {number}")
                    await Deliveries(database).retry(TENANT, endpoint_id, event_id)
                await until_rows(database, "state = 'dead' AND attempts = 4")

        assert [number for number, *_ in await attempts(database)] == [1, 2, 3, 4]
        assert await manual(database) == [False, True, True, True]

    @pytest.mark.slow
    async def test_manual_retry_of_what_has_arrived_sends_it_once_more(self, database: Database) -> None:
        async with RawServer(respond(204)) as server:
            endpoint_id, _ = await hook(database, server.url)
            (event_id,) = await sent(database)
            async with delivering(database):
                await finished(database)
                await Deliveries(database).retry(TENANT, endpoint_id, event_id)
                await until_rows(database, "state = 'done' AND attempts = 2")

        assert [request.header("webhook-id") for request in server.requests] == [event_id] * 2

    async def test_manual_retry_on_a_disabled_endpoint_is_refused(self, database: Database) -> None:
        endpoint_id, _ = await hook(database, "http://127.0.0.1/")
        (event_id,) = await sent(database)
        await endpoints(database).set_state(TENANT, endpoint_id, "disabled")

        with pytest.raises(NotAllowed, check=coded("not_retriable")):
            await Deliveries(database).retry(TENANT, endpoint_id, event_id)

    @pytest.mark.slow
    @pytest.mark.parametrize("decide", [Deliveries.retry, Deliveries.drop])
    async def test_what_was_decided_meanwhile_is_not_decided_again(
        self, database: Database, decide: Any
    ) -> None:
        async with RawServer(respond(500)) as server:
            endpoint_id, _ = await hook(database, server.url, policy=DEAD_AT_ONCE)
            (event_id,) = await sent(database)
            async with delivering(database):
                await until_rows(database, "state = 'dead'")
        await Deliveries(database).retry(TENANT, endpoint_id, event_id, states=["dead"])

        with pytest.raises(
            NotAllowed,
            check=coded("not_retriable"),
            match="is pending, not dead or dropped",
        ):
            await decide(Deliveries(database), TENANT, endpoint_id, event_id, states=["dead", "dropped"])

    async def test_deliveries_of_another_tenant_are_not_there(self, database: Database) -> None:
        endpoint_id, _ = await hook(database, "http://127.0.0.1/")
        (event_id,) = await sent(database)
        deliveries = Deliveries(database)

        for do in (deliveries.show, deliveries.retry, deliveries.drop):
            with pytest.raises(NotFound, check=coded("unknown_delivery")):
                await do("other", endpoint_id, event_id)
        with pytest.raises(InvalidValue, check=coded("invalid_cursor")):
            await deliveries.list(DeliveryFilter(tenant="other"), next=f"{endpoint_id}/{event_id}")
        for decide in (deliveries.retry, deliveries.drop):
            with pytest.raises(NotFound, check=coded("unknown_endpoint")):
                await decide("other", endpoint_id)
        assert await deliveries.list(DeliveryFilter(tenant="other")) == []
        every = [
            retried
            async for retried in deliveries.retry_many(DeliveryFilter(tenant="other", states=["dead"]))
        ]
        assert every == [0]
        assert len(await deliveries.list(DeliveryFilter(tenant=TENANT))) == 1

    @pytest.mark.slow
    async def test_all_dead_letters_of_an_endpoint_are_tried_again_or_dropped(
        self, database: Database
    ) -> None:
        async with RawServer(respond(500)) as server:
            endpoint_id, _ = await hook(database, server.url, policy=DEAD_AT_ONCE)
            await sent(database, number=2)
            async with delivering(database):
                await finished(database, 2, ("dead",))
            deliveries = Deliveries(database)

            assert await deliveries.drop(TENANT, endpoint_id, (await deliveries.list())[0].event_id) == 1
            assert await deliveries.retry(TENANT, endpoint_id) == 1
            assert await deliveries.retry(TENANT, endpoint_id) == 0
            assert {one.state for one in await deliveries.list()} == {"dropped", "pending"}
            async with delivering(database):
                await finished(database, 1, ("dead",))
            assert await deliveries.drop(None, endpoint_id) == 1
            assert {one.state for one in await deliveries.list()} == {"dropped"}

    @pytest.mark.slow
    async def test_many_are_tried_again_in_their_order(self, database: Database) -> None:
        async with RawServer(*[respond(500)] * 5, respond(204)) as server:
            await hook(database, server.url, policy=DEAD_AT_ONCE, ordering="endpoint")
            await sent(database, number=5)
            async with delivering(database):
                await finished(database, 5, ("dead",))
            which = DeliveryFilter(tenant=TENANT, states=["dead"])
            assert [retried async for retried in Deliveries(database).retry_many(which, step=2)][-1] == 5
            async with delivering(database, settings=settings(max_in_flight=1)):
                await finished(database, 5)

        assert numbers(server) == [*range(5), *range(5)]


class TestLimits:
    @pytest.mark.slow
    async def test_breaker_opens_and_a_single_probe_closes_it(self, database: Database) -> None:
        policy = PATIENT.model_copy(
            update={
                "breaker_failures": 3,
                "breaker_pause": Backoff(timedelta(minutes=10), timedelta(hours=1), 0),
            }
        )
        async with (
            RawServer(*[respond(500)] * 3, respond(204)) as server, RawServer(respond(204)) as other,
            HttpSender(LOCAL) as sender,
        ):  # fmt: skip
            gate = Gate(sender)
            await hook(database, server.url, policy=policy, max_in_flight=3, tenant="t")
            await hook(database, other.url)
            await sent(database, number=8, tenant="t")
            async with delivering(database, gate):
                await until_rows(database, "last_code = '500'", 3)
                await sent(database)
                await finished(
                    database, 1
                )  # a later one of another endpoint: claims have passed over this one
                assert len(server.requests) == 3
                gate.after.clear()
                await due(database)
                await gate.reached.get()
                await until_rows(database, "state = 'leased'")
                await sent(database)
                await other.received(2)
                assert len(server.requests) == 4
                gate.after.set()
                await finished(database, 10)

        assert len(server.requests) == 11

    @pytest.mark.slow
    async def test_a_rate_limit_holds_across_two_workers(self, dsn: str, database: Database) -> None:
        class Claims(Watch):
            def attempted(self, claimed: Claimed, reply: Reply, verdict: str) -> None:
                times.append(claimed.claimed_at.timestamp())

        times: list[float] = []
        async with (
            RawServer(respond(204)) as server,
            connect(dsn, ConnectionSettings(max_connections=5)) as second,
        ):
            await hook(database, server.url, rate_limit=50, max_in_flight=1000)
            await sent(database, number=100)
            async with delivering(database, observer=Claims()), delivering(second, observer=Claims()):
                await finished(database, 100)

        times.sort()
        assert len(times) == 100
        # The bucket was full with 50; each one after that had to be waited for.
        assert all(time - times[0] >= (place - 50) / 50 - 0.001 for place, time in enumerate(times, 1))

    @pytest.mark.slow
    async def test_a_slow_endpoint_does_not_starve_others(self, database: Database) -> None:
        async with RawServer(hang()) as slow, RawServer(respond(204)) as server:
            await hook(database, slow.url, max_in_flight=10)
            for _ in range(20):
                await hook(database, server.url)
            await sent(database, number=15)
            options = settings(max_in_flight=16, tenant_share=1, grace=timedelta(milliseconds=50))
            async with delivering(database, settings=options):
                await finished(database, 300)
                await slow.received(10)
                assert (await states(database)).count("leased") == 10

        assert len(slow.requests) == 10
        assert (await states(database)).count("pending") == 15


@pytest.mark.slow
async def test_secrets_are_in_no_log_error_or_repr(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    class Shows(Watch):
        def attempted(self, claimed: Claimed, reply: Reply, verdict: str) -> None:
            shown.append(f"{claimed!r} {claimed} {reply!r}")
            raise ValueError("an observer that fails")

    shown: list[str] = []
    caplog.set_level(logging.DEBUG)
    async with RawServer(respond(500), respond(204)) as server:
        made = [await hook(database, server.url) for _ in range(2)]
        made.append(await hook(database, f"http://127.0.0.1:{unused_port()}/"))
        await sent(database)
        async with delivering(database, observer=Shows()):
            await until_rows(database, "state = 'done'")
            await until_rows(database, "last_code = 'connection_refused'")
        found = await endpoints(database).list(TENANT)
        listed = await Deliveries(database).list(DeliveryFilter())
        one = await Deliveries(database).show(None, listed[0].endpoint_id, listed[0].event_id)

    text = "\n".join([caplog.text, *shown, repr(found), repr(listed), repr(one), repr(made)])
    assert "an observer that fails" in text
    for _, secret in made:
        assert secret.reveal() not in text
        assert secret.reveal().partition("_")[2] not in text


@pytest.mark.parametrize("policy", ["{}", '{"timeout": "soon"}', "[]", '"x"'])
async def test_a_policy_that_claims_can_not_reckon_with_is_refused(database: Database, policy: str) -> None:
    asked = f'{{"url": "https://example.com/", "policy": {policy}}}'
    with pytest.raises(DatabaseError, match="policy"):
        await fetchval(database, "SELECT projections._create_endpoint_v1('ep', 'acme', $1, 's')", asked)


@pytest.mark.slow
async def test_a_failing_observer_changes_nothing(database: Database) -> None:
    class Fails(Watch):
        def attempted(self, *_: object) -> None:
            raise ZeroDivisionError

        def ready(self, *, ready: bool) -> None:
            raise ZeroDivisionError

    async with RawServer(respond(204)) as server:
        await hook(database, server.url)
        await sent(database, number=3)
        async with delivering(database, observer=Fails()):
            await finished(database, 3)

    assert len(server.requests) == 3
