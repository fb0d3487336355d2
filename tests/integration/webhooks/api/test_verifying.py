"""A URL shows that it wants webhooks, asked for over the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from journal import Database
from projections.webhooks.api import ApiSettings, webhooks_app
from projections.webhooks.receiver import Receiver
from projections.webhooks.response_reading import Reply
from projections.webhooks.sender import HttpSender, NotSentError
from tests.fixtures.projections import fetchval
from tests.fixtures.raw_server import Exchange, RawServer, respond
from tests.fixtures.webhook_delivery import LOCAL, hook
from tests.fixtures.webhooks_api import ADMIN, AUTH, TOKENS, Api, Rows

OPEN = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"


@pytest.fixture
def local(database: Database) -> Any:
    """Whose challenges reach this machine; a tenant's next one never, as far as a test can see."""
    settings = ApiSettings(challenge_pause=timedelta(hours=1))
    return webhooks_app(database, AUTH, rules=LOCAL, allow_http=True, settings=settings)


@pytest.fixture
async def acme(local: Any) -> AsyncIterator[Api]:
    api = Api(local, TOKENS["acme"])
    async with api.client:
        yield api


@pytest.fixture
async def admin(local: Any) -> AsyncIterator[Api]:
    api = Api(local, ADMIN)
    async with api.client:
        yield api


async def test_a_url_that_gives_the_challenge_back_is_verified_and_not_asked_again(
    acme: Api, database: Database
) -> None:
    async with Receiver() as receiver:
        endpoint_id, _ = await hook(database, receiver.url)
        path = f"/v1/endpoints/{endpoint_id}"
        before = await acme.get(path)
        answers = [(await acme("POST", f"{path}/verify", status=200)).json() for _ in range(2)]

    assert (before["verified"], (await acme.get(path))["verified"]) == (False, True)
    assert answers == [
        {"endpoint_id": endpoint_id, "verified": True, "code": "200"},
        {"endpoint_id": endpoint_id, "verified": True, "code": None},
    ]
    assert receiver.totals.requests == 1


async def test_a_url_that_does_not_is_not_and_a_tenant_has_it_asked_seldom(
    acme: Api, admin: Api, database: Database
) -> None:
    async with RawServer(respond(204)) as server:
        endpoint_id, _ = await hook(database, server.url)
        path = f"/v1/endpoints/{endpoint_id}/verify"
        answer = (await acme("POST", path, status=200)).json()
        refused = await acme("POST", path, status=429)
        assert len(server.requests) == 1
        await admin("POST", path, status=200)

    assert answer == {"endpoint_id": endpoint_id, "verified": False, "code": "204"}
    assert refused.json()["code"] == "too_many_challenges"
    assert int(refused.headers["retry-after"]) > 3000
    assert not (await acme.get(path.removesuffix("/verify")))["verified"]


async def test_no_transaction_is_open_while_the_answer_is_waited_for(acme: Api, database: Database) -> None:
    gate = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await gate.wait()
        await respond(204)(exchange)

    async with RawServer(held) as server:
        endpoint_id, _ = await hook(database, server.url)
        asked = asyncio.create_task(
            acme("POST", f"/v1/endpoints/{endpoint_id}/verify", headers={"idempotency-key": "k-1"})
        )
        await server.received(1)
        assert await fetchval(database, OPEN) == 0
        gate.set()
        assert (await asked).status_code == 200


async def test_addresses_that_endpoints_may_not_be_at_are_not_asked(database: Database) -> None:
    async with RawServer(respond(204)) as server:
        endpoint_id, _ = await hook(database, server.url)
        api = Api(webhooks_app(database, AUTH), TOKENS["acme"])
        async with api.client:
            answer = (await api("POST", f"/v1/endpoints/{endpoint_id}/verify", status=200)).json()
    assert (answer["verified"], answer["code"], server.requests) == (False, "blocked_address", [])


async def test_what_this_process_lacks_is_not_said_to_be_the_receivers_fault(
    acme: Api, acmes: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(*_: object) -> Reply:
        raise NotSentError("no files are left", timedelta(seconds=1.5), everywhere=True)

    monkeypatch.setattr(HttpSender, "send", send)
    refused = await acme("POST", f"/v1/endpoints/{acmes.endpoint_id}/verify", status=503)
    assert (refused.json()["code"], refused.headers["retry-after"]) == ("not_sent", "2")
    assert "files" not in refused.text
