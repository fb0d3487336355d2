"""Messages on their whole way: sent, fanned out, claimed, signed, received over HTTP, logged."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from standardwebhooks.webhooks import Webhook

import offsets
from journal import Database
from projections.webhooks.deliveries import Deliveries, DeliveryFilter
from projections.webhooks.messages import MESSAGE, send
from projections.webhooks.outgoing import Outgoing
from projections.webhooks.response_reading import Reply
from projections.webhooks.retry_policy import RetryPolicy
from projections.webhooks.signing import generate_secret, verify
from tests.fixtures.ports import unused_port
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.raw_server import (
    Exchange,
    RawServer,
    Request,
    drip,
    hang,
    never_closing_body,
    redirect,
    reset,
    respond,
)
from tests.fixtures.webhook_delivery import (
    PATIENT,
    TENANT,
    Gate,
    attempts,
    delivering,
    due,
    endpoints,
    fanned_out,
    finished,
    hook,
    rows,
    sent,
    states,
    until_rows,
)

BLOCKED = (
    "SELECT extract(EPOCH FROM blocked_until - clock_timestamp())::float8 FROM projections.webhook_circuits"
)


def signed(request: Request) -> dict[str, str]:
    return {name: value for name, value in request.headers if name.lower().startswith("webhook-")}


def oracle(secret: object, request: Request, body: bytes | None = None) -> Any:
    """What another implementation of Standard Webhooks makes of it; raises if it is not signed."""
    library = Webhook(secret.reveal())  # type: ignore[attr-defined]
    return library.verify(request.body if body is None else body, signed(request))


async def test_a_message_arrives_signed(database: Database) -> None:
    async with RawServer(respond(204)) as server:
        _, secret = await hook(database, server.url, headers={"X-Team": "ops"})
        (event_id,) = await sent(database, data={"flight": "BA 1"})
        async with delivering(database):
            await finished(database)

    (request,) = server.requests
    assert (request.method, request.target) == ("POST", "/hooks")
    assert (request.header("webhook-id"), request.header("x-team")) == (event_id, "ops")
    assert request.header("content-type") == "application/json"
    body = oracle(secret, request)
    assert verify(secret, signed(request), request.body).message_id == event_id
    assert (body["type"], body["data"]) == ("flight.landed", {"flight": "BA 1"})
    sent_at = await fetchval(database, "SELECT event_time FROM projections.webhook_deliveries")
    assert datetime.fromisoformat(body["timestamp"]) == sent_at
    assert await attempts(database) == [(1, "success", "204")]


STATUSES = {
    **dict.fromkeys((200, 202, 204), ("done", False, "active")),
    **dict.fromkeys((301, 302, 304, 307, 308, 400, 404, 422, 500), ("pending", False, "active")),
    **dict.fromkeys((429, 502, 503, 504), ("pending", True, "active")),
    410: ("dead", False, "disabled"),
}
OUTCOMES = """
SELECT
    d.last_code, d.state, c.blocked_until > now() + interval '50 seconds' AS blocked, e.state AS endpoint,
    extract(EPOCH FROM d.next_at - a.attempted_at)::float8 AS wait, a.status
