"""What a page of another site makes a browser send, to an API that lets in whoever reaches it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from journal import Database
from projections.webhooks.api import ApiSettings, Caller
from projections.webhooks.api.app import OPERATIONS
from projections.webhooks.api.operations import Operation
from tests.fixtures.webhooks_api import BODIES, Api, Rows, application, filled

CHANGING = [each for each in OPERATIONS if each.method != "GET"]
FORGED: dict[str, dict[str, str]] = {
    "a form's": {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    "an older browser's": {"origin": "https://evil.example"},
    "a link's": {"sec-fetch-site": "cross-site"},
    "another port's": {"origin": "http://webhooks.test:81", "sec-fetch-site": "same-site"},
}


async def everybody(_: object) -> Caller:
    return Caller(None)


@pytest.fixture
async def open_api(database: Database) -> AsyncIterator[Api]:
    api = Api(application(database, auth=everybody), None)
    async with api.client:
        yield api


@pytest.mark.slow
@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
async def test_it_changes_nothing(open_api: Api, acmes: Rows, forged: dict[str, str]) -> None:
    before = await open_api.get("/v1/endpoints")
    for operation in CHANGING:
        body = BODIES.get(operation.name)
        answer = await open_api(
            operation.method, filled(operation, acmes), body, headers=forged, params={"tenant": "acme"}
        )
        assert (answer.status_code, answer.json()["code"]) == (403, "cross_site"), operation.name
    assert await open_api.get("/v1/endpoints") == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "operation", [each for each in CHANGING if each.method == "POST"], ids=lambda one: one.name
)
async def test_nor_without_a_word_about_where_it_comes_from(
    open_api: Api, acmes: Rows, operation: Operation
) -> None:
    answer = await open_api("POST", filled(operation, acmes))
    assert (answer.status_code, answer.json()["code"]) == (415, "not_json")


@pytest.mark.parametrize("own", [{"content-type": "application/json"}, {"idempotency-key": "mine"}])
async def test_a_program_needs_no_body(open_api: Api, acmes: Rows, own: dict[str, str]) -> None:
    await open_api("POST", f"/v1/endpoints/{acmes.endpoint_id}/disable", status=200, headers=own)


async def test_a_page_with_a_token_may_be_anywhere(acme: Api, acmes: Rows) -> None:
    """No browser sends a token by itself; whether a page may ask at all is for CORS to say."""
    await acme("POST", f"/v1/endpoints/{acmes.endpoint_id}/disable", status=200, headers=FORGED["a form's"])


async def test_pages_that_are_named_may_ask_without_one(database: Database, acmes: Rows) -> None:
    settings = ApiSettings(origins=frozenset({"https://app.example.com"}))
    api = Api(application(database, auth=everybody, settings=settings), None)
    async with api.client:
        headers = {"origin": "https://app.example.com", "sec-fetch-site": "same-origin"}
        await api("POST", f"/v1/endpoints/{acmes.endpoint_id}/disable", {}, status=200, headers=headers)


async def test_who_is_not_known_is_told_so_first(nobody: Api, acmes: Rows) -> None:
    await nobody("POST", f"/v1/endpoints/{acmes.endpoint_id}/disable", status=401)
