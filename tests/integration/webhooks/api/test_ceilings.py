"""What a tenant cannot take of what all share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from journal import Database
from projections.webhooks.api import ApiSettings
from projections.webhooks.api.tenant_limits import TenantLimits
from projections.webhooks.endpoint_bounds import change_bound
from tests.fixtures.webhooks_api import ADMIN, TOKENS, Api, application

SETTINGS = ApiSettings(endpoints_per_tenant=2, schedules_per_tenant=1)
ENDPOINT = {"url": "https://example.com/hook"}
SLOW = ENDPOINT | {"policy": {"timeout": 16}}
WIDE = ENDPOINT | {"max_in_flight": 21}


@pytest.fixture
async def acme(database: Database) -> AsyncIterator[Api]:
    api = Api(application(database, settings=SETTINGS), TOKENS["acme"])
    async with api.client:
        yield api


@pytest.fixture
async def admin(database: Database) -> AsyncIterator[Api]:
    api = Api(application(database, settings=SETTINGS), ADMIN)
    async with api.client:
        yield api


def schedule(name: str) -> dict[str, Any]:
    return {"name": name, "cron": "0 1 * * *", "topic": "a.b", "data": {}}


async def test_a_tenant_makes_so_many_endpoints(acme: Api, admin: Api) -> None:
    for _ in range(2):
        await acme("POST", "/v1/endpoints", ENDPOINT, 201)

    refused = await acme("POST", "/v1/endpoints", ENDPOINT, 422)

    assert refused.json()["code"] == "too_many"
    await admin("POST", "/v1/endpoints", ENDPOINT | {"tenant": "acme"}, 201)


async def test_a_tenant_makes_so_many_schedules(acme: Api, admin: Api) -> None:
    await acme("POST", "/v1/schedules", schedule("one"), 201)

    refused = await acme("POST", "/v1/schedules", schedule("two"), 422)

    assert refused.json()["code"] == "too_many"
    await admin("POST", "/v1/schedules", schedule("two") | {"tenant": "acme"}, 201)


@pytest.mark.parametrize("wanted", [SLOW, WIDE], ids=["timeout", "max_in_flight"])
async def test_nobody_asks_for_more_than_the_limits_say(
    database: Database, acme: Api, admin: Api, wanted: dict[str, Any]
) -> None:
    async with database.session() as session:
        await change_bound(session, "max_in_flight", most=20)
        await change_bound(session, "timeout", most=15)
    made = (await acme("POST", "/v1/endpoints", ENDPOINT, 201)).json()

    for api in (acme, admin):
        path = f"/v1/endpoints/{made['endpoint_id']}"
        for refused in (
            await api("POST", "/v1/endpoints", wanted | ({"tenant": "acme"} if api is admin else {}), 422),
            await api("PATCH", path, wanted, 422),
        ):
            assert refused.json()["code"] == "invalid_endpoint"
            assert "here, not" in refused.text


async def test_a_tenant_asks_so_often_and_others_as_if_it_did_not(database: Database) -> None:
    app = application(database, settings=ApiSettings(tenant_rate=0.01))
    acme, globex, admin = (Api(app, token) for token in (*TOKENS.values(), ADMIN))
    async with acme.client, globex.client, admin.client:
        await acme("GET", "/v1/endpoints", status=200)
        refused = await acme("GET", "/v1/endpoints", status=429)
        assert refused.json()["code"] == "too_many_requests"
        assert 90 <= int(refused.headers["retry-after"]) <= 100
        await globex("GET", "/v1/endpoints", status=200)
        for _ in range(3):
            await admin("GET", "/v1/endpoints", status=200)


async def test_a_body_counts_by_its_size_also_where_it_is_wrong(database: Database) -> None:
    app = application(database, settings=ApiSettings(tenant_rate=10))
    acme = Api(app, TOKENS["acme"])
    async with acme.client:
        await acme("POST", "/v1/messages", {"topic": "a.b", "data": "a" * 1_000_000, "wrong": 1}, 422)
        refused = await acme("GET", "/v1/endpoints", status=429)
    assert 5 <= int(refused.headers["retry-after"]) <= 6  # 61 pieces of 16 KiB, of which 10 were left


async def test_a_tenant_has_its_share_of_what_is_followed_at_a_time(database: Database) -> None:
    allowances = TenantLimits(None, timedelta(seconds=10), database)
    most = database.max_connections
    async with AsyncExitStack() as held:
        for _ in range((most + 1) // 2):
            await held.enter_async_context(allowances.place("acme"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), allowances.place("acme"):
                pass
        async with allowances.place("globex"), allowances.place(None):
            pass
    async with allowances.place("acme"):
        pass
    for _ in range(most):  # what fails gives its place back
        with pytest.raises(LookupError):
            async with asyncio.timeout(0), allowances.place("acme"):
                raise LookupError
