"""Requests with an Idempotency-Key: followed once, and answered the same when they are asked again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet

from journal import Database
from projections.webhooks import Endpoints
from projections.webhooks.api import ApiSettings, webhooks_app
from projections.webhooks.api.app import OPERATIONS
from projections.webhooks.api.operations import Operation
from projections.webhooks.duties import Duties
from projections.webhooks.encryption import FernetCipher
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import execute, fetchval, until
from tests.fixtures.webhooks_api import AUTH, BODIES, TOKENS, Api, Rows, application, filled

HOOK = {"url": "https://example.com/hook"}
KEY = {"idempotency-key": "k-1"}
ENDPOINTS = "SELECT count(*) FROM projections.webhook_endpoints"
ANSWERS = "SELECT count(*) FROM projections.webhook_answers"
KEPT = "SELECT answer FROM projections.webhook_answers"
AGED = "UPDATE projections.webhook_answers SET expires_at = clock_timestamp()"
LOCK = "LOCK TABLE projections.webhook_answers IN SHARE MODE"
WAITS = f"SELECT EXISTS (SELECT FROM {WAITING} WHERE w.relation = 'projections.webhook_answers'::regclass)"
POSTS = [each for each in OPERATIONS if each.method == "POST" and not each.own_key]


@asynccontextmanager
async def answers_not_kept(database: Database) -> AsyncIterator[None]:
    """Hold up whoever has followed a request, just before its answer is kept."""
    async with database.transaction() as session:
        await session.execute(LOCK)
        yield


async def test_an_endpoint_is_made_once_and_shown_with_its_secret_again(
    acme: Api, database: Database
) -> None:
    first, second = [await acme("POST", "/v1/endpoints", HOOK, status=201, headers=KEY) for _ in range(2)]

    assert first.text == second.text
    assert first.json()["secret"]
    assert [first.headers[name] for name in ("etag", "location")] == [
        second.headers[name] for name in ("etag", "location")
    ]
    assert await fetchval(database, ENDPOINTS) == 1


@pytest.mark.slow
@pytest.mark.parametrize("operation", POSTS, ids=lambda each: each.name)
async def test_every_post_is_followed_once(
    operation: Operation, acme: Api, acmes: Rows, database: Database
) -> None:
    asked = (operation.method, filled(operation, acmes), BODIES.get(operation.name))

    first = await acme(*asked, status=operation.status, headers=KEY)
    second = await acme(*asked, status=operation.status, headers=KEY)

    assert first.text == second.text
    assert await fetchval(database, ANSWERS) == 1


async def test_a_message_keeps_its_own_key(acme: Api, database: Database) -> None:
    body = {"topic": "a.b", "data": 1}
    sent = [(await acme("POST", "/v1/messages", body, headers=KEY)).json()["duplicate"] for _ in range(2)]
    assert (sent, await fetchval(database, ANSWERS)) == ([False, True], 0)


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/v1/endpoints", HOOK | {"gzip": True}, {}),
        ("/v1/endpoints?tenant=acme", HOOK, {}),
        ("/v1/endpoints/ep_1/pause", None, {}),
        ("/v1/endpoints", HOOK, {"if-match": '"1"'}),
    ],
    ids=["body", "query", "operation", "version"],
)
async def test_a_key_is_for_one_request(
    path: str, body: Any, headers: dict[str, str], acme: Api, database: Database
) -> None:
    await acme("POST", "/v1/endpoints", HOOK, status=201, headers=KEY)
    refused = await acme("POST", path, body, status=409, headers=KEY | headers)
    assert (refused.json()["code"], await fetchval(database, ENDPOINTS)) == ("key_conflict", 1)


async def test_a_key_is_for_one_endpoint_and_the_data_as_written(acme: Api, database: Database) -> None:
    made = [(await acme("POST", "/v1/endpoints", HOOK, status=201)).json()["endpoint_id"] for _ in range(2)]
    one, other = (f"/v1/endpoints/{endpoint_id}/test" for endpoint_id in made)
    await acme("POST", one, {"data": 1}, status=202, headers=KEY)
    for path, data in ((other, 1), (one, 1.0)):
        refused = await acme("POST", path, {"data": data}, status=409, headers=KEY)
        assert refused.json()["code"] == "key_conflict"


async def test_a_key_is_of_the_tenant_that_asks(
    acme: Api, globex: Api, admin: Api, database: Database
) -> None:
    for api, body in ((acme, HOOK), (globex, HOOK), (admin, HOOK | {"tenant": "acme"})):
        for _ in range(2):
            await api("POST", "/v1/endpoints", body, status=201, headers=KEY)
    owners = "SELECT array_agg(tenant ORDER BY tenant) FROM projections.webhook_endpoints"
    assert await fetchval(database, owners) == ["acme", "acme", "globex"]


@pytest.mark.slow
async def test_what_fails_keeps_nothing(acme: Api, acmes: Rows, database: Database) -> None:
    due = {"name": "of acme", "cron": "0 1 * * *", "topic": "a.b", "data": {}}
    await acme("POST", "/v1/schedules", due, status=422, headers=KEY)  # refused by the database
    await acme("POST", "/v1/endpoints", {"url": "ftp://example.com"}, status=422, headers=KEY)
    assert await fetchval(database, ANSWERS) == 0
    await acme("POST", "/v1/schedules", due | {"name": "another"}, status=201, headers=KEY)


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_a_key_that_cannot_be_is_refused(key: str, acme: Api) -> None:
    refused = await acme("POST", "/v1/endpoints", HOOK, status=400, headers={"idempotency-key": key})
    assert refused.json()["code"] == "invalid_idempotency_key"


async def test_of_two_at_a_time_one_is_followed_and_the_other_is_to_ask_again(
    acme: Api, database: Database
) -> None:
    ask = ("POST", "/v1/endpoints", HOOK)
    async with answers_not_kept(database):
        first = asyncio.create_task(acme(*ask, status=201, headers=KEY))
        await until(database, WAITS)
        second = await acme(*ask, status=409, headers=KEY)
    assert (second.json()["code"], second.headers["retry-after"]) == ("request_in_progress", "1")

    again = await acme(*ask, status=201, headers=KEY)
    assert (again.text, await fetchval(database, ENDPOINTS)) == ((await first).text, 1)


async def test_of_many_at_a_time_one_makes_an_endpoint(acme: Api, database: Database) -> None:
    async def insist() -> str:
        while True:
            answer = await acme("POST", "/v1/endpoints", HOOK, headers=KEY)
            if answer.status_code == 201:
                return answer.text
            assert answer.json()["code"] == "request_in_progress"

    assert len({*await asyncio.gather(*(insist() for _ in range(8)))}) == 1
    assert await fetchval(database, ENDPOINTS) == 1


async def test_answers_are_kept_as_secrets_are(database: Database) -> None:
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()

    async def ask(*keys: str) -> str:
        api = Api(webhooks_app(database, AUTH, cipher=FernetCipher(keys)), TOKENS["acme"])
        async with api.client:
            return (await api("POST", "/v1/endpoints", HOOK, status=201, headers=KEY)).text

    first = await ask(old)
    assert (await fetchval(database, KEPT)).startswith("fernet:")
    await Endpoints(database, FernetCipher([new, old])).renew_secrets()
    assert await ask(new) == first


@pytest.mark.slow
async def test_after_a_day_a_key_is_new_and_the_answer_is_forgotten(acme: Api, database: Database) -> None:
    for answered in (1, 2):
        await acme("POST", "/v1/endpoints", HOOK, status=201, headers=KEY)
        await execute(database, AGED)
        assert await fetchval(database, ENDPOINTS) == answered
    stop = asyncio.Event()
    duty = asyncio.create_task(Duties(database, every=timedelta(milliseconds=10)).run(stop))
    await until(database, "SELECT NOT EXISTS (SELECT FROM projections.webhook_answers)")
    stop.set()
    await duty


async def test_a_tenant_has_so_many_keys(database: Database) -> None:
    app = application(database, settings=ApiSettings(keys_per_tenant=2))
    acme = Api(app, TOKENS["acme"])
    async with acme.client:
        for number in range(2):
            await acme("POST", "/v1/endpoints", HOOK, status=201, headers={"idempotency-key": str(number)})
        refused = await acme("POST", "/v1/endpoints", HOOK, status=422, headers=KEY)
        await acme("POST", "/v1/endpoints", HOOK, status=201, headers={"idempotency-key": "1"})
        await acme("POST", "/v1/endpoints", HOOK, status=201)
    assert (refused.json()["code"], await fetchval(database, ENDPOINTS)) == ("too_many", 3)