FROM projections.webhook_deliveries AS d
INNER JOIN projections.webhook_endpoints AS e USING (endpoint_id)
INNER JOIN projections.webhook_circuits AS c USING (endpoint_id)
INNER JOIN projections.webhook_attempts AS a USING (endpoint_id)
ORDER BY e.description
"""


async def by_path(exchange: Exchange) -> None:
    """Answer with the status that the path says, and point somewhere else."""
    await redirect("/elsewhere", int(exchange.request.target[1:]))(exchange)


@pytest.mark.slow
async def test_status_matrix(database: Database) -> None:
    async with RawServer(by_path) as server:
        for status in STATUSES:
            await hook(database, server.url_at("127.0.0.1", f"/{status}"))
        await sent(database)
        async with delivering(database):
            await until_rows(database, "last_code IS NOT NULL", len(STATUSES))

    found = await rows(database, OUTCOMES)
    assert {
        int(row["last_code"]): (row["state"], row["blocked"], row["endpoint"]) for row in found
    } == STATUSES
    assert {row["last_code"] for row in found if row["status"] == "success"} == {"200", "202", "204"}
    assert sorted(request.target for request in server.requests) == sorted(
        f"/{status}" for status in STATUSES
    )


def _http_date(of: datetime) -> str:
    return of.strftime("%a, %d %b %Y %H:%M:%S GMT")


NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = 3600
RETRY_AFTER: dict[str, tuple[dict[str, str], int]] = {
    "digits": ({"Retry-After": "99999999999999999999"}, 24 * HOUR),
    "garbage": ({"Retry-After": "soon"}, HOUR),
    "http_date": ({"Retry-After": _http_date(NOON + timedelta(hours=3)), "Date": _http_date(NOON)}, 3 * HOUR),
    "negative": ({"Retry-After": "-5"}, HOUR),
    "seconds": ({"Retry-After": "7200"}, 2 * HOUR),
    "year_2999": ({"Retry-After": "Fri, 31 Dec 2999 23:59:59 GMT"}, 24 * HOUR),
}
"""Answers, and after how long the next attempt is made: what the schedule says is an hour."""


@pytest.mark.slow
async def test_retry_after(database: Database) -> None:
    async def answer(exchange: Exchange) -> None:
        await respond(500, headers=RETRY_AFTER[exchange.request.target[1:]][0])(exchange)

    async with RawServer(answer) as server:
        for name in RETRY_AFTER:
            await hook(database, server.url_at("127.0.0.1", f"/{name}"), description=name)
        await sent(database)
        async with delivering(database):
            await until_rows(database, "last_code = '500'", len(RETRY_AFTER))

    waits = [row["wait"] for row in await rows(database, OUTCOMES)]
    for (name, (_, expected)), wait in zip(RETRY_AFTER.items(), waits, strict=True):
        assert expected <= wait < expected + 60, name


@pytest.mark.slow
async def test_retry_after_of_429_holds_the_whole_endpoint(database: Database) -> None:
    async with RawServer(respond(429, headers={"Retry-After": "5000"}), respond(204)) as server:
        await hook(database, server.url, max_in_flight=1)
        await sent(database, number=2)
        async with delivering(database):
            await until_rows(database, "last_code = '429'")
            assert 4900 < await fetchval(database, BLOCKED) <= 5000
            await due(database)
            await finished(database, 2)

    assert len(server.requests) == 3


@pytest.mark.slow
async def test_failures_of_the_wire_have_their_code_and_come_again(database: Database) -> None:
    async with RawServer(reset(), respond(204)) as server:
        await hook(database, server.url)
        await hook(database, f"http://127.0.0.1:{unused_port()}/")
        inside, _ = await hook(database, server.url)
        await execute(
            database,
            "UPDATE projections.webhook_endpoints SET url = 'http://10.1.2.3/' WHERE endpoint_id = $1",
            inside,
        )
        await sent(database)
        async with delivering(database):
            await until_rows(database, "last_code IS NOT NULL", 3)
            await due(database)
            await until_rows(database, "attempts = 2 AND state <> 'leased'", 3)

    found = await rows(database, "SELECT code FROM projections.webhook_attempts ORDER BY code")
    codes = [row["code"] for row in found]
    assert codes == ["204", *["blocked_address"] * 2, *["connection_refused"] * 2, "connection_reset"]


@pytest.mark.slow
@pytest.mark.parametrize("step", [hang(), drip(), never_closing_body()], ids=["silent", "drip", "endless"])
async def test_an_answer_that_does_not_end_is_a_failure_at_the_deadline(
    database: Database, step: Any
) -> None:
    policy = PATIENT.model_copy(update={"timeout": timedelta(seconds=1)})
    async with RawServer(step) as server:
        await hook(database, server.url, policy=policy)
        await sent(database)
        async with delivering(database):
            await until_rows(database, "last_code IS NOT NULL")

    assert await attempts(database) == [(1, "failed", "timeout")]
    took = await fetchval(database, "SELECT took FROM projections.webhook_attempts")
    assert took >= timedelta(seconds=1)


@pytest.mark.slow
async def test_an_answer_of_any_bytes_is_stored(database: Database) -> None:
    async with RawServer(respond(200, b"a\0b\xff\xfe\xed\xa0\x80")) as server:
        await hook(database, server.url)
        await sent(database)
        async with delivering(database):
            await finished(database)

    kept = await fetchval(database, "SELECT response FROM projections.webhook_attempts")
    assert kept.startswith("a\N{REPLACEMENT CHARACTER}b")


async def test_retries_have_the_same_id_and_body_and_a_new_timestamp(database: Database) -> None:
    async with RawServer(respond(500), respond(204)) as server:
        _, secret = await hook(database, server.url)
        await sent(database)
        async with delivering(database):
            await until_rows(database, "last_code = '500'")
            # Whole seconds: the next attempt must be in another one.
            await execute(database, "SELECT pg_sleep(1.1 - extract(microsecond FROM now()) % 1000000 / 1e6)")
            await due(database)
            await finished(database)

    first, second = server.requests
    assert first.header("webhook-id") == second.header("webhook-id")
    assert first.body == second.body
    times = [int(str(one.header("webhook-timestamp"))) for one in (first, second)]
    assert times[0] < times[1]
    assert first.header("webhook-signature") != second.header("webhook-signature")
    for request in (first, second):
        oracle(secret, request)


async def test_bytes_sent_equal_bytes_signed_with_gzip(database: Database) -> None:
    async with RawServer(respond(204)) as server:
        _, secret = await hook(database, server.url, gzip=True)
        await sent(database, data={"text": "ü\N{GRINNING FACE}" * 500})
        async with delivering(database):
            await finished(database)

    (request,) = server.requests
    assert request.header("content-encoding") == "gzip"
    plain = gzip.decompress(request.body)
    assert len(request.body) < len(plain)
    assert oracle(secret, request, plain)["data"] == {"text": "ü\N{GRINNING FACE}" * 500}


ODD = '{ "z": 1.0,  "a":1e400, "n": 123456789012345678901234567890, "z": -0.10e-2,"s":"\\u00e9\\ud83d\\ude00 é" }'


@pytest.mark.slow
async def test_key_order_and_number_text_preserved(database: Database) -> None:
    policy = PATIENT.model_copy(update={"schedule": ()})
    async with RawServer(respond(500), respond(204)) as server:
        endpoint_id, secret = await hook(database, server.url, policy=policy)
        # As plain SQL may append it: numbers that no float holds, and a name that is there twice.
        append = "SELECT event_id::text FROM projections.append_event_v1($1, $2, 't', $3, $4)"
        event_id = await fetchval(database, append, "webhooks/acme/0", MESSAGE, ODD, '{"tenant": "acme"}')
        await fanned_out(database)
        deliveries = Deliveries(database)
        async with delivering(database):
            await finished(database, states=("dead",))
            _, kept = await deliveries.show(TENANT, endpoint_id, event_id)
            await deliveries.retry(TENANT, endpoint_id, event_id)
            await finished(database)

    assert kept == ODD
    assert await fetchval(database, "SELECT data FROM projections.webhook_events") == ODD
    for request in server.requests:
        assert request.body.endswith(b'"data":' + ODD.encode() + b"}")
        oracle(secret, request)


async def test_rotation_both_signatures_newest_first_then_expiry_drops_old(database: Database) -> None:
    async with RawServer(respond(204)) as server:
        endpoint_id, old = await hook(database, server.url)
        new = (await endpoints(database).rotate_secret(TENANT, endpoint_id)).secret
        async with delivering(database):
            await sent(database)
            await finished(database, 1)
            await execute(
                database, "UPDATE projections.webhook_secrets SET expires_at = now() WHERE expires_at > now()"
            )
            await sent(database)
            await finished(database, 2)

    both, later = server.requests
    tokens = str(both.header("webhook-signature")).split(" ")
    assert len(tokens) == 2
    for secret, token in zip((new, old), tokens, strict=True):
        oracle(secret, both)
        verify(secret, {**signed(both), "webhook-signature": token}, both.body)
    assert len(str(later.header("webhook-signature")).split(" ")) == 1
    oracle(new, later)


@pytest.mark.slow
async def test_rotation_takes_effect_next_attempt(database: Database) -> None:
    async with RawServer(respond(500), respond(204)) as server:
        endpoint_id, old = await hook(database, server.url)
        await sent(database)
        async with delivering(database):
            await until_rows(database, "last_code = '500'")
            new = (await endpoints(database).rotate_secret(TENANT, endpoint_id, grace=timedelta(0))).secret
            await due(database)
            await finished(database)

    first, second = server.requests
    oracle(old, first)
    oracle(new, second)
    assert len(str(second.header("webhook-signature")).split(" ")) == 1


@pytest.mark.slow
async def test_a_chosen_secret_signs(database: Database) -> None:
    secret = generate_secret()
    async with RawServer(respond(204)) as server:
        await hook(database, server.url, secret=secret.reveal())
        await sent(database)
        async with delivering(database):
            await finished(database)

    oracle(secret, server.requests[0])


@pytest.mark.slow
async def test_poison_that_can_not_be_signed_is_a_failed_attempt_and_others_flow(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async with RawServer(respond(204)) as server:
        poisoned, _ = await hook(database, server.url)
        await hook(database, server.url)
        await execute(
            database,
            "UPDATE projections.webhook_secrets SET secret = 'plain:whsec_s3cret!' WHERE endpoint_id = $1",
            poisoned,
        )
        await sent(database, number=3)
        async with delivering(database):
            await finished(database, 3)
            await until_rows(database, "last_code = 'unsendable'", 3)

    assert len(server.requests) == 3
    assert "s3cret" not in caplog.text


@pytest.mark.slow
async def test_a_policy_that_nobody_can_read_keeps_nothing_else_up(database: Database) -> None:
    async with RawServer(respond(204)) as server:
        await hook(database, server.url)
        odd, _ = await hook(database, server.url)
        await execute(
            database,
            "UPDATE projections.webhook_endpoints SET policy = policy || $2 WHERE endpoint_id = $1",
            odd,
            '{"to_come": 1, "jitter": "odd"}',
        )
        await sent(database, number=2)
        async with delivering(database):
            await finished(database, 4)

    assert len(server.requests) == 4


@pytest.mark.slow
async def test_an_answer_that_can_not_be_stored_loses_no_other(database: Database) -> None:
    class Odd:
        """Says what PostgreSQL refuses of every second."""

        async def send(self, outgoing: Outgoing) -> Reply:
            odd = json.loads(outgoing.body)["data"]["n"] % 2
            return Reply("200", 200, None, None, "\0" if odd else "", truncated=False, took=timedelta(0))

        async def aclose(self) -> None: ...

    await hook(database, "http://127.0.0.1/", max_in_flight=100)
    await sent(database, number=10)
    gate = Gate(Odd(), after=True)
    async with delivering(database, gate) as running:
        for _ in range(10):
            await gate.reached.get()
        gate.after.set()
        await finished(database, 5)
        await running.watch.until(lambda: len(running.watch.gone) == 5)

    assert sorted(await states(database)) == ["done"] * 5 + ["leased"] * 5


@pytest.mark.slow
async def test_an_event_that_the_log_no_longer_keeps_is_dead_and_never_sent_empty(database: Database) -> None:
    async with RawServer(respond(204)) as server:
        await hook(database, server.url)
        await sent(database)
        await execute(database, "DELETE FROM projections.webhook_events")
        async with delivering(database):
            await finished(database, states=("dead",))

    assert server.requests == []
    assert await attempts(database) == [(1, "failed", "event_gone")]


@pytest.mark.slow
async def test_what_is_not_to_be_tried_again_is_dead_at_once(database: Database) -> None:
    async with RawServer(respond(500)) as server:
        await hook(database, server.url)
        await sent(database, eligible_for_retry=False)
        async with delivering(database):
            await finished(database, states=("dead",))

    assert len(server.requests) == 1


@pytest.mark.slow
async def test_a_schedule_ends_in_a_dead_letter(database: Database) -> None:
    policy = RetryPolicy(schedule=(timedelta(0), timedelta(0)), disable_after_failures=None)
    async with RawServer(respond(500)) as server:
        await hook(database, server.url, policy=policy)
        await sent(database)
        async with delivering(database):
            await finished(database, states=("dead",))

    assert [number for number, *_ in await attempts(database)] == [1, 2, 3]
    assert len({request.header("webhook-id") for request in server.requests}) == 1


@pytest.mark.slow
async def test_messages_go_by_tenant_topic_filter_and_name(database: Database) -> None:
    async with RawServer(respond(204)) as server:
        by = {
            "all": await hook(database, server.url_at("127.0.0.1", "/all")),
            "topic": await hook(database, server.url_at("127.0.0.1", "/topic"), topics=("flight.*",)),
            "filter": await hook(database, server.url_at("127.0.0.1", "/filter"), filter={"data": {"n": {"$gt": 5}}}),
            "other": await hook(database, server.url_at("127.0.0.1", "/other"), tenant="other"),
        }  # fmt: skip
        await sent(database, "flight.landed", {"n": 9})
        await sent(database, "flight.landed", {"n": 1})
        await sent(database, "gate.changed", {"n": 1})
        await sent(database, "gate.changed", {"n": 2}, endpoint_id=by["topic"][0])
        await sent(database, "flight.left", {"n": 2}, endpoint_id=by["topic"][0])
        async with delivering(database):
            await finished(database, 7)

    seen = sorted((request.target, json.loads(request.body)["data"]["n"]) for request in server.requests)
    assert seen == [
        ("/all", 1), ("/all", 1), ("/all", 9), ("/filter", 9), ("/topic", 1), ("/topic", 2), ("/topic", 9),
    ]  # fmt: skip
    listed = await Deliveries(database).list(DeliveryFilter(tenant="other"))
    assert listed == []


@pytest.mark.slow
async def test_what_is_rolled_back_is_never_sent(database: Database) -> None:
    async with RawServer(respond(204)) as server:
        await hook(database, server.url)
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is rolled back
            async with database.transaction() as session:
                await send(session, TENANT, "flight.landed", {})
                raise ZeroDivisionError
        (event_id,) = await sent(database)
        async with delivering(database):
            await finished(database)

    assert [request.header("webhook-id") for request in server.requests] == [event_id]


@pytest.mark.slow
async def test_a_message_that_is_sent_twice_arrives_once(database: Database) -> None:
    async with RawServer(respond(204)) as server:
        await hook(database, server.url)
        first = await sent(database, message_id="order 1", data={"n": 1})
        again = await sent(database, message_id="order 1", data={"n": 1})
        await sent(database, message_id="order 2", data={"n": 1})
        async with delivering(database):
            await finished(database, 2)

    assert first == again
    assert len(server.requests) == 2


async def test_two_tenants_that_send_under_the_same_uuid_both_get_their_message(database: Database) -> None:
    message_id = uuid4()
    async with RawServer(respond(204)) as server:
        for tenant in (TENANT, "initech"):
            await hook(database, server.url, tenant=tenant)
            await sent(database, tenant=tenant, message_id=message_id, data={"of": tenant})
        async with delivering(database):
            await finished(database, 2)

    arrived = sorted(json.loads(request.body)["data"]["of"] for request in server.requests)
    assert arrived == [TENANT, "initech"]


@pytest.mark.slow
async def test_a_fan_out_that_reads_everything_again_delivers_nothing_again(database: Database) -> None:
    async with RawServer(respond(204)) as server:
        await hook(database, server.url)
        await sent(database, number=5)
        async with delivering(database):
            await finished(database, 5)
            async with database.transaction() as session:
                await offsets.clear_offset(session, "webhooks/webhook-message")
            (event_id,) = await sent(database)  # reads everything again
            await finished(database, 6)

    all_read = "SELECT (SELECT sum(seq_nr) FROM projections.source_offsets) = (SELECT count(*) FROM projections.events)"
    assert await fetchval(database, all_read)
    assert len(server.requests) == 6
    assert server.requests[-1].header("webhook-id") == event_id
