"""
What a tenant has is not there for others, whichever way is asked.

The tests are made of the operations of the application: a new one fails them until it keeps tenants apart.
"""

from __future__ import annotations

from typing import Any

import pytest

from journal import Database
from projections.webhooks.api.app import OPERATIONS
from projections.webhooks.api.operations import Operation
from tests.fixtures.webhooks_api import (
    BODIES,
    QUERIES,
    SPAN,
    Api,
    Rows,
    filled,
)

STATE = """
SELECT json_build_object(
    'endpoints', (SELECT json_agg(e) FROM projections.webhook_endpoints AS e WHERE e.tenant = $1),
    'deliveries', (
        SELECT json_agg(d ORDER BY d.delivery_id) FROM projections.webhook_deliveries AS d WHERE d.tenant = $1
    ),
    'schedules', (SELECT json_agg(s) FROM projections.webhook_schedules AS s WHERE s.tenant = $1),
    'secrets', (SELECT count(*) FROM projections.webhook_secrets),
    'messages', (SELECT count(*) FROM projections.events AS e WHERE e.metadata ->> 'tenant' = $1)
)::text
"""
OF_ONE = [each for each in OPERATIONS if each.parameters]
OF_MANY = [each for each in OPERATIONS if not each.parameters]
LISTS = [each for each in OF_MANY if each.method == "GET" and each.name != "list_topics"]
"""Topics are the same for all tenants."""


def named(operation: Operation) -> str:
    return operation.name


async def state_of(database: Database, tenant: str) -> str:
    async with database.session() as session:
        return str(await session.fetchval(STATE, tenant))


def asked(operation: Operation) -> dict[str, Any]:
    return {"body": BODIES.get(operation.name), "params": QUERIES.get(operation.name)}


def test_every_route_of_the_application_is_an_operation_that_these_tests_know(app: Any) -> None:
    routes = {(route.path, method) for route in app.routes for method in route.methods - {"HEAD"}}
    tested = {(each.path, each.method) for each in (*OF_ONE, *OF_MANY)}
    assert routes - tested == {("/openapi.json", "GET"), ("/", "GET")}


@pytest.mark.slow
@pytest.mark.parametrize("operation", OF_ONE, ids=named)
async def test_what_is_another_tenants_looks_like_what_is_not_there_and_stays_as_it_is(
    operation: Operation, globex: Api, acmes: Rows, database: Database
) -> None:
    before = await state_of(database, "acme")
    theirs = await globex(operation.method, filled(operation, acmes), status=404, **asked(operation))
    nothing = operation.path.format(**{name: f"no-{name}" for name in operation.parameters})
    absent = await globex(operation.method, nothing, status=404, **asked(operation))
    assert theirs.json()["code"] == absent.json()["code"]
    assert "answer of acme" not in theirs.text
    assert await state_of(database, "acme") == before


@pytest.mark.slow
@pytest.mark.parametrize("operation", OF_ONE, ids=named)
async def test_what_is_its_own_is_found(operation: Operation, acme: Api, acmes: Rows) -> None:
    response = await acme(operation.method, filled(operation, acmes), **asked(operation))
    assert response.status_code == operation.status or response.json()["code"] == "not_retriable"


@pytest.mark.slow
@pytest.mark.parametrize("operation", OF_MANY, ids=named)
async def test_lists_and_bulk_requests_see_and_touch_nothing_of_another_tenant(
    operation: Operation, globex: Api, acmes: Rows, globexes: Rows, database: Database
) -> None:
    before = await state_of(database, "acme")
    response = await globex(operation.method, operation.path, **asked(operation))
    assert response.status_code == operation.status, response.text
    assert not [mark for mark in acmes.marks if mark in response.text]
    now = await state_of(database, "acme")
    assert [*map(before.count, acmes.marks)] == [*map(now.count, acmes.marks)]
    assert now.partition('"secrets"')[0] == before.partition('"secrets"')[0]


@pytest.mark.slow
@pytest.mark.parametrize("operation", LISTS, ids=named)
async def test_lists_show_a_tenant_what_is_its_own(
    operation: Operation, globex: Api, acmes: Rows, globexes: Rows
) -> None:
    response = await globex(operation.method, operation.path, status=200, **asked(operation))
    assert globexes.endpoint_id in response.text or globexes.schedule_id in response.text


