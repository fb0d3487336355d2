"""The application as others see it: its document, its index, its headers, and mounted in another one."""

from __future__ import annotations

import inspect
from typing import Any, cast

import pytest
import schemathesis
from starlette.applications import Starlette
from starlette.routing import Mount

from journal import Database
from projections.webhooks.api import Caller
from projections.webhooks.api.app import OPERATIONS
from tests.fixtures.webhooks_api import ADMIN, TOKENS, Api, Rows, application


@pytest.mark.slow
async def test_the_document_has_every_operation_and_is_open(nobody: Api) -> None:
    document = await nobody.get("/openapi.json")
    described = {
        (path, method.upper()): each["operationId"]
        for path, methods in document["paths"].items()
        for method, each in methods.items()
    }
    assert described == {(each.path, each.method): each.name for each in OPERATIONS}
    assert document["openapi"] == "3.1.0"
    assert document["servers"] == [{"url": "/"}]


@pytest.mark.slow
async def test_the_document_is_valid(nobody: Api) -> None:
    schemathesis.openapi.from_dict(await nobody.get("/openapi.json")).validate()


@pytest.mark.slow
async def test_every_operation_says_what_it_does(nobody: Api) -> None:
    document = await nobody.get("/openapi.json")
    for methods in document["paths"].values():
        for each in methods.values():
            assert each["summary"].endswith((".", ";"))
            assert {"401", "403", "414", "500", "503"} <= each["responses"].keys()
    assert all(inspect.getdoc(each.handler) for each in OPERATIONS)


@pytest.mark.slow
async def test_no_schema_of_the_document_shows_a_default_that_is_secret(nobody: Api) -> None:
    text = (await nobody("GET", "/openapi.json", status=200)).text
    assert "whsec_" not in text.replace("whsec_...", "")
    assert "header_names" in text


async def test_browsers_are_kept_strict(nobody: Api) -> None:
    for path, status in (("/", 200), ("/openapi.json", 200), ("/v1/endpoints", 401), ("/nothing", 404)):
        headers = (
            await nobody("GET", path, status=status, headers={"origin": "https://evil.example"})
        ).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["referrer-policy"] == "no-referrer"


async def test_it_works_where_it_is_mounted(database: Database, acmes: Rows) -> None:
    outer = Starlette(routes=[Mount("/hooks", application(database))])
    api = Api(outer, TOKENS["acme"])
    async with api.client:
        assert (await api.get("/hooks/openapi.json"))["servers"] == [{"url": "/hooks"}]
        assert (await api.get("/hooks/"))["openapi"] == "/hooks/openapi.json"
        assert len((await api.get("/hooks/v1/endpoints"))["data"]) == 1
        await api.get("/hooks/v1/nothing", 404)


async def test_an_application_tells_who_asks_in_its_own_way(database: Database, acmes: Rows) -> None:
    async def by_header(request: Any) -> Caller | None:
        user = request.headers.get("x-user")
        return Caller(user) if user else None

    api = Api(application(database, auth=by_header), None)
    async with api.client:
        page = (await api("GET", "/v1/endpoints", status=200, headers={"x-user": "acme"})).json()
        assert [each["tenant"] for each in page["data"]] == ["acme"]
        await api("GET", "/v1/endpoints", status=401)


async def test_what_is_not_http_is_not_answered() -> None:
    told: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        told.append(message)

    scope = {
        "type": "websocket",
        "path": "/v1/endpoints",
        "root_path": "",
        "query_string": b"",
        "headers": [],
    }
    await application(cast("Database", None))(scope, receive, send)
    assert [message["type"] for message in told] == ["websocket.close"]


async def test_no_answer_and_no_log_has_a_token(admin: Api, caplog: Any) -> None:
    texts = [
        (await admin("GET", path)).text for path in ("/v1/endpoints", "/nothing", "/v1/attempts?limit=0")
    ]
    assert ADMIN not in "".join([*texts, caplog.text])
