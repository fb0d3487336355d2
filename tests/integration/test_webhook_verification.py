"""A URL shows that it wants webhooks before anything is sent to it, where that is asked for."""

from __future__ import annotations

import json

from journal import Database
from projections.webhooks.keys import generate_secret
from projections.webhooks.receiver import Receiver
from projections.webhooks.sender import HttpSender
from projections.webhooks.verifying import verify_endpoint
from tests.fixtures.raw_server import Exchange, RawServer, respond
from tests.integration.webhook_delivery_support import (
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


async def verified(database: Database, endpoint_id: str) -> bool:
    async with HttpSender(LOCAL) as sender:
        return (await verify_endpoint(database, endpoints(database), sender, TENANT, endpoint_id)).verified


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

    steps = (with_a_failure, respond(200, b'{"challenge": "another"}'), respond(200, b"[]"), as_text)
    async with RawServer(*steps) as server:
        endpoint_id, _ = await hook(database, server.url)
        assert [await verified(database, endpoint_id) for _ in steps] == [False, False, False, True]
