"""A URL shows that it wants webhooks before anything is sent to it, where that is asked for."""

from __future__ import annotations

import json

import httpx
import pytest

from journal import Database
from projections.webhooks.api import TokenAuth, webhooks_app
from projections.webhooks.endpoint_verification import verify_endpoint
from projections.webhooks.receiver import Receiver
from projections.webhooks.retry_policy import RetryPolicy
from projections.webhooks.sender import HttpSender
from projections.webhooks.signing import generate_secret
from tests.fixtures.projections import fetchval, until
from tests.fixtures.raw_server import Exchange, RawServer, respond
from tests.fixtures.webhook_delivery import (
    LOCAL,
    TENANT,
    delivering,
    endpoints,
    finished,
    hook,
    sent,
    settings,
    states,
)

STATE = "SELECT count(*) FROM projections.webhook_deliveries WHERE endpoint_id = $1 AND state = $2"


async def verified(database: Database, endpoint_id: str) -> bool:
    async with HttpSender(LOCAL) as sender:
        return (await verify_endpoint(database, endpoints(database), sender, TENANT, endpoint_id)).verified


@pytest.mark.slow
async def test_nothing_is_sent_to_a_url_that_is_not_verified(database: Database) -> None:
    secret = generate_secret()
    async with RawServer(respond(204)) as other, Receiver(secret) as receiver:
        unwilling, _ = await hook(database, other.url)
        willing, _ = await hook(database, receiver.url, secret=secret)
        assert await verified(database, willing)
        assert not await verified(database, unwilling)
        assert len(other.requests) == 1
        await sent(database)
        async with delivering(database, settings=settings(verified_only=True)):
            await finished(database)
            await sent(database)
            await finished(database, 2)
        assert len(other.requests) == 1  # the challenge
        assert sorted(await states(database)) == ["done", "done", "pending", "pending"]
        assert (await endpoints(database).get(TENANT, willing)).verified


@pytest.mark.slow
async def test_what_somebody_asks_for_waits_like_everything_else(database: Database) -> None:
    """Test messages, retries by hand and schedules are deliveries, and held where all of them are claimed."""
    async with RawServer(respond(500)) as other, Receiver() as receiver:
        endpoint_id, _ = await hook(database, other.url, policy=RetryPolicy(schedule=()))
        willing, _ = await hook(database, receiver.url)
        assert await verified(database, willing)
        (dead,) = await sent(database, endpoint_id=endpoint_id)
        async with delivering(database):
            await until(database, STATE, endpoint_id, "dead")
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(webhooks_app(database, TokenAuth(admin_token="a" * 16))),
            base_url="http://api", headers={"authorization": f"Bearer {'a' * 16}"},
        )  # fmt: skip
        due = {"name": "n", "cron": "@yearly", "topic": "flight.due", "data": 1, "endpoint_id": endpoint_id}
        async with client:
            made = await client.post("/v1/schedules", json=due | {"tenant": TENANT})
            for path in (
                f"/v1/endpoints/{endpoint_id}/test",
                f"/v1/schedules/{made.json()['schedule_id']}/send",
                f"/v1/endpoints/{endpoint_id}/deliveries/{dead}/retry",
            ):
                asked = await client.post(path, headers={"content-type": "application/json"})
                assert asked.status_code == 202, asked.text
        await sent(database, endpoint_id=willing)
        async with delivering(database, settings=settings(verified_only=True)):
            await until(database, STATE, willing, "done")

        assert len(other.requests) == 1  # the one from before
        assert await fetchval(database, STATE, endpoint_id, "pending") == 3


async def test_another_url_has_to_be_verified_again(database: Database) -> None:
    async with Receiver() as receiver:
        endpoint_id, _ = await hook(database, receiver.url)
        assert await verified(database, endpoint_id)
        changed = await endpoints(database).change(TENANT, endpoint_id, {"url": receiver.url + "other"})
        assert not changed.verified
        back = await endpoints(database).change(TENANT, endpoint_id, {"url": receiver.url})
        assert back.verified


async def test_the_challenge_comes_back_as_text_or_not_at_all(database: Database) -> None:
    async def as_text(exchange: Exchange) -> None:
        challenge = json.loads(exchange.request.body)["data"]["challenge"]
        await respond(200, challenge.encode())(exchange)

    async def with_a_failure(exchange: Exchange) -> None:
        challenge = json.loads(exchange.request.body)["data"]["challenge"]
        await respond(400, challenge.encode())(exchange)

    async def with_all_that_came(exchange: Exchange) -> None:
        await respond(200, exchange.request.body)(exchange)

    another = respond(200, b'{"challenge": "another"}')
    steps = (with_a_failure, with_all_that_came, another, respond(200, b"[]"), as_text)
    async with RawServer(*steps) as server:
        endpoint_id, _ = await hook(database, server.url)
        assert [await verified(database, endpoint_id) for _ in steps] == [*[False] * 4, True]