@pytest.mark.parametrize("tenants", ["acme", ["globex", "acme"]], ids=["another", "several"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=named)
async def test_a_tenant_that_names_another_one_is_refused(
    operation: Operation, unasked: Api, tenants: Any
) -> None:
    params = (QUERIES.get(operation.name) or {}) | {"tenant": tenants}
    await unasked(operation.method, operation.path, BODIES.get(operation.name), status=403, params=params)


@pytest.mark.parametrize("operation", OPERATIONS, ids=named)
async def test_nobody_is_told_anything_without_a_token(operation: Operation, unasked: Api) -> None:
    unasked.client.headers.pop("authorization")
    response = await unasked(operation.method, operation.path, status=401, **asked(operation))
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("name", ["create_endpoint", "send_message", "create_schedule"])
async def test_a_tenant_can_not_make_something_for_another_one(name: str, globex: Api) -> None:
    operation = next(each for each in OPERATIONS if each.name == name)
    await globex("POST", operation.path, {**BODIES[name], "tenant": "acme"}, status=403)


@pytest.mark.parametrize("name", ["create_endpoint", "send_message", "create_schedule"])
async def test_an_administrator_has_to_say_whose_something_new_is(name: str, admin: Api) -> None:
    operation = next(each for each in OPERATIONS if each.name == name)
    response = await admin("POST", operation.path, BODIES[name], status=422)
    assert response.json()["code"] == "tenant_missing"


@pytest.mark.parametrize("name", ["send_message", "create_schedule"])
async def test_nothing_new_can_be_for_an_endpoint_of_another_tenant(
    name: str, globex: Api, acmes: Rows
) -> None:
    operation = next(each for each in OPERATIONS if each.name == name)
    await globex("POST", operation.path, {**BODIES[name], "endpoint_id": acmes.endpoint_id}, status=404)


@pytest.mark.parametrize("operation", LISTS, ids=named)
async def test_an_administrator_sees_all_tenants_or_the_one_that_is_named(
    operation: Operation, admin: Api, acmes: Rows, globexes: Rows
) -> None:
    query = QUERIES.get(operation.name) or {}
    of_all = (await admin("GET", operation.path, status=200, params=query)).text
    of_one = (await admin("GET", operation.path, status=200, params=query | {"tenant": "acme"})).text
    seen = [
        any(mark in text for mark in rows.marks[1:3])
        for text in (of_all, of_one)
        for rows in (acmes, globexes)
    ]
    assert seen == [True, True, True, False]


async def test_metrics_by_tenant_are_for_administrators(admin: Api, acme: Api, acmes: Rows) -> None:
    found = await admin.get("/v1/metrics/events", **SPAN, dimensions="tenant")
    assert [point["dimensions"] for point in found["data"]] == [{"tenant": "acme"}]
    await acme.get("/v1/metrics/events", 422, **SPAN, dimensions="tenant")


async def test_an_attempt_at_another_endpoint_than_the_paths_is_not_found(
    admin: Api, acmes: Rows, globexes: Rows
) -> None:
    await admin.get(f"/v1/endpoints/{acmes.endpoint_id}/attempts/{acmes.attempt_id}")
    await admin.get(f"/v1/endpoints/{globexes.endpoint_id}/attempts/{acmes.attempt_id}", 404)


async def test_a_cursor_of_another_tenant_is_refused(
    acme: Api, globex: Api, acmes: Rows, globexes: Rows
) -> None:
    for path in ("/v1/attempts", "/v1/deliveries", "/v1/dead-letters"):
        page = await acme.get(path, limit=1)
        response = await globex("GET", path, status=422, params={"limit": 1, "next": page["next"]})
        assert response.json()["code"] == "invalid_cursor"


@pytest.mark.parametrize("path", ["/v1/deliveries", "/v1/dead-letters"])
async def test_a_cursor_of_deliveries_does_not_tell_how_many_there_are_of_all_tenants(
    path: str, acme: Api, acmes: Rows, globexes: Rows
) -> None:
    page = await acme.get(path, limit=1)
    (last,) = page["data"]
    assert page["next"] == f"{last['endpoint_id']}/{last['event_id']}"


async def test_a_cursor_of_a_delivery_that_is_gone_is_refused(acme: Api, acmes: Rows) -> None:
    following = (await acme.get("/v1/deliveries", limit=1))["next"]
    await acme("DELETE", f"/v1/endpoints/{acmes.endpoint_id}", status=204)
    await acme.get("/v1/deliveries", 422, limit=1, next=following)
